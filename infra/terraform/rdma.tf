# RDMA between the GPU nodes of a run: one VPC a zone with a RoCE profile, and a subnet for each of a
# node's eight RDMA NICs. Long-lived like the network, and free of charge: a run only attaches to it.
# Only RDMA NICs may attach, and such a network takes no firewall rules.

locals {
  rdma_nics = 8 # of an A4 machine

  # Of the /12: its fourteenth /16, a /20 for each zone, a /23 (507 nodes) for each NIC.
  rdma_subnets = merge([
    for z, zone in var.rdma_zones : {
      for nic in range(local.rdma_nics) : "${zone}-${nic}" => {
        zone  = zone
        nic   = nic
        range = cidrsubnet(cidrsubnet(cidrsubnet(var.address_space, 4, 13), 4, z), 3, nic)
      }
    }
  ]...)

  # LUSTRUM_RDMA: the network of each zone; its subnets are named after it (steps/settings.py).
  rdma_json = jsonencode({ for zone, network in google_compute_network.rdma : zone => network.name })
}

resource "google_compute_network" "rdma" {
  for_each = toset(var.rdma_zones)
  provider = google-beta

  name                    = "lustrum-rdma-${each.value}"
  description             = "RDMA NICs of GPU nodes in ${each.value}; see infra/terraform/rdma.tf"
  auto_create_subnetworks = false
  routing_mode            = "REGIONAL"
  # The profile fixes the MTU; it exists only in zones that have such machines.
  network_profile = "https://www.googleapis.com/compute/beta/projects/${var.project}/global/networkProfiles/${each.value}-vpc-roce"
  depends_on      = [google_project_service.api]
}

resource "google_compute_subnetwork" "rdma" {
  for_each = local.rdma_subnets

  name          = "${google_compute_network.rdma[each.value.zone].name}-${each.value.nic}"
  network       = google_compute_network.rdma[each.value.zone].id
  region        = join("-", slice(split("-", each.value.zone), 0, 2))
  ip_cidr_range = each.value.range
}

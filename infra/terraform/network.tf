# The network is long-lived, runs are not: a VPC per run would eat Lustre tenant networks (one per
# VPC, never given back with it) and put the PSA peering, the least reliable thing to delete, into
# every teardown. A run leases one slot: node, pod and service ranges and a control-plane /28.

locals {
  # Eight places per region, used or not, so that raising slots_per_region moves no address.
  slots = merge([
    for r, region in var.run_regions : {
      for k in range(var.slots_per_region) : "${region}-${k}" => {
        region = region
        # Of the /12: the lower half for pods, then one /16 each for nodes, services, control
        # planes and PSA.
        pods          = cidrsubnet(var.address_space, 6, r * 8 + k)                     # /18: 64 nodes
        nodes         = cidrsubnet(cidrsubnet(var.address_space, 4, 8), 7, r * 8 + k)   # /23
        services      = cidrsubnet(cidrsubnet(var.address_space, 4, 9), 6, r * 8 + k)   # /22
        control_plane = cidrsubnet(cidrsubnet(var.address_space, 4, 10), 12, r * 8 + k) # /28
        psa           = cidrsubnet(cidrsubnet(var.address_space, 4, 12), 7, r * 8 + k)  # /23
      }
    }
  ]...)

  # LUSTRUM_SLOTS: what advance_run leases and the build gets as substitutions.
  slots_json = jsonencode([
    for name, slot in local.slots : {
      name               = name
      region             = slot.region
      network            = google_compute_network.this.name
      subnetwork         = google_compute_subnetwork.slot[name].name
      pods_range         = "lustrum-${name}-pods"
      services_range     = "lustrum-${name}-services"
      control_plane_cidr = slot.control_plane
    }
  ])
}

resource "google_compute_network" "this" {
  name                    = "lustrum"
  description             = "All runs of Lustrum; see infra/terraform/network.tf"
  auto_create_subnetworks = false
  routing_mode            = "REGIONAL"
  mtu                     = 8896 # Lustre and NCCL over TCP gain from jumbo frames
  depends_on              = [google_project_service.api]
}

resource "google_compute_subnetwork" "slot" {
  for_each = local.slots

  name                     = "lustrum-${each.key}"
  network                  = google_compute_network.this.id
  region                   = each.value.region
  ip_cidr_range            = each.value.nodes
  private_ip_google_access = true

  secondary_ip_range {
    range_name    = "lustrum-${each.key}-pods"
    ip_cidr_range = each.value.pods
  }
  secondary_ip_range {
    range_name    = "lustrum-${each.key}-services"
    ip_cidr_range = each.value.services
  }
}

# Nodes have no public address; images, models and packages come through here. Addresses are
# automatic: static ones are a quota (often 8 in a new project) and cost while idle.
resource "google_compute_router" "nat" {
  for_each = toset(var.run_regions)

  name    = "lustrum-${each.value}"
  network = google_compute_network.this.id
  region  = each.value
}

resource "google_compute_router_nat" "nat" {
  for_each = toset(var.run_regions)

  name                                = "lustrum-${each.value}"
  router                              = google_compute_router.nat[each.value].name
  region                              = each.value
  nat_ip_allocate_option              = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat  = "ALL_SUBNETWORKS_ALL_IP_RANGES"
  enable_dynamic_port_allocation      = true
  enable_endpoint_independent_mapping = false # the two exclude each other
  min_ports_per_vm                    = 128
  max_ports_per_vm                    = 8192
}

# Managed Lustre lives in Google's network behind the peering. A /24 for everything is exhausted
# by the first instance; so a /23 per slot.
resource "google_compute_global_address" "psa" {
  for_each = local.slots

  name          = "lustrum-psa-${each.key}"
  network       = google_compute_network.this.id
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  address       = split("/", each.value.psa)[0]
  prefix_length = 23
}

resource "google_service_networking_connection" "psa" {
  network                 = google_compute_network.this.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [for name in sort(keys(local.slots)) : google_compute_global_address.psa[name].name]
  update_on_creation_fail = true

  # Deleting the peering fails for as long as the producer keeps its tenant network, which it does
  # after the last instance is gone. Abandoned here, it ends with the VPC (docs/deploy.md).
  deletion_policy = "ABANDON"
}

# Lustre: 988 is LNet; 6988 is what Google's own recipe opens beside it.
resource "google_compute_firewall" "lustre" {
  name          = "lustrum-lustre"
  network       = google_compute_network.this.id
  description   = "Managed Lustre servers to their clients"
  direction     = "INGRESS"
  source_ranges = [for slot in values(local.slots) : slot.psa]

  allow {
    protocol = "tcp"
    ports    = ["988", "6988"]
  }
}

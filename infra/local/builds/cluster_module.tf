# The shape of gcluster v1.95.0's modules/scheduler/gke-cluster, as far as steps/bootstrap_pool.py and the
# stand-in read it: a cluster whose first node pool names no account, and the system pool, which does.
resource "google_container_cluster" "gke_cluster" {
  name                     = local.name
  remove_default_node_pool = true
  initial_node_count       = 1

  node_config {
    shielded_instance_config {
      enable_secure_boot          = var.system_node_pool_enable_secure_boot
      enable_integrity_monitoring = true
    }
  }
}

resource "google_container_node_pool" "system_node_pools" {
  node_config {
    service_account = var.service_account_email
    machine_type    = var.system_node_pool_machine_type

    shielded_instance_config {
      enable_secure_boot          = var.system_node_pool_enable_secure_boot
      enable_integrity_monitoring = true
    }
  }
}

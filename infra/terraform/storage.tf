# Four buckets beside bootstrap's: the state of runs, the exported checkpoints, reports and logs,
# and the sources of functions and build. The build may write only the first.

locals {
  buckets = {
    state   = "${var.project}-lustrum-state"
    exports = "${var.project}-lustrum-exports"
    reports = "${var.project}-lustrum-reports"
    source  = "${var.project}-lustrum-source"
  }
}

# Terraform state and deployment folders of runs. A live object older than its run is a leak that
# the reaper needs in order to destroy it: so nothing live is ever expired.
resource "google_storage_bucket" "state" {
  name                        = local.buckets.state
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.destroy_data

  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 31 # as long as the ledger keeps a run
    }
  }

  depends_on = [google_project_service.api]
}

# Checkpoints: the product. Hierarchical namespace makes Lustre's export faster; it excludes object
# versioning and retention locks, so deleted objects are kept by soft delete.
resource "google_storage_bucket" "exports" {
  name                        = local.buckets.exports
  location                    = var.run_regions[0] # a checkpoint of 1 TB crosses no region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.destroy_data

  hierarchical_namespace {
    enabled = true
  }

  soft_delete_policy {
    retention_duration_seconds = 604800 # 7 days
  }

  depends_on = [google_project_service.api]
}

# Reports and logs of closed runs.
resource "google_storage_bucket" "reports" {
  name                        = local.buckets.reports
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.destroy_data

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age = 400 # days: a year's comparison and a month
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_storage_bucket" "source" {
  name                        = local.buckets.source
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # made from this repository, nothing is lost

  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 31
    }
  }

  depends_on = [google_project_service.api]
}

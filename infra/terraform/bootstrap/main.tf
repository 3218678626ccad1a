# What has to exist before the control plane can be planned: the services that Terraform itself
# calls, the bucket of its state, and the (still empty) secrets. A function that names a secret
# without a version cannot be deployed, so the secrets come first and get their values by hand.
# The state of this folder stays local: four resources, all of them importable.

locals {
  services = [
    "cloudresourcemanager.googleapis.com",
    "iam.googleapis.com",
    "secretmanager.googleapis.com",
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
  ]

  secrets = ["lustrum-hf-token", "lustrum-wandb-api-key"]
}

resource "google_project_service" "base" {
  for_each = toset(local.services)

  service            = each.value
  disable_on_destroy = false # others in the project may use it
}

resource "google_storage_bucket" "control_plane_state" {
  name     = "${var.project}-lustrum-tf"
  location = var.region

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      num_newer_versions         = 30
      days_since_noncurrent_time = 90
    }
  }

  labels     = { managed-by = "lustrum" }
  depends_on = [google_project_service.base]
}

resource "google_secret_manager_secret" "token" {
  for_each = toset(local.secrets)

  secret_id = each.value
  labels    = { managed-by = "lustrum" }

  replication {
    auto {}
  }

  depends_on = [google_project_service.base]
}

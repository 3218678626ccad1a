# The long-lived control plane of Lustrum: everything that exists between runs. What one run
# creates is in ../blueprint and is made and destroyed by Cloud Build, never from here.

data "google_project" "this" {
  project_id = var.project
  depends_on = [google_project_service.api]
}

locals {
  number = data.google_project.this.number

  services = [
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "firestore.googleapis.com",
    "iam.googleapis.com", # gcluster's test_apis_enabled fails without it; the recipe forgets it
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "lustre.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "servicenetworking.googleapis.com",
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
    "workflowexecutions.googleapis.com",
    "workflows.googleapis.com",
  ]
}

resource "google_project_service" "api" {
  for_each = toset(local.services)

  service            = each.value
  disable_on_destroy = false # others in the project may use it
}

# Service agents that must be there early. Most are made on first use, which is too late for a grant;
# a new project's first workflow is refused in its first minutes while Workflows' own is missing.
resource "google_project_service_identity" "agent" {
  for_each = toset(["lustre.googleapis.com", "pubsub.googleapis.com", "workflows.googleapis.com"])
  provider = google-beta

  project    = var.project
  service    = each.value
  depends_on = [google_project_service.api]
}

locals {
  lustre_agent = google_project_service_identity.agent["lustre.googleapis.com"].member
  pubsub_agent = google_project_service_identity.agent["pubsub.googleapis.com"].member
}

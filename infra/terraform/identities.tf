# One account per function, workflow and caller; each holds what docs/security.md says and no more.
# None belongs to a run: a destroy must not lose its own rights halfway (case A26).

locals {
  function_accounts = { for name in keys(local.functions) : replace(name, "_", "-") => "function ${name}" }

  accounts = merge(local.function_accounts, {
    rl-run           = "workflow rl_run"
    teardown         = "workflow teardown"
    push-requests    = "pushes lustrum-requests to start_run"
    push-events      = "pushes events, alerts and build notices to react_to_event"
    scheduler        = "calls reap_runs every 10 minutes"
    build            = "Cloud Build: deploys and destroys runs"
    function-builder = "Cloud Build: makes the images of the functions"
    node             = "nodes of the GKE clusters"
  })
}

resource "google_service_account" "account" {
  for_each = local.accounts

  account_id   = "lustrum-${each.key}"
  display_name = "Lustrum: ${each.value}"
  depends_on   = [google_project_service.api]
}

# --- functions: a role of their own each, because the predefined ones are far wider ---------------

resource "google_project_iam_custom_role" "function" {
  for_each = local.functions

  role_id     = "lustrum_${each.key}"
  title       = "Lustrum: function ${each.key}"
  permissions = distinct(each.value.rights)
}

resource "google_project_iam_member" "function" {
  for_each = local.functions

  project = var.project
  role    = google_project_iam_custom_role.function[each.key].name
  member  = google_service_account.account[replace(each.key, "_", "-")].member
}

# Every function reads or writes the run's record; this database and no other.
resource "google_project_iam_member" "ledger" {
  for_each = local.functions

  project = var.project
  role    = "roles/datastore.user"
  member  = google_service_account.account[replace(each.key, "_", "-")].member

  condition {
    title      = "the ledger only"
    expression = "resource.name == \"${google_firestore_database.ledger.id}\""
  }
}

locals {
  # topic -> functions that publish to it
  publishes = {
    notifications = ["advance_run", "close_run", "react_to_event", "reap_runs", "start_run"]
    refused       = ["react_to_event", "start_run"]
  }

  publishers = merge([
    for topic, functions in local.publishes : {
      for function in functions : "${topic}/${function}" => { topic = topic, function = function }
    }
  ]...)

  published_topics = {
    notifications = google_pubsub_topic.topic["notifications"].id
    refused       = google_pubsub_topic.dead["refused"].id
  }

  # bucket/function -> role on that bucket. Lustre itself writes the checkpoints (below); the
  # functions only list them.
  bucket_rights = {
    "exports/advance_run"        = "roles/storage.objectViewer" # looks for resume_from
    "exports/export_checkpoints" = "roles/storage.objectViewer"
    "exports/stage_data"         = "roles/storage.objectViewer"
    "reports/close_run"          = "roles/storage.objectUser"
    "reports/reap_runs"          = "roles/storage.objectUser"
    "reports/stop_ray_job"       = "roles/storage.objectUser" # the job's logs
    # the live page of the run
    "reports/advance_run"        = "roles/storage.objectUser"
    "reports/apply_ray_cluster"  = "roles/storage.objectUser"
    "reports/check_ray_job"      = "roles/storage.objectUser"
    "reports/export_checkpoints" = "roles/storage.objectUser"
    "reports/stage_data"         = "roles/storage.objectUser"
  }

  bucket_names = {
    exports = google_storage_bucket.exports.name
    reports = google_storage_bucket.reports.name
  }
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = local.publishers

  topic  = local.published_topics[each.value.topic]
  role   = "roles/pubsub.publisher"
  member = google_service_account.account[replace(each.value.function, "_", "-")].member
}

resource "google_storage_bucket_iam_member" "function" {
  for_each = local.bucket_rights

  bucket = local.bucket_names[split("/", each.key)[0]]
  role   = each.value
  member = google_service_account.account[replace(split("/", each.key)[1], "_", "-")].member
}

resource "google_secret_manager_secret_iam_member" "token" {
  for_each = var.secrets

  secret_id = local.secret_ids[each.value]
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.account["apply-ray-cluster"].member
}

# --- workflows -------------------------------------------------------------------------------------

resource "google_project_iam_custom_role" "workflow" {
  role_id     = "lustrum_workflow"
  title       = "Lustrum: workflows"
  permissions = ["cloudbuild.builds.create", "cloudbuild.builds.get", "logging.logEntries.create"]
}

resource "google_project_iam_member" "workflow" {
  for_each = toset(["rl-run", "teardown"])

  project = var.project
  role    = google_project_iam_custom_role.workflow.name
  member  = google_service_account.account[each.value].member
}

# Running a trigger is running a build as the trigger's account.
resource "google_service_account_iam_member" "workflow_acts_as_build" {
  for_each = toset(["rl-run", "teardown"])

  service_account_id = google_service_account.account["build"].name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.account[each.value].member
}

# --- nodes -----------------------------------------------------------------------------------------

resource "google_project_iam_member" "node" {
  for_each = toset([
    "roles/container.defaultNodeServiceAccount", # logs, metrics, autoscaling hints
    "roles/artifactregistry.reader",             # an image of one's own
  ])

  project = var.project
  role    = each.value
  member  = google_service_account.account["node"].member
}

# --- the builder of the functions' images ----------------------------------------------------------

resource "google_project_iam_member" "builder" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.account["function-builder"].member
}

resource "google_artifact_registry_repository_iam_member" "builder" {
  location   = var.region
  repository = google_artifact_registry_repository.functions.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.account["function-builder"].member
}

resource "google_storage_bucket_iam_member" "builder" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.account["function-builder"].member
}

# Cloud Functions copies each source into a bucket of its own before the build.
resource "google_project_iam_member" "builder_sources" {
  project = var.project
  role    = "roles/storage.objectViewer"
  member  = google_service_account.account["function-builder"].member

  condition {
    title      = "sources of functions only"
    expression = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-${local.number}-\")"
  }
}

# --- Lustre and people -----------------------------------------------------------------------------

# Managed Lustre reads and writes the bucket as its own agent; without this an export fails after the
# training it should have saved (case I11). A request's own export bucket needs the same grant.
resource "google_storage_bucket_iam_member" "lustre" {
  bucket = google_storage_bucket.exports.name
  role   = "roles/storage.objectUser"
  member = local.lustre_agent
}

resource "google_storage_bucket_iam_member" "lustre_bucket" {
  bucket = google_storage_bucket.exports.name
  role   = "roles/storage.legacyBucketReader" # storage.buckets.get, which objectUser lacks
  member = local.lustre_agent
}

resource "google_pubsub_topic_iam_member" "submitter" {
  for_each = var.submitters

  topic  = google_pubsub_topic.topic["requests"].id
  role   = "roles/pubsub.publisher"
  member = each.value
}

resource "google_project_iam_member" "submitter_ledger" {
  for_each = var.submitters

  project = var.project
  role    = "roles/datastore.viewer" # lustrum list, watch
  member  = each.value

  condition {
    title      = "the ledger only"
    expression = "resource.name == \"${google_firestore_database.ledger.id}\""
  }
}

resource "google_storage_bucket_iam_member" "submitter_reports" {
  for_each = var.submitters

  bucket = google_storage_bucket.reports.name
  role   = "roles/storage.objectViewer"
  member = each.value
}

resource "google_storage_bucket_iam_member" "submitter_exports" {
  for_each = var.submitters

  bucket = google_storage_bucket.exports.name
  role   = "roles/storage.objectUser" # lustrum start --code uploads here; checkpoints are fetched here
  member = each.value
}

resource "google_pubsub_subscription_iam_member" "submitter" {
  for_each = var.submitters

  subscription = google_pubsub_subscription.inbox.id
  role         = "roles/pubsub.subscriber"
  member       = each.value
}

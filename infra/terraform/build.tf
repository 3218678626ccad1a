# The trigger, made from ../../cloudbuild.yaml as it is.
#
# A manual trigger needs a connected repository; a Pub/Sub trigger with an inline build does not, and
# any trigger can be run by triggers:run. Nobody may publish to its topic, and a build that starts
# from a message fails at its first step, for it has no _ACTION.

locals {
  build_trigger = "projects/${var.project}/locations/${var.region}/triggers/lustrum-build"
  scripts_uri   = "gs://${google_storage_bucket.source.name}/${google_storage_bucket_object.scripts.name}"

  build         = yamldecode(file("${path.module}/../../cloudbuild.yaml"))
  build_options = try(local.build.options, {})

  # What the resource below carries over. Anything else in the file would be lost without an error
  # (the provider knows no automapSubstitutions, for one), so the precondition refuses it.
  build_keys  = ["options", "queueTtl", "serviceAccount", "steps", "substitutions", "tags", "timeout"]
  option_keys = ["diskSizeGb", "dynamicSubstitutions", "env", "logStreamingOption", "logging", "machineType", "substitutionOption"]
  step_keys = [
    "allowExitCodes", "allowFailure", "args", "dir", "entrypoint", "env", "id", "name", "script",
    "timeout", "volumes", "waitFor",
  ]
}

data "archive_file" "scripts" {
  type             = "zip"
  source_dir       = "${path.module}/../blueprint"
  output_path      = "${path.module}/build/scripts.zip"
  output_file_mode = "0755"
  excludes         = ["**/__pycache__/**", "**/*.pyc"]
}

# Named by content: a running build keeps the scripts it began with (older versions stay 31 days).
resource "google_storage_bucket_object" "scripts" {
  bucket = google_storage_bucket.source.name
  name   = "scripts/${data.archive_file.scripts.output_sha256}.zip"
  source = data.archive_file.scripts.output_path

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_pubsub_topic" "build_requests" {
  name       = "lustrum-build-requests"
  depends_on = [google_project_service.api]
}

resource "google_cloudbuild_trigger" "run" {
  name            = "lustrum-build"
  description     = "Deploys or destroys one run (cloudbuild.yaml)"
  location        = var.region
  service_account = google_service_account.account["build"].id

  pubsub_config {
    topic = google_pubsub_topic.build_requests.id
  }

  # Fixed here, so that no caller has to know them.
  substitutions = {
    for name, value in {
      _PROJECT      = var.project
      _SCRIPTS      = local.scripts_uri
      _STATE_BUCKET = google_storage_bucket.state.name
      _NODE_ACCOUNT = google_service_account.account["node"].email

      _GCLUSTER_SHA256 = var.gcluster_sha256
    } : name => value if contains(keys(try(local.build.substitutions, {})), name)
  }

  build {
    timeout       = local.build.timeout
    queue_ttl     = local.build.queueTtl
    tags          = try(local.build.tags, null)
    substitutions = try(local.build.substitutions, null)

    options {
      logging               = try(local.build_options.logging, null)
      log_streaming_option  = try(local.build_options.logStreamingOption, null)
      machine_type          = try(local.build_options.machineType, null)
      disk_size_gb          = try(local.build_options.diskSizeGb, null)
      env                   = try(local.build_options.env, null)
      substitution_option   = try(local.build_options.substitutionOption, null)
      dynamic_substitutions = try(local.build_options.dynamicSubstitutions, null)
    }

    dynamic "step" {
      for_each = local.build.steps
      content {
        id               = try(step.value.id, null)
        name             = step.value.name
        entrypoint       = try(step.value.entrypoint, null)
        args             = try(step.value.args, null)
        env              = try(step.value.env, null)
        script           = try(step.value.script, null)
        dir              = try(step.value.dir, null)
        timeout          = try(step.value.timeout, null)
        wait_for         = try(step.value.waitFor, null)
        allow_failure    = try(step.value.allowFailure, null)
        allow_exit_codes = try(step.value.allowExitCodes, null)

        dynamic "volumes" {
          for_each = try(step.value.volumes, [])
          content {
            name = volumes.value.name
            path = volumes.value.path
          }
        }
      }
    }
  }

  lifecycle {
    precondition {
      condition = (
        length(setsubtract(keys(local.build), local.build_keys)) == 0 &&
        length(setsubtract(keys(local.build_options), local.option_keys)) == 0 &&
        alltrue([for step in local.build.steps : length(setsubtract(keys(step), local.step_keys)) == 0])
      )
      error_message = "cloudbuild.yaml has a key that infra/terraform/build.tf does not carry over to the trigger: add it here first."
    }
  }

  depends_on = [google_project_service.api]
}

# --- the account that deploys and destroys: it outlives every deployment ---------------------------

resource "google_project_iam_member" "build" {
  for_each = toset([
    "roles/compute.viewer",                    # gcluster's validators: zones, machine types, reservations
    "roles/container.admin",                   # clusters, pools, and the Role and RoleBinding of our functions
    "roles/logging.logWriter",                 # its own log
    "roles/lustre.admin",                      # the instance
    "roles/serviceusage.serviceUsageConsumer", # gcluster's test_apis_enabled
  ])

  project = var.project
  role    = each.value
  member  = google_service_account.account["build"].member
}

# The builds are asked for, so that a lock is broken only when the build that held it is over, and a
# destroy cancels the deploy it overtakes. The network is used, never changed.
resource "google_project_iam_custom_role" "build" {
  role_id = "lustrum_build"
  title   = "Lustrum: deploy and destroy builds"
  permissions = [
    "cloudbuild.builds.get", "cloudbuild.builds.list", "cloudbuild.builds.update", # cancel is an update
    "compute.networks.use", "compute.subnetworks.use",
  ]
}

resource "google_project_iam_member" "build_own" {
  project = var.project
  role    = google_project_iam_custom_role.build.name
  member  = google_service_account.account["build"].member
}

# Nodes run as the node account: whoever makes a pool must be allowed to act as it.
resource "google_service_account_iam_member" "build_acts_as_node" {
  service_account_id = google_service_account.account["node"].name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.account["build"].member
}

resource "google_storage_bucket_iam_member" "build_state" {
  bucket = google_storage_bucket.state.name
  role   = "roles/storage.objectUser"
  member = google_service_account.account["build"].member
}

resource "google_storage_bucket_iam_member" "build_state_bucket" {
  bucket = google_storage_bucket.state.name
  role   = "roles/storage.legacyBucketReader" # the backend lists its prefix, the bucket is looked up
  member = google_service_account.account["build"].member
}

resource "google_storage_bucket_iam_member" "build_scripts" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.account["build"].member
}

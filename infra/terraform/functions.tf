# The functions, from the folders that `make stage` lays out in build/functions.

locals {
  # One entry per folder of functions/ (a test holds it so). Memory by what is imported; `rights` are
  # the permissions of the function's own role (identities.tf), beside the ledger.
  functions = {
    start_run = {
      memory = "512Mi"
      rights = concat(local.execute, local.relabel)
    }
    advance_run = {
      memory = "512Mi"
      rights = concat(local.execute, local.look_ahead, ["cloudbuild.builds.get", "cloudbuild.builds.list"])
    }
    apply_ray_cluster = {
      memory = "512Mi"
      rights = local.kubernetes
    }
    stage_data = {
      memory = "512Mi"
      rights = concat(local.kubernetes, local.transfer, ["lustre.instances.importData"])
    }
    submit_ray_job = {
      memory = "512Mi"
      rights = local.kubernetes
    }
    check_ray_job = {
      memory = "512Mi"
      rights = local.kubernetes
    }
    react_to_event = {
      memory = "512Mi"
      rights = ["workflows.callbacks.send"]
    }
    stop_ray_job = {
      memory = "512Mi"
      rights = concat(local.kubernetes, [
        "cloudbuild.builds.get", "cloudbuild.builds.list", "cloudbuild.builds.update", # cancel is an update
        "workflows.executions.cancel", "workflows.executions.get",
      ])
    }
    release_accelerators = {
      memory = "512Mi"
      rights = concat(local.kubernetes, [
        "compute.instances.list",
        "container.clusters.update", # the deletion of a node pool is an update of its cluster
      ])
    }
    export_checkpoints = {
      memory = "512Mi"
      rights = concat(local.kubernetes, local.transfer, ["lustre.instances.exportData", "lustre.instances.list"])
    }
    delete_ray_cluster = {
      memory = "512Mi"
      rights = local.kubernetes
    }
    take_inventory = {
      memory = "512Mi"
      rights = concat(local.look_around, local.sweep)
    }
    close_run = {
      memory = "1Gi" # draws the report's plots
      # closes only what is empty and whose workflows are over
      rights = concat(local.look_around, ["monitoring.timeSeries.list", "workflows.executions.get"])
    }
    reap_runs = {
      memory = "1Gi" # closes a run itself when nothing else could
      rights = concat(local.execute, local.look_around, local.sweep, local.relabel, local.transfer, [
        "lustre.instances.exportData", # the checkpoints of a run whose record cannot be read
        "monitoring.timeSeries.list",
      ])
    }
  }

  # The cluster is found by listing all locations, and reached through its DNS endpoint, where IAM
  # asks for `connect`. What may be done inside is the Role of ../blueprint, by the account's name.
  kubernetes = ["container.clusters.connect", "container.clusters.list"]

  # Find an execution by label, else create it.
  execute = ["workflows.executions.create", "workflows.executions.get", "workflows.executions.list"]

  # Lustre copies, the function only starts it and looks.
  transfer = ["lustre.instances.get", "lustre.operations.get", "lustre.operations.list"]

  # What a run stands on: zones, and whether Lustre may write the export bucket. Reads policies alone.
  look_ahead = [
    "compute.machineTypes.list", "lustre.locations.list",
    "resourcemanager.projects.get", "resourcemanager.projects.getIamPolicy",
    "storage.buckets.get", "storage.buckets.getIamPolicy",
  ]

  # A new expiry onto cluster and instance.
  relabel = [
    "container.clusters.list", "container.clusters.update",
    "lustre.instances.get", "lustre.instances.list", "lustre.instances.update",
  ]

  # What is left of a run, in every location.
  look_around = [
    "cloudbuild.builds.get", "cloudbuild.builds.list", "compute.instances.list",
    "container.clusters.list", "lustre.instances.list",
  ]

  # Deletion by name of what outlived its destroy; a build that still lives would only make it anew.
  sweep = ["cloudbuild.builds.update", "container.clusters.delete", "lustre.instances.delete"]

  # lustrum.wiring.settings
  environment = {
    LUSTRUM_PROJECT            = var.project
    LUSTRUM_REGION             = var.region
    LUSTRUM_DATABASE           = google_firestore_database.ledger.name
    LUSTRUM_STATE_BUCKET       = google_storage_bucket.state.name
    LUSTRUM_EXPORT_BUCKET      = google_storage_bucket.exports.name
    LUSTRUM_REPORT_BUCKET      = google_storage_bucket.reports.name
    LUSTRUM_BUILD_TRIGGER      = local.build_trigger
    LUSTRUM_SLOTS              = local.slots_json
    LUSTRUM_RDMA               = local.rdma_json
    LUSTRUM_RUNS_PER_SUBMITTER = var.runs_per_submitter
    LUSTRUM_NODE_ACCOUNT       = google_service_account.account["node"].email
    LUSTRUM_SCRIPTS            = local.scripts_uri
    LUSTRUM_PRICES             = var.prices_file == null ? "" : file(var.prices_file)

    LUSTRUM_GCLUSTER_SHA256 = var.gcluster_sha256 # goes into a run's record with the scripts
  }

  # Only apply_ray_cluster sees the tokens. bootstrap/ made the secrets.
  secret_ids = {
    LUSTRUM_HF_TOKEN      = "lustrum-hf-token"
    LUSTRUM_WANDB_API_KEY = "lustrum-wandb-api-key"
  }
}

data "archive_file" "function" {
  for_each = local.functions

  type             = "zip"
  source_dir       = "${path.module}/../../build/functions/${each.key}"
  output_path      = "${path.module}/build/${each.key}.zip"
  output_file_mode = "0644" # the same zip on every machine
  excludes         = ["**/__pycache__/**"]

  lifecycle {
    precondition {
      condition     = fileexists("${path.module}/../../build/functions/${each.key}/main.py")
      error_message = "build/functions/${each.key}/main.py is missing: run `make stage` in the root of the repository."
    }
  }
}

resource "google_storage_bucket_object" "function" {
  for_each = local.functions

  bucket = google_storage_bucket.source.name
  name   = "functions/${each.key}-${data.archive_file.function[each.key].output_sha256}.zip"
  source = data.archive_file.function[each.key].output_path
}

resource "google_artifact_registry_repository" "functions" {
  repository_id = "lustrum-functions"
  location      = var.region
  format        = "DOCKER"
  description   = "Images of the functions"

  cleanup_policies {
    id     = "keep-the-newest"
    action = "KEEP"
    most_recent_versions {
      keep_count = 2
    }
  }
  cleanup_policies {
    id     = "drop-the-rest"
    action = "DELETE"
    condition {
      older_than = "604800s"
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_cloudfunctions2_function" "function" {
  for_each = local.functions

  name     = replace(each.key, "_", "-")
  location = var.region

  build_config {
    runtime           = "python312"
    entry_point       = each.key
    docker_repository = google_artifact_registry_repository.functions.id
    service_account   = google_service_account.account["function-builder"].id

    source {
      storage_source {
        bucket = google_storage_bucket.source.name
        object = google_storage_bucket_object.function[each.key].name
      }
    }
  }

  service_config {
    available_memory                 = each.value.memory
    timeout_seconds                  = 120 # none waits longer than some seconds
    max_instance_count               = 20
    min_instance_count               = each.key == "react_to_event" && var.warm_react_to_event ? 1 : 0
    max_instance_request_concurrency = 1
    # Workflows, Scheduler and Pub/Sub come from outside the VPC; IAM is the gate (invoker.tf).
    ingress_settings               = "ALLOW_ALL"
    all_traffic_on_latest_revision = true
    service_account_email          = google_service_account.account[replace(each.key, "_", "-")].email
    environment_variables          = local.environment

    dynamic "secret_environment_variables" {
      for_each = each.key == "apply_ray_cluster" ? var.secrets : []
      content {
        key        = secret_environment_variables.value
        project_id = var.project
        secret     = local.secret_ids[secret_environment_variables.value]
        version    = "latest"
      }
    }
  }

  depends_on = [
    google_artifact_registry_repository_iam_member.builder,
    google_project_iam_member.builder,
    google_project_iam_member.builder_sources,
    google_project_iam_member.function,
    google_secret_manager_secret_iam_member.token,
    google_storage_bucket_iam_member.builder,
  ]
}

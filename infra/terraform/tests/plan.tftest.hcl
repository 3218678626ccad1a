# The whole plan against mocked providers: no project, no credentials, no cost.
# Needs `make stage` and `terraform init -backend=false`; then `terraform test`.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_resource "google_service_account" {
    defaults = {
      id     = "projects/my-project/serviceAccounts/lustrum-x@my-project.iam.gserviceaccount.com"
      name   = "projects/my-project/serviceAccounts/lustrum-x@my-project.iam.gserviceaccount.com"
      email  = "lustrum-x@my-project.iam.gserviceaccount.com"
      member = "serviceAccount:lustrum-x@my-project.iam.gserviceaccount.com"
    }
  }
  mock_resource "google_pubsub_topic" {
    defaults = { id = "projects/my-project/topics/x" }
  }
  mock_resource "google_firestore_database" {
    defaults = { id = "projects/my-project/databases/lustrum" }
  }
  mock_resource "google_compute_network" {
    defaults = { id = "projects/my-project/global/networks/lustrum" }
  }
}

mock_provider "google-beta" {
  mock_resource "google_project_service_identity" {
    defaults = { member = "serviceAccount:service-123456789012@gcp-sa-x.iam.gserviceaccount.com" }
  }
}

mock_provider "archive" {
  mock_data "archive_file" {
    defaults = {
      output_path   = "versions.tf" # any file that exists
      output_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
    }
  }
}

variables {
  project         = "my-project"
  gcluster_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
}

run "defaults" {
  command = apply

  assert {
    condition     = length(google_cloudfunctions2_function.function) == length(fileset("${path.module}/../../functions", "*/main.py"))
    error_message = "The functions are not the folders of functions/."
  }
  assert {
    condition     = google_workflows_workflow.workflow["teardown"].source_contents == file("${path.module}/../../workflows/teardown.yaml")
    error_message = "The deployed workflow is not the file."
  }
  assert {
    condition     = length(google_cloudbuild_trigger.run.build[0].step) == length(yamldecode(file("${path.module}/../../cloudbuild.yaml")).steps)
    error_message = "The trigger lost a step of cloudbuild.yaml."
  }
  assert {
    condition     = google_cloudbuild_trigger.run.substitutions["_STATE_BUCKET"] == "my-project-lustrum-state"
    error_message = "The trigger does not know the state bucket."
  }
  assert {
    condition     = [for s in jsondecode(google_cloudfunctions2_function.function["advance_run"].service_config[0].environment_variables["LUSTRUM_SLOTS"]) : s.name] == ["us-east1-0", "us-east1-1"]
    error_message = "LUSTRUM_SLOTS does not hold two slots in us-east1."
  }
  assert {
    condition     = toset(keys(jsondecode(google_cloudfunctions2_function.function["advance_run"].service_config[0].environment_variables["LUSTRUM_SLOTS"])[0])) == toset(["name", "region", "network", "subnetwork", "pods_range", "services_range", "control_plane_cidr"])
    error_message = "A slot has other fields than lustrum.wiring.settings.Slot."
  }
  assert {
    condition     = length(google_compute_network.rdma) == 0 && google_cloudfunctions2_function.function["advance_run"].service_config[0].environment_variables["LUSTRUM_RDMA"] == "{}"
    error_message = "A project that asked for no RDMA has an RDMA network."
  }
  assert {
    condition     = google_cloudfunctions2_function.function["react_to_event"].service_config[0].min_instance_count == 1 && google_cloudfunctions2_function.function["start_run"].service_config[0].min_instance_count == 0
    error_message = "Only react_to_event is kept warm."
  }
  assert {
    condition     = length(google_pubsub_topic_iam_member.job) == 0 && length(google_secret_manager_secret_iam_member.token) == 0
    error_message = "Nothing may be granted to a pool or on a secret that may not exist."
  }
  assert {
    condition     = length(google_cloud_run_v2_service_iam_member.invoker) == sum([for functions in values(local.callers) : length(functions)])
    error_message = "The invokers are not the callers."
  }
}

run "all_options" {
  command = apply

  variables {
    run_regions                   = ["us-east1", "us-central1", "europe-west4", "asia-southeast1"]
    slots_per_region              = 8
    secrets                       = ["LUSTRUM_HF_TOKEN", "LUSTRUM_WANDB_API_KEY"]
    submitters                    = ["user:me@example.com", "group:rl@example.com"]
    alert_email                   = "me@example.com"
    workload_identity_pool_exists = true
    warm_react_to_event           = false
    cron_runs = [
      { name = "nightly", cron = "0 22 * * 1-5", tz = "America/New_York", request = "{\"nodes\": 8}" },
      { name = "weekly", cron = "0 4 * * 0", request = "{}", paused = true },
    ]
  }

  assert {
    condition     = google_cloud_scheduler_job.run["nightly"].pubsub_target[0].attributes == tomap({ schedule = "nightly", cron = "0 22 * * 1-5", tz = "America/New_York" })
    error_message = "A scheduled run must say by what it was scheduled."
  }
  assert {
    condition     = base64decode(google_cloud_scheduler_job.run["nightly"].pubsub_target[0].data) == "{\"nodes\": 8}"
    error_message = "The request is not sent as it was written."
  }
  assert {
    condition     = google_cloud_scheduler_job.run["weekly"].time_zone == "Etc/UTC" && google_cloud_scheduler_job.run["weekly"].paused
    error_message = "The defaults of a cron run are lost."
  }
  assert {
    condition     = length(google_cloudfunctions2_function.function["apply_ray_cluster"].service_config[0].secret_environment_variables) == 2
    error_message = "apply_ray_cluster does not get its tokens."
  }
  assert {
    condition     = alltrue([for name, f in google_cloudfunctions2_function.function : length(f.service_config[0].secret_environment_variables) == 0 if name != "apply_ray_cluster"])
    error_message = "A token reaches a function that has no use for it."
  }
  assert {
    condition     = google_pubsub_topic_iam_member.job[0].member == "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-project.svc.id.goog/subject/ns/default/sa/lustrum-job"
    error_message = "The job's identity is misspelt."
  }
  assert {
    condition     = length(google_compute_subnetwork.slot) == 32 && length(distinct([for s in google_compute_subnetwork.slot : s.ip_cidr_range])) == 32
    error_message = "Two slots share a range."
  }
  assert {
    condition     = alltrue([for name, p in google_monitoring_alert_policy.policy : length(p.notification_channels) == (contains(["page", "stop"], p.user_labels["lustrum-action"]) ? 2 : 1)])
    error_message = "A person is told of what acts by itself, or not told of what needs them."
  }
}

run "adding_a_slot_moves_no_address" {
  command = plan

  variables {
    run_regions      = ["us-east1", "us-central1"]
    slots_per_region = 3
  }

  assert {
    condition     = google_compute_subnetwork.slot["us-central1-0"].ip_cidr_range == run.all_options.subnets["us-central1-0"]
    error_message = "An address depends on the number of slots."
  }
}

run "public_submitter_is_refused" {
  command = plan
  variables { submitters = ["allUsers"] }
  expect_failures = [var.submitters]
}

run "request_that_is_no_object_is_refused" {
  command = plan
  variables {
    cron_runs = [{ name = "x", cron = "0 0 * * *", request = "nodes: 8" }]
  }
  expect_failures = [var.cron_runs]
}

run "small_address_space_is_refused" {
  command = plan
  variables { address_space = "10.64.0.0/16" }
  expect_failures = [var.address_space]
}

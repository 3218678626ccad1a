# Who may call which function: exactly these, and nobody in public. A gen2 function is a Cloud Run
# service of the same name, and it is Cloud Run that checks.

locals {
  invokers = merge([
    for account, functions in local.callers : {
      for function in functions : "${account}/${function}" => { account = account, function = function }
    }
  ]...)

  callers = {
    rl-run = [
      "advance_run", "apply_ray_cluster", "check_ray_job", "stage_data", "submit_ray_job",
    ]
    teardown = [
      "advance_run", "close_run", "delete_ray_cluster", "export_checkpoints",
      "release_accelerators", "stop_ray_job", "take_inventory",
    ]
    push-requests = ["start_run"]
    push-events   = ["react_to_event"]
    scheduler     = ["reap_runs"]
  }
}

resource "google_cloud_run_v2_service_iam_member" "invoker" {
  for_each = local.invokers

  location = var.region
  name     = google_cloudfunctions2_function.function[each.value.function].name
  role     = "roles/run.invoker"
  member   = google_service_account.account[each.value.account].member
}

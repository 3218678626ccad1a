# The workflows, from their files unchanged: file() interpolates nothing, so that `$${...}` in them
# reaches the service as it is tested here.

locals {
  # Links by name, not by attribute: teardown may hand a run back to rl_run and the other way round.
  workflow_names = { rl_run = "rl-run", teardown = "teardown" }

  workflow_environment = {
    LUSTRUM_FUNCTIONS_URL = "https://${var.region}-${var.project}.cloudfunctions.net"
    LUSTRUM_BUILD_TRIGGER = local.build_trigger
  }
}

resource "google_workflows_workflow" "workflow" {
  for_each = local.workflow_names

  name                    = each.value
  region                  = var.region
  description             = "workflows/${each.key}.yaml"
  service_account         = google_service_account.account[each.value].id
  source_contents         = file("${path.module}/../../workflows/${each.key}.yaml")
  user_env_vars           = local.workflow_environment
  call_log_level          = "LOG_ERRORS_ONLY" # all calls would log arguments, for 45,000 steps a week
  execution_history_level = "EXECUTION_HISTORY_BASIC"

  # The default (true) makes `terraform destroy` fail after half of the rest is gone. What it would
  # protect is running executions: look at `lustrum list` before a destroy (docs/deploy.md).
  deletion_protection = false

  depends_on = [google_project_service.api, google_project_service_identity.agent]
}

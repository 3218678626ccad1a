resource "google_cloud_scheduler_job" "run" {
  for_each = { for c in var.cron_runs : c.name => c }

  name      = "lustrum-run-${each.key}"
  region    = var.region
  schedule  = each.value.cron
  time_zone = each.value.tz
  paused    = each.value.paused

  pubsub_target {
    topic_name = google_pubsub_topic.topic["requests"].id
    data       = base64encode(each.value.request)

    # Scheduler sends nothing but these: start_run makes the run's key of them and the last tick.
    attributes = {
      schedule = each.key
      cron     = each.value.cron
      tz       = each.value.tz
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_cloud_scheduler_job" "reaper" {
  name             = "lustrum-reaper"
  description      = "Finds what outlived its run"
  region           = var.region
  schedule         = "*/10 * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "120s"

  retry_config {
    retry_count          = 2 # the next tick is the better retry
    min_backoff_duration = "10s"
    max_backoff_duration = "60s"
  }

  http_target {
    uri         = google_cloudfunctions2_function.function["reap_runs"].service_config[0].uri
    http_method = "POST"
    body        = base64encode("{}")
    headers     = { "Content-Type" = "application/json" }

    oidc_token {
      service_account_email = google_service_account.account["scheduler"].email
      audience              = google_cloudfunctions2_function.function["reap_runs"].service_config[0].uri
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.invoker]
}

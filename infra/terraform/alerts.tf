# Alerts that act. A policy outlives every run, so its labels carry only the action
# (`lustrum-action`, read by react_to_event); the run is the instance_id of the series.
#
# All conditions are PromQL without metric validation: Lustre's metrics do not exist before the first
# instance, and a policy on a metric that does not exist cannot be created otherwise. All Lustre
# values are per target (OST or MDT): sums only. Latency of every one: 60 s sample + up to 120 s
# until visible + evaluation: 3 to 6 minutes.

locals {
  run_pattern = "rl-[0-9a-f]{10}"

  # Only run ids: other instances of the project are not ours to act on. The label lustrum_run is
  # what react_to_event looks for when the incident has no resource labels.
  lustre_used = <<-PROMQL
    label_replace(
      100 * (1 -
        sum by (instance_id, location) (lustre_googleapis_com:instance_available_bytes{component="ost", instance_id=~"${local.run_pattern}"})
        /
        sum by (instance_id, location) (lustre_googleapis_com:instance_capacity_bytes{component="ost", instance_id=~"${local.run_pattern}"})
      ), "lustrum_run", "$1", "instance_id", "(.*)")
  PROMQL

  # An idle file system yields no write series at all, so "no writes" is an absence: the instance
  # exists (capacity is always reported), it has written in the last six hours, and in the last 45
  # minutes it has not. The action is only a look at the job: a false alarm costs one call.
  lustre_stalled = <<-PROMQL
    label_replace(
      (sum by (instance_id, location) (lustre_googleapis_com:instance_capacity_bytes{component="ost", instance_id=~"${local.run_pattern}"}) > 0)
      and on (instance_id) (sum by (instance_id) (increase(lustre_googleapis_com:instance_write_bytes_total{instance_id=~"${local.run_pattern}"}[6h])) > 0)
      unless on (instance_id) (sum by (instance_id) (increase(lustre_googleapis_com:instance_write_bytes_total{instance_id=~"${local.run_pattern}"}[45m])) > 0),
      "lustrum_run", "$1", "instance_id", "(.*)")
  PROMQL

  policies = {
    lustre-80 = {
      title    = "Lustre 80 % full"
      action   = "prune"
      severity = "WARNING"
      query    = "${trimspace(local.lustre_used)} > 80"
      duration = "120s"
      text     = "The file system of a run is more than 80 % full. Lustrum removes old checkpoints, never the newest complete one."
    }
    lustre-95 = {
      title    = "Lustre 95 % full"
      action   = "stop"
      severity = "CRITICAL"
      query    = "${trimspace(local.lustre_used)} > 95"
      duration = "60s"
      text     = "The file system of a run is more than 95 % full: the next save would fail. Lustrum stops the run after its present save, exports and destroys it."
    }
    writes-stalled = {
      title    = "Writes to Lustre stalled"
      action   = "check"
      severity = "WARNING"
      query    = trimspace(local.lustre_stalled)
      duration = "0s"
      text     = "A run that wrote to Lustre has not for 45 minutes. Lustrum looks at the job now instead of at its next poll."
    }
    dead-letters = {
      title    = "Messages that could not be handled"
      action   = "page"
      severity = "ERROR"
      query    = "sum by (subscription_id) (pubsub_googleapis_com:subscription_num_undelivered_messages{subscription_id=~\"(lustrum-.+|cloud-builds)-dead\"}) > 0"
      duration = "300s"
      text     = "Look: gcloud pubsub subscriptions pull SUBSCRIPTION --limit=10. Then fix the cause and publish them again, or purge: gcloud pubsub subscriptions seek SUBSCRIPTION --time=now"
    }
    reaper-silent = {
      title    = "The reaper has not succeeded for 45 minutes"
      action   = "page"
      severity = "CRITICAL"
      # True from the start too; the first call comes within 10 minutes, the duration is longer.
      query    = "absent_over_time(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\", service_name=\"reap-runs\", response_code_class=\"2xx\"}[45m])"
      duration = "900s"
      text     = "Nobody looks for what outlived its run. See the log of the function reap-runs, and run `lustrum doctor`."
    }
    functions-failing = {
      title    = "A function of Lustrum keeps failing"
      action   = "notify"
      severity = "ERROR"
      query    = "sum by (service_name) (increase(run_googleapis_com:request_count{monitored_resource=\"cloud_run_revision\", service_name=~\"${join("|", [for name in keys(local.functions) : replace(name, "_", "-")])}\", response_code_class=\"5xx\"}[15m])) > 20"
      duration = "0s"
      text     = "More than 20 answers of class 5xx in 15 minutes. 503 is how a function says \"try again\"; this many means that what it needs is not there."
    }
    past-deadline = {
      title    = "A run has passed its hard deadline"
      action   = "page"
      severity = "CRITICAL"
      query    = "sum by (lustrum_run) (increase(logging_googleapis_com:user_${google_logging_metric.past_deadline.name}{monitored_resource=\"cloud_run_revision\"}[30m])) > 0"
      duration = "0s"
      text     = "Something of this run still exists after its hard deadline. The reaper starts its teardown, and 30 minutes later deletes cluster and instance itself. If this alert stays, delete them by hand: gcloud container clusters delete, gcloud lustre instances delete."
    }
  }

  people = [for channel in google_monitoring_notification_channel.email : channel.id]
}

# The reaper names each run of which something outlives its hard deadline in the line it logs.
resource "google_logging_metric" "past_deadline" {
  name   = "lustrum_past_deadline"
  filter = <<-FILTER
    resource.type="cloud_run_revision" resource.labels.service_name="reap-runs"
    jsonPayload.function="reap_runs" jsonPayload.status>=500
    jsonPayload.message=~"past its hard deadline|yet there: "
  FILTER

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    labels {
      key = "lustrum_run" # where react_to_event looks for the run
    }
  }
  label_extractors = { lustrum_run = "REGEXP_EXTRACT(jsonPayload.message, \"(${local.run_pattern})\")" }

  depends_on = [google_project_service.api]
}

resource "google_monitoring_notification_channel" "lustrum" {
  display_name = "Lustrum acts on it"
  type         = "pubsub"
  labels       = { topic = google_pubsub_topic.topic["alerts"].id }
  force_delete = true # a policy that still names it must not stop a destroy
}

# Monitoring's agent exists only after the first Pub/Sub channel: hence channel, then grant, then
# policies. Without the grant every alert is lost without an error (case H7).
resource "google_pubsub_topic_iam_member" "monitoring" {
  topic  = google_pubsub_topic.topic["alerts"].id
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:service-${local.number}@gcp-sa-monitoring-notification.iam.gserviceaccount.com"

  depends_on = [google_monitoring_notification_channel.lustrum]
}

resource "google_monitoring_notification_channel" "email" {
  count = var.alert_email == "" ? 0 : 1

  display_name = "Lustrum: people"
  type         = "email"
  labels       = { email_address = var.alert_email }
  force_delete = true

  depends_on = [google_project_service.api]
}

resource "google_monitoring_alert_policy" "policy" {
  for_each = local.policies

  display_name = "Lustrum: ${each.value.title}"
  combiner     = "OR"
  severity     = each.value.severity
  user_labels  = { lustrum-action = each.value.action }

  notification_channels = concat(
    [google_monitoring_notification_channel.lustrum.id],
    contains(["page", "stop"], each.value.action) ? local.people : [],
  )

  conditions {
    display_name = each.value.title

    condition_prometheus_query_language {
      query                     = each.value.query
      duration                  = each.value.duration
      evaluation_interval       = "60s"
      disable_metric_validation = true
    }
  }

  documentation {
    content   = each.value.text
    mime_type = "text/markdown"
    subject   = "Lustrum: ${each.value.title}"
  }

  alert_strategy {
    auto_close = "3600s" # series end with the run: silence means over
  }

  depends_on = [google_pubsub_topic_iam_member.monitoring]
}

resource "google_monitoring_dashboard" "lustrum" {
  dashboard_json = file("${path.module}/dashboard.json")
  depends_on     = [google_project_service.api]
}

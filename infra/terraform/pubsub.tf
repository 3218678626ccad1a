# Topics, and our own push subscriptions: an Eventarc trigger would keep neither our messages over a
# redeploy of the function nor a dead-letter policy of ours (facts: it has no field for one).

locals {
  topics = {
    requests      = "lustrum-requests"      # start, cancel, extend
    events        = "lustrum-events"        # from the supervisor in the Ray head
    notifications = "lustrum-notifications" # to people: rejections, closed runs
    alerts        = "lustrum-alerts"        # from Cloud Monitoring
    builds        = "cloud-builds"          # from Cloud Build; the name is Google's
  }

  # topic -> the function its messages are pushed to, and the account that pushes
  pushes = {
    requests = { function = "start_run", account = "push-requests" }
    events   = { function = "react_to_event", account = "push-events" }
    alerts   = { function = "react_to_event", account = "push-events" }
    builds   = { function = "react_to_event", account = "push-events" }
  }
}

resource "google_pubsub_topic" "topic" {
  for_each = local.topics

  name                       = each.value
  message_retention_duration = "604800s" # 7 days: a subscription can be sought back

  depends_on = [google_project_service.api]
}

resource "google_pubsub_subscription" "push" {
  for_each = local.pushes

  name                       = "${local.topics[each.key]}-push"
  topic                      = google_pubsub_topic.topic[each.key].id
  ack_deadline_seconds       = 120       # the functions' own timeout
  message_retention_duration = "604800s" # 7 days

  push_config {
    push_endpoint = google_cloudfunctions2_function.function[each.value.function].service_config[0].uri

    oidc_token {
      service_account_email = google_service_account.account[each.value.account].email
      audience              = google_cloudfunctions2_function.function[each.value.function].service_config[0].uri
    }
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead[each.key].id
    max_delivery_attempts = 20 # with the backoff above: about two and a half hours
  }

  # A quiet subscription would be deleted after 31 days, and its messages with it.
  expiration_policy {
    ttl = ""
  }

  # A push needs the right to invoke before its first message.
  depends_on = [google_cloud_run_v2_service_iam_member.invoker]
}

# What could not be handled waits here for a person; `refused` holds what a function itself set
# aside as unreadable (its sender was told).
locals {
  dead = merge({ for key in keys(local.pushes) : key => "${local.topics[key]}-dead" }, {
    refused = "lustrum-dead-letters"
  })
}

resource "google_pubsub_topic" "dead" {
  for_each = local.dead

  name       = each.value
  depends_on = [google_project_service.api]
}

resource "google_pubsub_subscription" "dead" {
  for_each = local.dead

  name                       = each.value
  topic                      = google_pubsub_topic.dead[each.key].id
  message_retention_duration = "2678400s" # 31 days, the most there is

  expiration_policy {
    ttl = "" # nobody pulls it, so it would vanish with what it holds
  }
}

# Pub/Sub itself moves dead letters, and needs both rights to do so.
resource "google_pubsub_topic_iam_member" "dead_publisher" {
  for_each = local.pushes

  topic  = google_pubsub_topic.dead[each.key].id
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "dead_subscriber" {
  for_each = local.pushes

  subscription = google_pubsub_subscription.push[each.key].id
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}

# Pub/Sub signs the OIDC token of a push as the push account.
resource "google_service_account_iam_member" "push_token" {
  for_each = toset([for push in local.pushes : push.account])

  service_account_id = google_service_account.account[each.value].name
  role               = "roles/iam.serviceAccountOpenIdTokenCreator"
  member             = local.pubsub_agent
}

# Notifications would be gone if nobody listened when they were sent.
resource "google_pubsub_subscription" "inbox" {
  name                       = "lustrum-notifications-inbox"
  topic                      = google_pubsub_topic.topic["notifications"].id
  message_retention_duration = "2678400s" # 31 days

  expiration_policy {
    ttl = ""
  }
}

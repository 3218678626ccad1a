# What the training job itself may do, as the Kubernetes account lustrum-job of any cluster of this
# project: send its events, and read code and earlier checkpoints. No Google account, no key.
#
# IAM accepts members of PROJECT.svc.id.goog only once the pool exists, and GKE makes the pool with
# the project's first cluster that uses Workload Identity. Without this grant a run works: progress
# is read from the log instead of from events, and only a request's own `code` cannot be fetched.

locals {
  job = "principal://iam.googleapis.com/projects/${local.number}/locations/global/workloadIdentityPools/${var.project}.svc.id.goog/subject/ns/default/sa/lustrum-job"
}

resource "google_pubsub_topic_iam_member" "job" {
  count = var.workload_identity_pool_exists ? 1 : 0

  topic  = google_pubsub_topic.topic["events"].id
  role   = "roles/pubsub.publisher"
  member = local.job
}

resource "google_storage_bucket_iam_member" "job" {
  count = var.workload_identity_pool_exists ? 1 : 0

  bucket = google_storage_bucket.exports.name
  role   = "roles/storage.objectViewer"
  member = local.job
}

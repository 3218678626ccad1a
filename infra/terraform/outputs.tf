output "next" {
  description = "What to do now."
  value       = <<-EOT
    1. lustrum doctor --project ${var.project} --region ${var.region}
         APIs, quotas, zones, identities and secrets, with the fix beside what is missing.
    2. lustrum plan examples/requests/tiny.json          costs nothing: names, limits, worst-case price
    3. lustrum start examples/requests/tiny.json --project ${var.project}
    4. lustrum watch RUN                                  and: lustrum dashboard RUN
    ${var.workload_identity_pool_exists ? "" : "5. After the first cluster exists: workload_identity_pool_exists = true, terraform apply\n     (until then the job sends no events, and progress is read from its log)"}
  EOT
}

output "request_topic" {
  description = "Publish a request here."
  value       = google_pubsub_topic.topic["requests"].id
}

output "buckets" {
  description = "State of runs, exported checkpoints, reports and logs, sources."
  value       = local.buckets
}

output "subnets" {
  description = "Network slots and the range of their nodes: as many runs at once."
  value       = { for name, slot in local.slots : name => slot.nodes }
}

output "dashboard" {
  description = "Lustre throughput and capacity, functions, dead letters."
  value       = "https://console.cloud.google.com/monitoring/dashboards?project=${var.project}"
}

output "function_accounts" {
  description = "Accounts of the functions; the blueprint binds its Role to those that talk to Kubernetes."
  value       = { for name in keys(local.functions) : name => google_service_account.account[replace(name, "_", "-")].email }
}

output "lustre_agent" {
  description = "Grant this member storage.objectUser on any other bucket a request exports to."
  value       = local.lustre_agent
}

output "environment" {
  description = "Environment of the `lustrum` command on your machine: terraform output -json environment"
  value       = local.environment
}

output "next" {
  description = "What to do now."
  value       = <<-EOT
    1. eval "$(terraform -chdir=infra/terraform output -raw shell)"   tells `lustrum` where all this is
    2. lustrum doctor          services, quotas, zones, identities and secrets, the fix beside what is missing
    3. echo '{}' > first.json; lustrum plan first.json      costs nothing: names, limits, worst-case price
    4. lustrum start first.json; lustrum watch RUN          the original recipe: 8 Spot nodes
    ${var.workload_identity_pool_exists ? "" : "5. Once the first cluster exists: workload_identity_pool_exists = true, terraform apply\n       (until then progress is read from the job's log instead of its events)"}
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

output "shell" {
  description = "Environment of the `lustrum` command on your machine."
  value       = join("\n", [for name, value in local.environment : "export ${name}='${value}'"])
}

output "environment" {
  description = "The same as JSON (terraform output -json environment): a file for `lustrum --env`."
  value       = local.environment
}

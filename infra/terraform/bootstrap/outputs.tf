output "next" {
  description = "What to do now."
  value       = <<-EOT
    1. Give the secrets their values (skip those you do not use):
         printf %s "$HF_TOKEN"      | gcloud secrets versions add lustrum-hf-token      --data-file=- --project=${var.project}
         printf %s "$WANDB_API_KEY" | gcloud secrets versions add lustrum-wandb-api-key --data-file=- --project=${var.project}
    2. cd .. && cp terraform.tfvars.example terraform.tfvars, and edit it.
    3. make stage   (in the root of the repository: lays out build/functions)
    4. terraform init -backend-config=bucket=${google_storage_bucket.control_plane_state.name}
    5. terraform apply
  EOT
}

output "state_bucket" {
  description = "Bucket of the control plane's Terraform state."
  value       = google_storage_bucket.control_plane_state.name
}

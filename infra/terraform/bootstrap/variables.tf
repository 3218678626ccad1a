variable "project" {
  description = "Project id. It must exist and have billing."
  type        = string
}

variable "region" {
  description = "Region of the control plane; the same value as in ../terraform.tfvars."
  type        = string
  default     = "us-central1"
}

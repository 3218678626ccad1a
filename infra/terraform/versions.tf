terraform {
  required_version = ">= 1.9" # a variable's validation may look at another variable

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 7.0"
    }
    google-beta = { # google_project_service_identity exists only here
      source  = "hashicorp/google-beta"
      version = "~> 7.0"
    }
    archive = {
      source  = "hashicorp/archive"
      version = "~> 2.4"
    }
  }

  # The bucket is made by bootstrap/: terraform init -backend-config=bucket=PROJECT-lustrum-tf
  backend "gcs" {
    prefix = "control-plane"
  }
}

provider "google" {
  project = var.project
  region  = var.region

  default_labels = { managed-by = "lustrum" }
}

provider "google-beta" {
  project = var.project
  region  = var.region
}

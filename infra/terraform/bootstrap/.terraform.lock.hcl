# This file is maintained automatically by "terraform init".
# Manual edits may be lost in future updates.

provider "registry.terraform.io/hashicorp/google" {
  version     = "7.45.0"
  constraints = "~> 7.0"
  hashes = [
    "h1:bs6qio06+B3PiGgZpdEuVUcrSWpzi6qhtTH6Mbi6EOM=",
  ]
}

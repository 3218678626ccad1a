variable "project" {
  description = "Project id. It must exist and have billing."
  type        = string

  validation {
    # A domain-scoped id (example.com:name) has another functions URL and bucket name.
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be a plain project id: 6 to 30 lower-case letters, digits and hyphens."
  }
}

variable "region" {
  description = "Region of the control plane: functions, workflows, builds, ledger. Many new projects may build in us-central1, us-west2, europe-west1, asia-east1, australia-southeast1 and southamerica-east1 alone."
  type        = string
  default     = "us-central1"
}

variable "run_regions" {
  description = "Regions whose zones may hold runs. Append only: the position of a region decides its addresses."
  type        = list(string)
  default     = ["us-east1"]

  validation {
    condition     = length(var.run_regions) >= 1 && length(var.run_regions) <= 4 && length(distinct(var.run_regions)) == length(var.run_regions)
    error_message = "run_regions takes 1 to 4 different regions."
  }
}

variable "slots_per_region" {
  description = "Network slots in each region: the number of runs that may exist there at once."
  type        = number
  default     = 2

  validation {
    condition     = var.slots_per_region >= 1 && var.slots_per_region <= 8 && floor(var.slots_per_region) == var.slots_per_region
    error_message = "slots_per_region takes 1 to 8."
  }
}

variable "runs_per_submitter" {
  description = "Runs of one submitter (the request's field) that may hold a network slot at once; 0: no limit."
  type        = number
  default     = 0

  validation {
    condition     = var.runs_per_submitter >= 0 && floor(var.runs_per_submitter) == var.runs_per_submitter
    error_message = "runs_per_submitter takes a whole number, 0 or more."
  }
}

variable "rdma_zones" {
  description = "Zones whose GPU nodes talk over RDMA. Append only: the position of a zone decides its addresses."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.rdma_zones) <= 16 && length(distinct(var.rdma_zones)) == length(var.rdma_zones)
    error_message = "rdma_zones takes at most 16 different zones."
  }
  validation {
    condition     = alltrue([for zone in var.rdma_zones : can(regex("^[a-z]+-[a-z]+[0-9]{1,2}-[a-z]$", zone)) && contains(var.run_regions, join("-", slice(split("-", zone), 0, 2)))])
    error_message = "rdma_zones takes zones of run_regions, for example us-east1-b."
  }
}

variable "address_space" {
  description = "A /12 of private addresses that nothing peered with this network uses."
  type        = string
  default     = "10.64.0.0/12"

  validation {
    condition     = can(cidrnetmask(var.address_space)) && endswith(var.address_space, "/12")
    error_message = "address_space must be an IPv4 range with prefix /12, for example 10.64.0.0/12."
  }
}

variable "secrets" {
  description = "Tokens that have a value in Secret Manager (bootstrap made the secrets): any of LUSTRUM_HF_TOKEN and LUSTRUM_WANDB_API_KEY."
  type        = set(string)
  default     = []

  validation {
    condition     = length(setsubtract(var.secrets, ["LUSTRUM_HF_TOKEN", "LUSTRUM_WANDB_API_KEY"])) == 0
    error_message = "secrets may hold LUSTRUM_HF_TOKEN and LUSTRUM_WANDB_API_KEY, nothing else."
  }
}

variable "submitters" {
  description = "IAM members who may start, cancel and extend runs, for example [\"group:rl@example.com\"]."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for m in var.submitters : can(regex("^(user|group|serviceAccount|principal|principalSet):", m))])
    error_message = "A submitter is user:, group:, serviceAccount:, principal: or principalSet:; the public (allUsers, allAuthenticatedUsers) cannot start runs."
  }
}

variable "alert_email" {
  description = "Address told of alerts that need a person (dead letters, failed reaper, run past its deadline). Empty: only the topic lustrum-alerts."
  type        = string
  default     = ""
}

variable "cron_runs" {
  # The request is JSON text: as an object, all requests of the list would need the same keys.
  description = "Runs started by Cloud Scheduler: a cron line, a time zone and a request (JSON text as in examples/requests)."
  type = list(object({
    name    = string
    cron    = string
    tz      = optional(string, "Etc/UTC")
    request = string
    paused  = optional(bool, false)
  }))
  default = []

  validation {
    condition     = alltrue([for c in var.cron_runs : can(keys(jsondecode(c.request)))])
    error_message = "The request of a cron run must be a JSON object, for example {\"nodes\": 8}."
  }

  validation {
    condition     = alltrue([for c in var.cron_runs : can(regex("^[a-z][a-z0-9-]{0,39}$", c.name))])
    error_message = "The name of a cron run: up to 40 lower-case letters, digits and hyphens, a letter first."
  }
  validation {
    condition     = length(distinct([for c in var.cron_runs : c.name])) == length(var.cron_runs)
    error_message = "Two cron runs have the same name."
  }
}

variable "warm_react_to_event" {
  description = "Keep one instance of react_to_event warm, so that a finished job starts its teardown within a second. About 5.50 dollars a month (docs/deploy.md)."
  type        = bool
  default     = true
}

variable "workload_identity_pool_exists" {
  description = "True once the project has had a GKE cluster with Workload Identity: only then does IAM accept members of PROJECT.svc.id.goog."
  type        = bool
  default     = false
}

variable "destroy_data" {
  description = "Let terraform destroy delete exported checkpoints, reports and the state of runs too."
  type        = bool
  default     = false
}

variable "gcluster_sha256" {
  description = "SHA-256 of gcluster_bundle_linux_amd64.zip of the pinned Cluster Toolkit release (infra/blueprint/steps/versions.sh), as its release page shows it"
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.gcluster_sha256))
    error_message = "gcluster_sha256 must be 64 hex digits: open the release page of the version in infra/blueprint/steps/versions.sh and copy the digest shown beside gcluster_bundle_linux_amd64.zip."
  }
}

variable "prices_file" {
  description = "A dated price list of your own (YAML), laid over shared/lustrum/core/prices.yaml: committed-use and contract prices. See docs/money.md."
  type        = string
  default     = null
}

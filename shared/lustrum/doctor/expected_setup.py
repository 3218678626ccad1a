"""What infra/terraform makes, as tables: services, callers of functions, roles of accounts.

`lustrum doctor` compares a project with them; tests/terraform compares the files with them.
"""

from __future__ import annotations

from collections.abc import Mapping

SERVICES = frozenset(
    f"{name}.googleapis.com"
    for name in (
        "artifactregistry",
        "cloudbuild",
        "cloudfunctions",
        "cloudquotas",
        "cloudresourcemanager",
        "cloudscheduler",
        "compute",
        "container",
        "firestore",
        "iam",
        "iamcredentials",
        "logging",
        "lustre",
        "monitoring",
        "pubsub",
        "run",
        "secretmanager",
        "servicenetworking",
        "serviceusage",
        "storage",
        "workflowexecutions",
        "workflows",
    )
)
# function -> the accounts (lustrum-...) that may call it, and nobody else
INVOKERS: Mapping[str, frozenset[str]] = {
    "advance_run": frozenset({"rl-run", "teardown"}),
    "apply_ray_cluster": frozenset({"rl-run"}),
    "check_ray_job": frozenset({"rl-run"}),
    "close_run": frozenset({"teardown"}),
    "delete_ray_cluster": frozenset({"teardown"}),
    "export_checkpoints": frozenset({"teardown"}),
    "react_to_event": frozenset({"push-events"}),
    "reap_runs": frozenset({"scheduler"}),
    "release_accelerators": frozenset({"teardown"}),
    "stage_data": frozenset({"rl-run"}),
    "start_run": frozenset({"push-requests"}),
    "stop_ray_job": frozenset({"teardown"}),
    "submit_ray_job": frozenset({"rl-run"}),
    "take_inventory": frozenset({"teardown"}),
}
# account -> roles on the project; {project} is filled in
ROLES: Mapping[str, frozenset[str]] = {
    **{
        name.replace("_", "-"): frozenset(
            {f"projects/{{project}}/roles/lustrum_{name}", "roles/datastore.user"}
        )
        for name in INVOKERS
    },
    "rl-run": frozenset({"projects/{project}/roles/lustrum_workflow"}),
    "teardown": frozenset({"projects/{project}/roles/lustrum_workflow"}),
    "build": frozenset(
        {
            "projects/{project}/roles/lustrum_build",
            "roles/compute.viewer",
            "roles/container.admin",
            "roles/logging.logWriter",
            "roles/lustre.admin",
            "roles/serviceusage.serviceUsageConsumer",
        }
    ),
    "node": frozenset(
        {"roles/artifactregistry.reader", "roles/container.defaultNodeServiceAccount"}
    ),
    "function-builder": frozenset({"roles/logging.logWriter", "roles/storage.objectViewer"}),
}
SECRETS = {
    "lustrum-hf-token": "gated models cannot be fetched",
    "lustrum-wandb-api-key": "W&B stays off",
}
# Roles with which Managed Lustre can write a bucket.
LUSTRE_WRITERS = frozenset(
    {"roles/storage.objectUser", "roles/storage.objectAdmin", "roles/storage.admin"}
)
WORKFLOWS = ("rl-run", "teardown")
NETWORK, PEERING = "lustrum", "servicenetworking-googleapis-com"
# What one run takes of a region beside its accelerators: metric -> (amount, what for). The system
# pool is one machine of the blueprint; A4's own CPUs have no quota of this kind.
REGION_QUOTAS: Mapping[str, tuple[float, str]] = {
    "N2D_CPUS": (16, "for the system pool"),
    "SSD_TOTAL_GB": (300, "for the system pool's disk"),
    # NAT takes its addresses as it needs them; nothing reserves a static one
    "IN_USE_ADDRESSES": (1, "for NAT (no static address is needed)"),
}

# The same for each accelerator node, whose boot disk is Hyperdisk Balanced of the blueprint's
# size. What a disk takes of the last two by default is Google's to say: 3,000 IOPS and 140 MB/s
# at least.
NODE_QUOTAS: Mapping[str, tuple[float, str]] = {
    "HDB_TOTAL_GB": (60, "for the nodes' boot disks"),
}
NODE_QUOTAS_TO_LOOK_AT: Mapping[str, tuple[float, str]] = {
    "HDB_TOTAL_IOPS": (3_000, "for the nodes' boot disks"),
    "HDB_TOTAL_THROUGHPUT": (140, "for the nodes' boot disks"),
}
# account -> accounts that must hold roles/iam.serviceAccountUser on it: who makes a node pool must
# be allowed to act as the pool's account, who runs a trigger as the build's.
ACTS_AS: Mapping[str, frozenset[str]] = {
    "node": frozenset({"build"}),
    "build": frozenset({"rl-run", "teardown"}),
}


def lustre_agent(number: str) -> str:
    """Return the member that Managed Lustre of a project (its number) reads and writes as."""
    return f"serviceAccount:service-{number}@gcp-sa-lustre.iam.gserviceaccount.com"


def lustre_grant(bucket: str, agent: str) -> str:
    """Return the command that lets Managed Lustre's agent write a bucket."""
    return (
        f"gcloud storage buckets add-iam-policy-binding gs://{bucket} --member={agent} "
        "--role=roles/storage.objectUser"
    )


def zone_lacks(zone: str, offers: Mapping[str, set[str]]) -> str:
    """Say what of ``offers`` (thing -> its zones) a zone does not offer, "" if nothing."""
    lacks = [what for what, zones in offers.items() if zone not in zones]
    return f"does not offer {' and '.join(lacks)}" if lacks else ""

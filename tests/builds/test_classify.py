"""Error texts seen in the field, and the class each belongs to (cases D1, I2, I4, A19, A24)."""

from __future__ import annotations

import pytest
from lustrum.core.failures import Failure

from tests.builds.paths import load

classify = load("classify")

TEXTS = [
    ("ZONE_RESOURCE_POOL_EXHAUSTED", "STOCKOUT"),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "STOCKOUT"),
    ("GCE_STOCKOUT", "STOCKOUT"),
    ("INSUFFICIENT_CAPACITY", "STOCKOUT"),
    ("reason: resource_availability", "STOCKOUT"),
    ("Not all instances running in IGM after 35m11s. Current errors: [GCE_STOCKOUT]", "STOCKOUT"),
    ("Not all instances running in IGM after 35m11s. Expected 8, running 7", "STOCKOUT"),
    (
        "Not all instances running in IGM after 9s. "
        "Current errors: [QUOTA_EXCEEDED]: SSD_TOTAL_GB",
        "QUOTA",
    ),
    ("A a4-highgpu-8g VM instance is currently unavailable in the us-east1-b zone", "STOCKOUT"),
    ("The zone does not have enough resources available to fulfill the request", "STOCKOUT"),
    ("QUOTA_EXCEEDED", "QUOTA"),
    ("Quota 'PREEMPTIBLE_NVIDIA_B200_GPUS' exceeded. Limit: 0.0 in region us-east1", "QUOTA"),
    ("googleapi: Error 403: Quota exceeded for quota metric 'Write requests'", "INFRA_TRANSIENT"),
    ("RESOURCE_EXHAUSTED: Quota limit 'CapacityPerZone' has been exceeded", "QUOTA"),
    ("mount.lustre: mount 10.1.2.3@tcp:/lustrefs failed: Is the MGS running?", "LUSTRE_NETWORK"),
    ("Error 400: capacity_gib must be a multiple of 18000", "LUSTRE_CONFIG"),
    ("googleapi: Error 403: Required 'container.clusters.create' permission", "ACCESS"),
    ("PERMISSION_DENIED: Permission 'lustre.instances.create' denied", "ACCESS"),
    ('The user does not have access to service account "default"', "ACCESS"),
    ("could not find default credentials", "ACCESS"),
    ("googleapi: Error 401: Unauthorized", "ACCESS"),
    (
        "default/lustre-pvc failed to run apply: Unauthorized\n\n  with "
        "module.lustre-pv.kubectl_manifest.pvc[0],",
        "INFRA_TRANSIENT",
    ),
    ("IPs exhausted in the allocated range of the peering", "CONFIG"),
    ("googleapi: Error 400: Invalid value for field", "CONFIG"),
    ('deployment variable "reservation" was not set', "CONFIG"),
    ("Spot consumption option only works with reservation_affinity", "CONFIG"),
    (
        "The subnetwork that the lustre instance is hosted on must have private service access.",
        "CONFIG",
    ),
    ("Custom role 'gke.gcsfuse.profileUser' not found", "CONFIG"),
    ("Lustre API has not been used in project 12 before or it is disabled", "CONFIG"),
    (
        "Cluster is running incompatible operation operation-1. FAILED_PRECONDITION",
        "INFRA_TRANSIENT",
    ),
    ("Error 400: Operation operation-17 is currently in progress", "INFRA_TRANSIENT"),
    (
        "Failed to delete connection; Producer services are still using this connection",
        "INFRA_TRANSIENT",
    ),
    ("Error acquiring the state lock", "INFRA_TRANSIENT"),
    (
        "timeout while waiting for state to become 'done: true' (last state: 'done: false')",
        "INFRA_TRANSIENT",
    ),
    (
        "Kubernetes cluster unreachable: invalid configuration: "
        "no configuration has been provided",
        "INFRA_TRANSIENT",
    ),
    ("dial tcp 34.1.2.3:443: i/o timeout", "INFRA_TRANSIENT"),
    (
        "googleapi: Error 503: The service is currently unavailable., backendError",
        "INFRA_TRANSIENT",
    ),
    ("Failed to query available provider packages", "INFRA_TRANSIENT"),
    ("Error 429: Too many requests", "INFRA_TRANSIENT"),
    (
        "RATE_LIMIT_EXCEEDED: Quota exceeded for quota metric 'Mutate' of service 'x'",
        "INFRA_TRANSIENT",
    ),
    (
        "Error 400: The resource 'projects/p/regions/r/subnetworks/s' is not ready, "
        "resourceNotReady",
        "INFRA_TRANSIENT",
    ),
    ("Error 409: Cluster is currently being updated", "INFRA_TRANSIENT"),
    ('admission webhook "gke.x" denied the request: Forbidden', "CONFIG"),
    ("Error 412: Constraint constraints/gcp.resourceLocations violated for projects/1", "CONFIG"),
    ("Error 403: Cloud Build API has not been used in project 1 before", "CONFIG"),
    ("Request cancelled. The plugin crashed! panic: runtime error", "BUILD_ERROR"),
    ("Unsupported Terraform Core version", "BUILD_ERROR"),
    (
        "the cluster module cannot be patched: the bootstrap pool's node_config occurs 0 times",
        "BUILD_ERROR",
    ),
    ("sha256sum: WARNING: 1 computed checksum did NOT match", "BUILD_ERROR"),
    ("The unexpected happened", "UNKNOWN"),
]

LOG = """\
2026-12-01T10:00:00Z: Creating modules/internal/gpu-definition ...
module.cluster.google_container_cluster.gke_cluster: Still creating... [10m0s elapsed]
╷
│ Error: Error waiting for creating GKE NodePool: {text}
│
│   with module.a4-pool.google_container_node_pool.node_pool[0],
│   on ../_modules/embedded/modules/compute/gke-node-pool/main.tf line 90
╵
2026-12-01T10:30:00Z: Error: exit status 1
"""


class TestClassify:
    @pytest.mark.parametrize(("text", "expected"), TEXTS)
    def test_classify_an_error_text(self, text: str, expected: str) -> None:
        assert classify.classify(f"Error: {text}")[0] == expected

    @pytest.mark.parametrize(("text", "expected"), TEXTS)
    def test_classify_a_whole_log(self, text: str, expected: str) -> None:
        name, message = classify.classify(LOG.format(text=text))
        assert name == expected
        assert text[:30] in message
        assert "│" not in message

    def test_classify_reads_no_class_out_of_progress(self) -> None:
        assert classify.classify("Creating quota exceeded-test\nError: boom")[0] == "UNKNOWN"

    def test_classify_an_empty_log(self) -> None:
        assert classify.classify("") == ("UNKNOWN", "no error text")

    def test_every_class_is_one_of_the_design(self) -> None:
        assert {name for name, _ in classify.TABLE} <= set(Failure.__members__)

    def test_message_is_short(self) -> None:
        assert len(classify.classify("Error: " + "x" * 9000)[1]) <= 500

"""Messages as the products write them, one line each, and the class each belongs to.

Sources: public issues of NeMo-RL, Ray, vLLM, transformers, Terraform's Google provider and GKE.
"""

from __future__ import annotations

import pytest
from lustrum.core.failures import classify_text
from lustrum.head.last_error import last_error

from tests.builds.paths import load

classify = load("classify").classify

BUILDS = [
    (
        "STOCKOUT",
        "Error: Error waiting for creating GKE NodePool: Google Compute Engine: The zone "
        "'projects/p/zones/us-east1-b' does not have enough resources available to fulfill the "
        "request.",
    ),
    ("STOCKOUT", "Error: googleapi: Error 400: Reservation 'r' has not enough capacity"),
    (
        "QUOTA",
        "Error: Not all instances running in IGM after 32s. Expected 8, running 0. Current "
        "errors: [GCE_QUOTA_EXCEEDED]: Instance 'gke-x' creation failed: Quota "
        "'PREEMPTIBLE_NVIDIA_B200_GPUS' exceeded.  Limit: 0.0 in region us-east1.",
    ),
    (
        "QUOTA",
        "Error: googleapi: Error 429: Quota limit 'ProvisionedCapacityGibPerProject' has been "
        "exceeded. Limit: 36000 in region us-east1.",
    ),
    ("CONFIG", 'Error: googleapi: Error 400: Master version "1.35." is unsupported., badRequest'),
    (
        "CONFIG",
        "Error: googleapi: Error 403: This API method requires billing to be enabled. Please "
        "enable billing on project #1, forbidden",
    ),
    (
        "INFRA_TRANSIENT",
        "Error: Failed to install provider\nError while installing hashicorp/google v6.1.0: could "
        "not query provider registry: failed to retrieve checksums: 502 Bad Gateway",
    ),
    (
        "INFRA_TRANSIENT",
        "Error: googleapi: Error 409: Cluster is running incompatible operation operation-1, "
        "failedPrecondition",
    ),
    ("INFRA_TRANSIENT", 'Error: Get "https://34.1.2.3/version": net/http: TLS handshake timeout'),
    ("ACCESS", "Error: googleapi: Error 403: The caller does not have permission, forbidden"),
]
LOGS = [
    (
        "USER_OOM",
        True,
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.",
    ),
    (
        "USER_OOM",
        False,
        "ValueError: Free memory on device (11.2/79.1 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 71.2 GiB).",
    ),
    (
        "CONFIG",
        False,
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens "
        "that can be stored in KV cache (65536).",
    ),
    (
        "CONFIG",
        False,
        "OSError: Qwen/Qwen9 is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
    ),
    ("ACCESS", False, "OSError: You are trying to access a gated repo."),
    (
        "INFRA_TRANSIENT",
        False,
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', "
        "port=443): Max retries exceeded with url: /api/models/x",
    ),
    (
        "NODE_LOST",
        True,
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "The actor is dead because its node has died. Node Id: abc",
    ),
    ("NODE_LOST", True, "pynvml.NVMLError_GpuIsLost: GPU is lost"),
    (None, True, "ValueError: too many values to unpack (expected 2)"),
    (None, True, "OSError: [Errno 28] No space left on device: '/tmp/ray/session_1/x'"),
    # The same words once steps were trained: nothing of the set-up is to blame.
    (None, True, "ValueError: batch 7 must be divisible by 2"),
]
EVENTS = [
    ("STOCKOUT", "FailedScaleUp Node scale up in zones us-east1-b failed: GCE out of resources."),
    ("QUOTA", 'FailedCreate pods "x" is forbidden: exceeded quota: compute, requested: cpu=100'),
    ("INFRA_TRANSIENT", "FailedScaleUp Node scale up in zones us-east1-b failed: Internal error."),
    ("CONFIG", "FailedScaleUp Node scale up in zones us-east1-b failed: GCE IP space exhausted."),
    ("CONFIG", 'FailedCreate pods "x" is forbidden: violates PodSecurity "restricted:latest"'),
    (
        "IMAGE_ERROR",
        'Failed Failed to pull image "nvcr.io/x:1": rpc error: code = NotFound desc = failed to '
        "pull and unpack image: nvcr.io/x:1: not found",
    ),
    (
        "INFRA_TRANSIENT",
        "FailedCreatePodSandBox Failed to create pod sandbox: plugin type=cilium-cni failed: dial "
        "unix cilium.sock: connection refused",
    ),
    (
        "LUSTRE_NETWORK",
        'FailedMount MountVolume.MountDevice failed for volume "pv": mount.lustre: mount failed: '
        "Input/output error Is the MGS running?",
    ),
]


class TestMessages:
    @pytest.mark.parametrize(("failure", "text"), BUILDS)
    def test_of_a_build(self, failure: str, text: str) -> None:
        assert classify(text)[0] == failure

    @pytest.mark.parametrize(("failure", "began", "text"), LOGS)
    def test_of_a_training(self, failure: str | None, began: bool, text: str) -> None:
        assert last_error(text.splitlines(), began=began).failure == failure

    @pytest.mark.parametrize(("failure", "text"), EVENTS)
    def test_of_kubernetes(self, failure: str, text: str) -> None:
        assert classify_text(text) == failure

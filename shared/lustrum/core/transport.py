"""How the GPUs of several nodes talk: RDMA over a node's eight NICs, or TCP over its first.

RDMA needs a network of its own in the run's zone (one VPC with a RoCE profile and a subnet for
each NIC, `infra/terraform`), the node pool's attachment to it (`infra/blueprint`), annotations on
the worker pods, Google's NCCL plugin gIB in them, and NCCL's settings in the environment of the
Ray job: NeMo-RL copies the environment of its driver, on the head, into each of its actors, so
what only a worker's pod sets can be lost. Pure.

Sources: cluster-toolkit v1.95.0, examples/gke-a4; Google's NeMo-RL-on-GKE sample; the gIB script
set_nccl_env.sh; NeMo-RL v0.4.0, distributed/worker_groups.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

RDMA, TCP, AUTO = "rdma", "tcp", "auto"
NICS: Mapping[str, int] = {"a4-highgpu-8g": 8}  # machine -> RDMA NICs, one for each GPU
FIRST_NIC = 2  # eth0 is the pod's network, eth1 a second one of the host, which we do not attach

GIB_IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib"
GIB_FOLDER = "/usr/local/gib"
# The plugin's own libnccl and libnccl-net must come before the image's (v0.7.0 puts another net
# plugin first); Ray fills in what the image set on the head.
_LIBRARIES = f"{GIB_FOLDER}/lib64:/usr/local/nvidia/lib64:${{LD_LIBRARY_PATH}}"
_ENVIRONMENT = {
    "NCCL_NET": "gIB",  # NCCL ends when it is absent: TCP is never taken instead
    "NCCL_CROSS_NIC": "0",
    "NCCL_NET_GDR_LEVEL": "PIX",
    "NCCL_P2P_NET_CHUNKSIZE": "131072",
    "NCCL_P2P_PCI_CHUNKSIZE": "131072",
    "NCCL_P2P_NVL_CHUNKSIZE": "524288",
    "NCCL_NVLS_CHUNKSIZE": "524288",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_ADAPTIVE_ROUTING": "1",
    "NCCL_IB_QPS_PER_CONNECTION": "4",
    "NCCL_IB_TC": "52",
    "NCCL_IB_FIFO_TC": "84",
    "NCCL_TUNER_CONFIG_PATH": f"{GIB_FOLDER}/configs/tuner_config_a4.txtpb",
    "TP_SOCKET_IFNAME": "eth0",
    "LD_LIBRARY_PATH": _LIBRARIES,
}
# The lines that name the network NCCL chose; of a first attempt alone, they are many.
_SAY_NETWORK = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}


def told(asked: str, network: str | None, said: str = "") -> str:
    """Return how a run's nodes talk, for people.

    Args:
        asked: the plan's ``network``.
        network: the RDMA network of its zone, empty for none; None: it has no zone yet.
        said: the network that NCCL itself named.
    """
    if network is None:
        return {RDMA: "RDMA", TCP: "TCP", AUTO: "RDMA where the zone has it, else TCP"}[asked]
    if network:
        return f"RDMA by {network}" + (f"; NCCL says {said}" if said else "")
    return "TCP, for the zone has no RDMA network" if asked == AUTO else "TCP"


def environment(attempt: int) -> dict[str, str]:
    """Return what the Ray job of a training attempt needs for RDMA; no secret."""
    return {**_ENVIRONMENT, **(_SAY_NETWORK if attempt == 1 else {})}


def attach(pod: dict[str, Any], machine: str, gib: str) -> None:
    """Give a worker's pod template its RDMA NICs and the plugin ``gib`` (a version).

    The Ray container stays the first: the devices are mounted into the first container only. The
    NICs themselves are asked for by GKE's webhook, from the annotations.
    """
    nics = NICS[machine]
    interfaces = [{"interfaceName": "eth0", "network": "default"}] + [
        {"interfaceName": f"eth{FIRST_NIC + number}", "network": f"rdma-{number}"}
        for number in range(nics)
    ]
    pod["metadata"]["annotations"] |= {
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": json.dumps(interfaces),
    }
    spec = pod["spec"]
    worker = spec["containers"][0]
    worker["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}  # pins memory for RDMA
    mount = {"name": "gib", "mountPath": GIB_FOLDER}
    worker["volumeMounts"].append(mount)
    spec["volumes"].append({"name": "gib", "emptyDir": {}})
    install = "/scripts/container_entry.sh install --install-nccl && cp -R /var/lib/gib/. /target/"
    spec["initContainers"] = [
        {
            "name": "gib",
            "image": f"{GIB_IMAGE}:{gib}",
            "command": ["/bin/sh", "-c", install],
            "volumeMounts": [{"name": "gib", "mountPath": "/target"}],
        }
    ]

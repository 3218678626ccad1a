"""The program that reads the GPUs of all nodes: one line of JSON for each round.

    python3 -m lustrum.head.gpu_sampler SECONDS

The supervisor starts it (`gpu_watch`). The GPUs are on other nodes than the Ray head, so a small
actor on each node that has some asks NVML there; it takes no CPU and no GPU of Ray's. It runs in
the image's Python, as a driver of its own: this module alone may import Ray. Without Ray it reads
the GPUs of its own machine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from lustrum.head.gpu_counters import GpuCounters, Reading

PATIENCE = 10.0  # seconds a node may take to answer
LEAST = 0.05  # seconds between rounds


class Nodes:
    """One actor on each node of the Ray cluster that has GPUs."""

    def __init__(self, ray: Any) -> None:
        # The workers' Python does not hold Lustrum: the class travels with the actor.
        ray.cloudpickle.register_pickle_by_value(sys.modules[GpuCounters.__module__])
        self._ray = ray
        self._actor = ray.remote(num_cpus=0, num_gpus=0, max_restarts=0)(GpuCounters)
        self._actors: dict[str, Any] = {}

    def read(self) -> list[Reading]:
        """Return the readings of all nodes that answer in time; a node that is lost is dropped
        and asked anew once it is back.
        """
        ray = self._ray
        alive = {
            node["NodeID"]: node["NodeManagerAddress"]
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("GPU", 0) > 0
        }
        self._actors = {node: actor for node, actor in self._actors.items() if node in alive}
        for node in alive.keys() - self._actors.keys():
            strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, False)
            self._actors[node] = self._actor.options(scheduling_strategy=strategy).remote(
                alive[node]
            )
        asked = {actor.read.remote(): node for node, actor in self._actors.items()}
        done, _ = (
            ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE) if asked else ([], [])
        )
        found: list[Reading] = []
        for one in done:
            try:
                found += ray.get(one)
            except ray.exceptions.RayError:
                del self._actors[asked[one]]
        return found


def connect() -> Any:
    """Return what reads: the nodes of the running Ray cluster, or this machine alone."""
    if not os.environ.get("RAY_ADDRESS"):  # Ray gives it to each of its jobs
        return GpuCounters()
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        return GpuCounters()
    ray.init(address="auto", log_to_driver=False, configure_logging=False)
    return Nodes(ray)


def main(seconds: float) -> None:
    """Print a line for each round until the pipe is closed or the process is killed."""
    # What Ray gave the job's own driver: with it Ray would take this one for the training.
    os.environ.pop("RAY_JOB_CONFIG_JSON_ENV_VAR", None)
    source = connect()
    while True:
        began = time.monotonic()
        print(json.dumps({"gpus": source.read()}), flush=True)
        time.sleep(max(LEAST, seconds - (time.monotonic() - began)))


if __name__ == "__main__":
    main(float(sys.argv[1]))

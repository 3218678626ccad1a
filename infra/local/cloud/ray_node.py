"""The unchanged `ray start`, but for what would hinder many nodes on one small machine.

Started as a program of its own (`python ray_node.py start --head ...`): it imports nothing of
Lustrum. Each module of Ray's dashboard is a Python process that takes about 2 CPU seconds to
import: only those that serve jobs, nodes, logs and health are loaded. What is missing is missing,
not faked: the pages of Ray Serve, Train and Data and the dashboard's own metrics.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

PARENT = "LUSTRUM_CLOUD_PARENT"  # environment: pid of the cloud, without which we are not wanted
PR_SET_PDEATHSIG = 1  # prctl(2)
DASHBOARD_MODULES = ("JobHead", "NodeHead", "ReportHead", "StateHead")


def die_with_parent() -> None:
    """Have the kernel end this process when the thread that started it ends.

    Ray's own processes do the same with this one, so that all go when the cloud is killed.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.get(PARENT)
    if parent is not None and os.getppid() != int(parent):
        raise SystemExit("the cloud that started this node is gone")


def main() -> None:
    """Run `ray` with this process's arguments."""
    from ray._private import services
    from ray._private.node import Node
    from ray.scripts import scripts

    node: Any = Node
    command_line: Any = scripts

    start_process = services.start_ray_process
    prepare_socket = node._prepare_socket_file

    def start_ray_process(command: list[str], process_type: str, *args: Any, **rest: Any) -> Any:
        if process_type == "dashboard":
            command = [*command, "--modules-to-load=" + ",".join(DASHBOARD_MODULES)]
        return start_process(command, process_type, *args, **rest)

    def prepare_socket_file(self: Any, socket_path: str, default_prefix: str) -> Any:
        # Ray numbers sockets by looking which names are taken: two raylets of one machine that
        # start at the same moment take the same one, and the second aborts.
        return prepare_socket(self, socket_path, f"{default_prefix}.{os.getpid()}")

    services.start_ray_process = start_ray_process
    node._prepare_socket_file = prepare_socket_file
    # The autoscaler's monitor has no provider here: KubeRay changes the number of workers.
    node.start_monitor = lambda self: None
    # Ray Client (ray://) is not offered by the service proxy either.
    node.start_ray_client_server = lambda self: None
    sys.argv[0] = "ray"
    command_line.main()


if __name__ == "__main__":
    die_with_parent()
    main()

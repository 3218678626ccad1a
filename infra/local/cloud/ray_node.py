"""The unchanged `ray start`, with the parts of its dashboard that nothing here asks for left out.

Started as a program of its own (`python ray_node.py start --head ...`): it imports nothing of Lustrum. Each
dashboard module is a Python process of its own that takes about 2 CPU seconds to import; on two cores the full set of
nine doubles the start of a head. What a GKE user would notice as missing is refused, not faked: `/api/v0/...` listing
of actors works, Ray Serve, Ray Train, Ray Data pages and Prometheus of the dashboard do not.
"""

from __future__ import annotations

import sys
from typing import Any

DASHBOARD_MODULES = ("JobHead", "NodeHead", "ReportHead", "StateHead")


def main() -> None:
    """Run `ray` with this process's arguments."""
    from ray._private import node, services
    from ray.scripts import scripts

    start_process = services.start_ray_process

    def start_ray_process(command: list[str], process_type: str, *args: Any, **rest: Any) -> Any:
        if process_type == "dashboard":
            command = [*command, "--modules-to-load=" + ",".join(DASHBOARD_MODULES)]
        return start_process(command, process_type, *args, **rest)

    services.start_ray_process = start_ray_process
    # The autoscaler's monitor has no provider here: KubeRay changes the number of workers.
    node.Node.start_monitor = lambda self: None  # type: ignore[method-assign]
    # Ray Client (ray://) is not offered by the service proxy either.
    node.Node.start_ray_client_server = lambda self: None  # type: ignore[method-assign]
    sys.argv[0] = "ray"
    scripts.main()


if __name__ == "__main__":
    main()

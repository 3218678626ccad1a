"""Serve Cloud Build on loopback: ``python -m infra.local.builds --port N --root DIR ...``."""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from infra.local.builds import rest
from infra.local.builds.local import environment, publish_scripts, trigger
from infra.local.builds.runner import Runner
from infra.local.builds.server import CloudBuild, serve


def _publisher(url: str, project: str) -> object:
    def publish(data: bytes, attributes: Mapping[str, str]) -> None:
        message = {"data": base64.b64encode(data).decode(), "attributes": dict(attributes)}
        path = f"{url.rstrip('/')}/v1/projects/{project}/topics/cloud-builds:publish"
        try:
            rest.raw("POST", path, json.dumps({"messages": [message]}).encode())
        except rest.Refused as error:
            # The service goes on as well when the topic is not there.
            print(f"warning: {attributes} was not published: {error}", file=sys.stderr, flush=True)

    return publish


def main() -> int:
    """Serve until SIGTERM or SIGINT; every build's processes end with us."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.builds", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", type=Path, required=True, help="workspaces and logs of builds")
    parser.add_argument("--project", required=True)
    parser.add_argument("--trigger", required=True, help="projects/P/locations/R/triggers/NAME")
    parser.add_argument("--pubsub", default="", help="base URL of Pub/Sub's REST")
    given = parser.parse_args()
    publish = _publisher(given.pubsub, given.project) if given.pubsub else lambda *_: None
    runner = Runner(given.root, given.project, environment(os.environ), publish)  # type: ignore[arg-type]
    if os.environ.get("LUSTRUM_SCRIPTS"):
        publish_scripts(os.environ["LUSTRUM_SCRIPTS"])
    server = serve(
        CloudBuild(runner, {given.trigger: trigger(given.trigger, os.environ)}), given.port
    )

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        runner.close()
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

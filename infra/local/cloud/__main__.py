"""`python -m infra.local.cloud --root DIR --project P`: prints the endpoints as one JSON line."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from infra.local.cloud.server import Cloud, write_endpoints
from infra.local.processes import LOOPBACK


def main() -> None:
    """Run the stand-in cloud until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.cloud")
    parser.add_argument("--root", type=Path, required=True, help="folder of all file contents")
    parser.add_argument("--project", default="lustrum-local")
    parser.add_argument("--bucket", action="append", default=[], help="a bucket to make")
    parser.add_argument("--workdir", type=Path, help="working folder of the pods")
    parser.add_argument("--host", default=LOOPBACK, help="address of the REST services")
    parser.add_argument(
        "--lustre", type=Path, help="folder that is the file system of any instance; kept"
    )
    parser.add_argument("--pubsub", default="", help="base URL that publishes are passed on to")
    parser.add_argument(
        "--acts-as", action="append", default=[], help="an account that node pools may name"
    )
    parser.add_argument("--endpoints", type=Path, help="file for the endpoints, as JSON")
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    with Cloud(
        options.root,
        options.project,
        workdir=options.workdir,
        buckets=tuple(options.bucket),
        host=options.host,
        lustre=options.lustre,
        pubsub=options.pubsub,
        acts_as=tuple(options.acts_as),
    ) as cloud:
        if options.endpoints:
            write_endpoints(cloud, options.endpoints)
        print(json.dumps(cloud.endpoints), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()

"""`python -m infra.local.cloud --root DIR --project P`: prints the endpoints as one JSON line."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from infra.local.cloud.server import Cloud, write_endpoints


def main() -> None:
    """Run the stand-in cloud until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.cloud")
    parser.add_argument("--root", type=Path, required=True, help="folder of all file contents")
    parser.add_argument("--project", default="lustrum-local")
    parser.add_argument("--bucket", action="append", default=[], help="a bucket to make")
    parser.add_argument("--workdir", type=Path, help="working folder of the pods")
    parser.add_argument("--endpoints", type=Path, help="file for the endpoints, as JSON")
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    with Cloud(
        options.root, options.project, workdir=options.workdir, buckets=tuple(options.bucket)
    ) as cloud:
        if options.endpoints:
            write_endpoints(cloud, options.endpoints)
        print(json.dumps(cloud.endpoints), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()

"""Serves the real functions: each ``functions/*/main.py`` through functions-framework's
``create_app``.

One process for all of them, as fits one machine; in the cloud each is a service of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from functions_framework import create_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

ROOT = Path(__file__).resolve().parents[2]

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class QuietHandler(WSGIRequestHandler):
    """The functions write their own structured lines."""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Say nothing."""


def names() -> list[str]:
    """Return the functions, by folder."""
    return sorted(path.parent.name for path in (ROOT / "functions").glob("*/main.py"))


def application() -> Wsgi:
    """Return all functions, each at its deployed name: ``/apply-ray-cluster``."""
    apps = {"/" + name.replace("_", "-"): _app(name) for name in names()}
    unknown: Wsgi = Response("no such function\n", status=404)

    def dispatch(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        _, name, *rest = environ.get("PATH_INFO", "/").split("/")
        app = apps.get("/" + name, unknown)
        return app({**environ, "PATH_INFO": "/" + "/".join(rest)}, start_response)

    return dispatch


def _app(name: str) -> Wsgi:
    app: Wsgi = create_app(name, str(ROOT / "functions" / name / "main.py"))  # type: ignore[no-untyped-call]
    return app


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    server = make_server(
        "127.0.0.1", options.port, application(), threaded=True, request_handler=QuietHandler
    )
    print(f"serving {', '.join(names())} on 127.0.0.1:{options.port}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

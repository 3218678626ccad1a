"""The REST of Cloud Build v1 over the runner: triggers, builds, operations; global and
regional.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from infra.local.builds.filters import matches
from infra.local.builds.runner import TERMINAL, Runner, UnknownBuild
from infra.local.builds.substitute import Refused

_WHERE = r"/v1/projects/(?P<project>[^/]+)(?:/locations/(?P<location>[^/]+))?"
_HTTP = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "FAILED_PRECONDITION": 400}


class Problem(Exception):
    """A canonical error: code and text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class CloudBuild:
    """Answers calls.

    Args:
        triggers: full trigger name -> trigger JSON with ``build`` and ``substitutions``.
    """

    def __init__(self, runner: Runner, triggers: Mapping[str, Mapping[str, Any]]) -> None:
        self._runner = runner
        self._triggers = dict(triggers)
        self._routes: list[tuple[str, re.Pattern[str], Callable[..., dict[str, Any]]]] = [
            (method, re.compile(_WHERE + path), answer)
            for method, path, answer in (
                ("POST", r"/triggers/(?P<trigger>[^/:]+):run", self._run),
                ("GET", r"/triggers/(?P<trigger>[^/:]+)", self._trigger),
                ("GET", r"/triggers", self._list_triggers),
                ("POST", r"/builds", self._create),
                ("GET", r"/builds", self._list),
                ("GET", r"/builds/(?P<build>[^/:]+)", self._get),
                ("POST", r"/builds/(?P<build>[^/:]+):cancel", self._cancel),
                ("GET", r"/operations/(?P<operation>[^/:]+)", self._operation),
            )
        ]
        self._routes.append(
            (
                "GET",
                re.compile(r"/v1/operations/build/(?P<project>[^/]+)/(?P<operation>[^/]+)"),
                self._operation,
            )
        )

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """Return status and JSON of one call."""
        try:
            for verb, pattern, answer in self._routes:
                found = pattern.fullmatch(path)
                if found and verb == method:
                    parts = {key: unquote(value) for key, value in found.groupdict("").items()}
                    if parts["project"] != self._runner.project:
                        raise Problem("NOT_FOUND", f"project {parts['project']} not found")
                    where = parts.get("location") or "global"
                    return 200, answer(parts=parts, where=where, query=query, body=body)
            raise Problem("NOT_FOUND", f"{method} {path} is not a method of Cloud Build v1 here")
        except UnknownBuild as error:
            return _error("NOT_FOUND", f"Requested entity was not found: build {error}")
        except (Refused, ValueError) as error:
            return _error("INVALID_ARGUMENT", str(error))
        except Problem as error:
            return _error(error.code, str(error))

    def _run(self, parts: Mapping[str, str], where: str, body: Mapping[str, Any], **_: Any) -> Any:
        trigger = self._find(parts, where)
        # Regional: RunBuildTriggerRequest{source}; global: the RepoSource itself.
        source = body.get("source", body) or {}
        given = {**trigger.get("substitutions", {}), **(source.get("substitutions") or {})}
        made = self._runner.create(trigger["build"], where, given, trigger=str(trigger["id"]))
        return self._as_operation(made)

    def _create(
        self, parts: Mapping[str, str], where: str, body: Mapping[str, Any], **_: Any
    ) -> Any:
        return self._as_operation(self._runner.create(body, where))

    def _get(self, parts: Mapping[str, str], **_: Any) -> Any:
        return self._runner.get(parts["build"])

    def _cancel(self, parts: Mapping[str, str], **_: Any) -> Any:
        before = self._runner.get(parts["build"])
        if before["status"] in TERMINAL:
            raise Problem(
                "FAILED_PRECONDITION", f"Build {before['id']} is already {before['status']}"
            )
        return self._runner.cancel(parts["build"])

    def _list(self, where: str, query: Mapping[str, str], **_: Any) -> Any:
        wanted = query.get("filter", "")
        matches({}, wanted)  # a filter that cannot be read is refused, builds or not
        found = [one for one in self._runner.list(where) if matches(one, wanted)]
        start, size = int(query.get("pageToken") or 0), int(query.get("pageSize") or 50)
        page: dict[str, Any] = {"builds": found[start : start + size]}
        if len(found) > start + size:
            page["nextPageToken"] = str(start + size)
        return page if page["builds"] else {}

    def _trigger(self, parts: Mapping[str, str], where: str, **_: Any) -> Any:
        return dict(self._find(parts, where))

    def _list_triggers(self, where: str, **_: Any) -> Any:
        return {"triggers": [one for name, one in self._triggers.items() if f"/{where}/" in name]}

    def _find(self, parts: Mapping[str, str], where: str) -> Mapping[str, Any]:
        wanted = parts["trigger"]
        for name, trigger in self._triggers.items():
            place = f"projects/{parts['project']}/locations/{where}/triggers/"
            if name.startswith(place) and wanted in (trigger["id"], trigger["name"]):
                return trigger
        raise Problem("NOT_FOUND", f"Requested entity was not found: trigger {wanted} in {where}")

    def _operation(self, parts: Mapping[str, str], **_: Any) -> Any:
        try:
            identity = base64.urlsafe_b64decode(parts["operation"] + "==").decode()
        except ValueError:
            raise Problem("NOT_FOUND", f"operation {parts['operation']} not found") from None
        return self._as_operation(self._runner.get(identity))

    def _as_operation(self, build: Mapping[str, Any]) -> dict[str, Any]:
        identity = base64.urlsafe_b64encode(str(build["id"]).encode()).decode().rstrip("=")
        where = str(build["name"]).split("/locations/")[1].split("/")[0]
        name = f"projects/{self._runner.project}/locations/{where}/operations/{identity}"
        if where == "global":
            name = f"operations/build/{self._runner.project}/{identity}"
        kind = "type.googleapis.com/google.devtools.cloudbuild.v1."
        metadata = {"@type": kind + "BuildOperationMetadata", "build": build}
        found: dict[str, Any] = {"name": name, "metadata": metadata}
        if build["status"] in TERMINAL:
            found["done"] = True
            if build["status"] == "SUCCESS":
                found["response"] = {"@type": kind + "Build", **build}
            else:
                code = {"CANCELLED": 1, "TIMEOUT": 4, "EXPIRED": 4}.get(build["status"], 2)
                detail = (build.get("failureInfo") or {}).get("detail", "")
                found["error"] = {"code": code, "message": f"Build {build['status']}: {detail}"}
        return found


def _error(code: str, text: str) -> tuple[int, dict[str, Any]]:
    status = _HTTP[code]
    return status, {"error": {"code": status, "message": text, "status": code}}


def serve(cloud_build: CloudBuild, port: int = 0) -> BaseWSGIServer:
    """Return a server on loopback; ``serve_forever`` runs it."""

    @Request.application
    def application(request: Request) -> Response:
        try:
            body = json.loads(request.get_data() or b"{}")
        except ValueError as error:
            status, found = _error("INVALID_ARGUMENT", f"Invalid JSON payload: {error}")
        else:
            status, found = cloud_build.answer(
                request.method, request.path, request.args.to_dict(), body
            )
        return Response(json.dumps(found), status, mimetype="application/json")

    return make_server("127.0.0.1", port, application, threaded=True, request_handler=_Quiet)


class _Quiet(WSGIRequestHandler):
    def log_request(self, *args: Any) -> None:
        """Keep quiet: the builds' own logs say what happened."""

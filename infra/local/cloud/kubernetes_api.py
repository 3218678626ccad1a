"""The Kubernetes API of one cluster over HTTP, and the service proxy to its Ray dashboards."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import yaml
from werkzeug.wrappers import Request, Response

from infra.local.cloud import mounts, rayclusters
from infra.local.cloud.cluster import KubeCluster
from infra.local.cloud.object_values import Object
from infra.local.cloud.objects import RESOURCES, Refusal, Resource, not_found, stamp
from infra.local.cloud.raycluster_parts import head_mounts

_CORE = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+/[^/]+))(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+)(?P<rest>/.*)?)?)?/?"
)
_TEXT = re.compile(r"/?api/(jobs|v0/logs)(/|$)")
_HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "content-length",
    "content-encoding",
    "host",
    "authorization",
    "proxy-authorization",
}
PROXY_READ = 60.0  # seconds


# Patches that are merged (strategic ones too); a JSON patch is one more than this stand-in knows.
_MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")


class NoSuchPathError(Exception):
    """Nothing is served there, for instance a kind whose CRD is not installed: not a Status."""


class KubernetesApi:
    """A WSGI application."""

    def __init__(self, cluster: KubeCluster) -> None:
        self._cluster = cluster
        self._client = httpx.Client(
            timeout=httpx.Timeout(PROXY_READ, connect=5.0), trust_env=False
        )

    def __call__(self, environ: Any, start_response: Any) -> Any:
        """Answer one request."""
        request = Request(environ)
        try:
            response = self._answer(request)
        except Refusal as refusal:
            response = _json(refusal.body(), refusal.code)
        except NoSuchPathError:
            response = Response("404 page not found\n", 404, mimetype="text/plain")
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        path = request.path
        if path in ("/healthz", "/readyz", "/livez"):
            return Response("ok")
        self._authenticate(request)
        if path == "/version":
            return _json(
                {
                    "major": "1",
                    "minor": "35",
                    "gitVersion": "v1.35.4-gke.1042000",
                    "platform": "linux/amd64",
                }
            )
        discovered = self._discover(path.rstrip("/"))
        if discovered is not None:
            return _json(discovered)
        match = _CORE.fullmatch(path)
        if match is None:
            raise NoSuchPathError
        resource, namespace, name = self._resource(match)
        if match["sub"] == "proxy" and resource.plural == "services":
            return self._proxy(request, namespace, name, match["rest"] or "/")
        return self._objects(request, resource, namespace, name, match["sub"])

    def _authenticate(self, request: Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        state = self._cluster.state
        expires = state.tokens.get(token)
        refused = state.faults.value("kubernetes.token") is not None
        if scheme != "Bearer" or not token or refused or (expires and expires < time.time()):
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _resource(self, match: re.Match[str]) -> tuple[Resource, str, str]:
        plural, namespace, name = match["plural"], match["namespace"] or "", match["name"] or ""
        resource = RESOURCES.get(plural)
        if plural == "rayclusters":
            with self._cluster.state.lock:
                if not rayclusters.operator_is_there(self._cluster):
                    resource = None
        if resource is None or resource.version != (match["group"] or "v1"):
            raise NoSuchPathError
        if resource.namespaced and not namespace and name:
            raise NoSuchPathError
        return resource, namespace, name

    def _discover(self, path: str) -> Object | None:
        with self._cluster.state.lock:
            ray = rayclusters.operator_is_there(self._cluster)
        served = [item for item in RESOURCES.values() if ray or item.plural != "rayclusters"]
        groups = sorted({item.version for item in served if "/" in item.version})
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(item) for item in groups],
            }
        prefix, _, version = path.lstrip("/").partition("/")
        if prefix == "apis" and "/" not in version:
            return next(
                (
                    _group(g) | {"kind": "APIGroup", "apiVersion": "v1"}
                    for g in groups
                    if g.split("/")[0] == version
                ),
                None,
            )
        if (prefix == "api" and version == "v1") or (prefix == "apis" and version in groups):
            verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": [
                    {
                        "name": item.plural,
                        "singularName": item.kind.lower(),
                        "kind": item.kind,
                        "namespaced": item.namespaced,
                        "verbs": verbs,
                    }
                    for item in served
                    if item.version == version
                ],
            }
        return None

    def _objects(
        self, request: Request, resource: Resource, namespace: str, name: str, sub: str | None
    ) -> Response:
        cluster, query = self._cluster, request.args
        kind = request.content_type or ""
        verb = {
            "GET": "get" if name else "list",
            "POST": "create",
            "PUT": "update",
            "DELETE": "delete",
            "PATCH": "apply" if "apply-patch" in kind else "patch",
        }[request.method]
        self._injected(f"kubernetes.{verb}.{resource.plural}")
        if verb == "get" and sub == "log":
            return self._log(namespace, name)
        if sub not in (None, "status"):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if verb == "list" and query.get("watch") in ("true", "1"):
            return Response(self._watch(resource, namespace, query), mimetype="application/json")
        code = 200
        with cluster.state.lock:
            store = cluster.store
            strict = query.get("fieldValidation") == "Strict"
            if verb == "list":
                items = store.select(
                    resource,
                    namespace,
                    query.get("labelSelector", ""),
                    query.get("fieldSelector", ""),
                )
                answer: Object = {
                    "kind": f"{resource.kind}List",
                    "apiVersion": resource.version,
                    "metadata": {"resourceVersion": store.version},
                    "items": items,
                }
            elif verb == "get":
                answer = store.get(resource, namespace, name)
            elif verb == "create":
                answer, code = (
                    store.create(resource, namespace, _body(request), strict=strict),
                    201,
                )
            elif verb == "update":
                answer = store.replace(resource, namespace, name, _body(request), strict=strict)
            elif verb == "apply":
                answer, fresh = store.apply(
                    resource,
                    namespace,
                    name,
                    _body(request),
                    strict=strict,
                    manager=query.get("fieldManager", ""),
                    force=query.get("force") == "true",
                )
                code = 201 if fresh else 200
            elif verb == "patch":
                if not kind.startswith(_MERGES):
                    raise Refusal(
                        415,
                        "UnsupportedMediaType",
                        "the body of the request was in an unknown format - accepted media types"
                        f" include: {', '.join(_MERGES)}, application/apply-patch+yaml",
                    )
                answer = store.merge(resource, namespace, name, _body(request), strict=strict)
            else:
                answer = self._delete(request, resource, namespace, name)
            text = json.dumps(answer)
        if verb not in ("get", "list"):
            cluster.state.log(
                "kubernetes", f"{verb} {resource.plural} {namespace}/{name} of {cluster.gke.name}"
            )
            cluster.state.wake.set()
        return Response(text, code, mimetype="application/json")

    def _delete(self, request: Request, resource: Resource, namespace: str, name: str) -> Object:
        store = self._cluster.store
        options = _body(request) if request.data else {}
        policy = request.args.get("propagationPolicy") or options.get("propagationPolicy")
        if not name:
            for item in store.select(resource, namespace, request.args.get("labelSelector", "")):
                self._delete_one(resource, item, policy)
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        found = store.get(resource, namespace, name)
        self._delete_one(resource, found, policy)
        if found["metadata"].get("deletionTimestamp"):
            return found
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": name, "kind": resource.plural, "uid": found["metadata"]["uid"]},
        }

    def _delete_one(self, resource: Resource, item: Object, policy: str | None) -> None:
        foreground = resource.plural == "rayclusters" and policy == "Foreground"
        if foreground or resource.plural == "pods":
            # Goes when its pods (or its process) are gone; the operator sees to that.
            item["metadata"]["deletionTimestamp"] = stamp()
            if foreground:
                item["metadata"]["finalizers"] = ["foregroundDeletion"]
            self._cluster.store.touch(resource.plural, item)
        else:
            self._cluster.store.remove(resource.plural, item)

    def _watch(self, resource: Resource, namespace: str, query: Any) -> Iterator[str]:
        seen = int(query.get("resourceVersion") or 0)
        ends = time.monotonic() + float(query.get("timeoutSeconds") or 60)
        store, lock = self._cluster.store, self._cluster.state.lock
        if not seen:
            with lock:
                for item in store.select(resource, namespace, query.get("labelSelector", "")):
                    yield json.dumps({"type": "ADDED", "object": item}) + "\n"
                seen = int(store.version)
        while time.monotonic() < ends and not self._cluster.closed:
            with lock:
                fresh = [entry for entry in store.history if entry[0] > seen]
            for version, event, plural, item in fresh:
                seen = version
                if plural == resource.plural and namespace in (
                    "",
                    item["metadata"].get("namespace", ""),
                ):
                    yield json.dumps({"type": event, "object": item}) + "\n"
            time.sleep(0.05)

    def _log(self, namespace: str, name: str) -> Response:
        with self._cluster.state.lock:
            self._cluster.store.get(RESOURCES["pods"], namespace, name)
            runtime = self._cluster.pods.get(name)
        if runtime is None or runtime.raylet is None:
            raise Refusal(400, "BadRequest", f'container in pod "{name}" is waiting to start')
        return Response(runtime.raylet.log.read_bytes(), mimetype="text/plain")

    def _proxy(self, request: Request, namespace: str, name: str, rest: str) -> Response:
        self._injected("kubernetes.proxy")
        parts = name.split(":")
        scheme, service, port = (
            (["", *parts] if len(parts) == 2 else [*parts, ""])[:3]
            if len(parts) in (2, 3)
            else ("", name, "")
        )
        if scheme not in ("", "http"):
            raise Refusal(400, "BadRequest", f"invalid service request {name!r}")
        with self._cluster.state.lock:
            found = self._cluster.store.find("services", namespace, service)
            if found is None:
                raise not_found(RESOURCES["services"], service)
            ports = {str(p[key]) for p in found["spec"]["ports"] for key in ("port", "name")}
            target, inside = head_mounts(self._cluster, found)
        if port not in ports:
            raise Refusal(
                503,
                "ServiceUnavailable",
                f'no service port "{port}" found for service "{service}"',
            )
        if target is None or port not in ("8265", "dashboard"):
            raise Refusal(
                503, "ServiceUnavailable", f'no endpoints available for service "{service}"'
            )
        body = request.get_data()
        if request.method == "POST" and rest.rstrip("/") == "/api/jobs":
            body = mounts.job_inward(body, inside)
        headers = {key: value for key, value in request.headers if key.lower() not in _HOP}
        query = request.query_string.decode()
        url = f"http://127.0.0.1:{target}{rest}" + (f"?{query}" if query else "")
        try:
            sent = self._client.build_request(request.method, url, content=body, headers=headers)
            answer = self._client.send(sent, stream=True)
        except httpx.HTTPError as error:
            raise Refusal(
                503, "ServiceUnavailable", f"error trying to reach service: {error}"
            ) from None
        if request.method not in ("GET", "HEAD"):
            self._cluster.state.log("proxy", f"{request.method} {service}{rest}")
        kept = [(key, value) for key, value in answer.headers.items() if key.lower() not in _HOP]
        if _TEXT.match(rest):
            try:
                text = mounts.outward(answer.read().decode(errors="surrogateescape"), inside)
            finally:
                answer.close()
            return Response(text.encode(errors="surrogateescape"), answer.status_code, kept)
        stream = Response(answer.iter_bytes(), answer.status_code, kept)
        stream.call_on_close(answer.close)
        return stream

    def _injected(self, call: str) -> None:
        refused = self._cluster.state.faults.refusal(call)
        if refused is not None:
            raise Refusal(refused[0], "InternalError", refused[1])


def _body(request: Request) -> Object:
    if _SURROGATE.search(request.get_data()) and "yaml" in (request.content_type or ""):
        # JSON writes what is beyond the BMP as two escapes; a YAML reader does not join them.
        raise Refusal(
            400,
            "BadRequest",
            "error decoding YAML: error converting YAML to JSON: "
            "yaml: found invalid Unicode character escape code",
        )
    try:
        found = (
            yaml.safe_load(request.get_data())
            if "yaml" in (request.content_type or "")
            else json.loads(request.get_data() or b"{}")
        )
    except (ValueError, yaml.YAMLError) as error:
        raise Refusal(400, "BadRequest", f"error decoding the body: {error}") from None
    if not isinstance(found, dict):
        raise Refusal(400, "BadRequest", "the object provided is unrecognized (must be an object)")
    return found


def _group(version: str) -> Object:
    one = {"groupVersion": version, "version": version.split("/")[1]}
    return {"name": version.split("/")[0], "versions": [one], "preferredVersion": one}


def _json(body: Object, code: int = 200) -> Response:
    return Response(json.dumps(body), code, mimetype="application/json")

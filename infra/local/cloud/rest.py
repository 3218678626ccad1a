"""The REST doors: GKE v1, Lustre v1, Storage, Compute, the metadata server, and `/_local`."""

from __future__ import annotations

import json
import time
from typing import Any, Protocol

import httpx
from flask import Blueprint, Flask, Response, jsonify, request, send_file
from werkzeug.exceptions import HTTPException

from infra.local.cloud.compute import ZONES, Compute
from infra.local.cloud.faults import Faults
from infra.local.cloud.gke import Gke
from infra.local.cloud.gke_messages import from_json, to_json
from infra.local.cloud.lustre import Lustre
from infra.local.cloud.state import Problem, State, unique
from infra.local.cloud.storage import Storage, multipart

TOKEN_SECONDS = 3600
Answer = Any


class Cloud(Protocol):
    """The parts of the cloud that answer here, as `server.Cloud` has them."""

    state: State
    faults: Faults
    gke: Gke
    lustre: Lustre
    storage: Storage
    compute: Compute
    pubsub: str

    def inventory(self) -> dict[str, list[str]]:
        """Return what is billed."""

    def preempt(self, node: str, *, stopped: bool = False) -> list[str]:
        """Take a node away as Spot does; return the pods that were on it."""

    def fill(self, instance: str, share: float) -> None:
        """Make a Lustre instance look so full."""


def rest_application(cloud: Cloud) -> Flask:
    """Return the WSGI application of everything that is plain REST."""
    app = Flask("cloud")
    app.url_map.merge_slashes = False
    for name, fill in _PARTS.items():
        part = Blueprint(name, __name__)
        fill(part, cloud)
        app.register_blueprint(part)

    @app.errorhandler(Problem)
    def problem(error: Problem) -> Answer:
        return jsonify(error.body()), error.status

    @app.errorhandler(HTTPException)
    def unknown(error: HTTPException) -> Answer:
        body = {"code": error.code, "message": f"{request.method} {request.path}: {error.name}"}
        return jsonify({"error": body}), error.code

    return app


def _gke(app: Blueprint, cloud: Cloud) -> None:
    base = "/v1/projects/<project>/locations/<location>"
    one = f"{base}/clusters/<cluster>"

    def call(method: str, **fields: Any) -> Answer:
        body = request.get_json(silent=True, force=True) if request.data else {}
        kind = cloud.gke.methods[method][0]
        answer = cloud.gke.call(method, from_json(kind, {**(body or {}), **fields}))
        return jsonify({} if answer is None else to_json(answer))

    def parent(parts: dict[str, str]) -> str:
        text = f"projects/{parts['project']}/locations/{parts['location']}"
        return text + (f"/clusters/{parts['cluster']}" if "cluster" in parts else "")

    def route(rule: str, verb: str, method: str, field: str, tail: str = "") -> None:
        def view(**parts: str) -> Answer:
            name = parent(parts) + tail.format(**parts)
            return call(method, **{field: name})

        app.add_url_rule(rule, f"gke-{method}", view, methods=[verb])

    route(f"{base}/clusters", "GET", "ListClusters", "parent")
    route(f"{base}/clusters", "POST", "CreateCluster", "parent")
    route(one, "GET", "GetCluster", "name")
    route(one, "DELETE", "DeleteCluster", "name")
    route(f"{one}:setResourceLabels", "POST", "SetLabels", "name")
    route(f"{one}/nodePools", "GET", "ListNodePools", "parent")
    route(f"{one}/nodePools", "POST", "CreateNodePool", "parent")
    pool = f"{one}/nodePools/<pool>"
    route(pool, "GET", "GetNodePool", "name", "/nodePools/{pool}")
    route(pool, "DELETE", "DeleteNodePool", "name", "/nodePools/{pool}")
    route(f"{pool}:setSize", "POST", "SetNodePoolSize", "name", "/nodePools/{pool}")
    route(f"{pool}:setAutoscaling", "POST", "SetNodePoolAutoscaling", "name", "/nodePools/{pool}")
    route(f"{base}/serverConfig", "GET", "GetServerConfig", "name")

    # Operations of GKE and of Lustre have the same path on different hosts; here one host serves
    # both, and an operation's name says whose it is.
    @app.get(f"{base}/operations")
    def operations(project: str, location: str) -> Answer:
        cloud.state.check_project(project)
        gke = call("ListOperations", parent=f"projects/{project}/locations/{location}").get_json()
        lustre = cloud.lustre.operations(location)
        return jsonify({**gke, "operations": gke.get("operations", []) + lustre["operations"]})

    @app.get(f"{base}/operations/<operation>")
    def operation(project: str, location: str, operation: str) -> Answer:
        name = f"projects/{project}/locations/{location}/operations/{operation}"
        if name in cloud.state.lustre_operations:
            return jsonify(cloud.lustre.operation(name))
        return call("GetOperation", name=name)

    @app.post(f"{base}/operations/<operation>:cancel")
    def cancel(project: str, location: str, operation: str) -> Answer:
        name = f"projects/{project}/locations/{location}/operations/{operation}"
        if name in cloud.state.lustre_operations:
            return jsonify(cloud.lustre.cancel(name))
        return call("CancelOperation", name=name)


def _lustre(app: Blueprint, cloud: Cloud) -> None:
    base = "/v1/projects/<project>/locations/<location>/instances"

    @app.get("/v1/projects/<project>/locations")
    def locations(project: str) -> Answer:
        cloud.state.check_project(project)
        offered = cloud.state.faults.value("lustre.locations")
        found = [{"locationId": zone} for zone in (ZONES if offered is None else offered)]
        return jsonify({"locations": found})

    def name(project: str, location: str, instance: str) -> str:
        cloud.state.check_project(project)
        return f"projects/{cloud.state.project}/locations/{location}/instances/{instance}"

    @app.get(base)
    def listing(project: str, location: str) -> Answer:
        cloud.state.check_project(project)
        return jsonify(cloud.lustre.listing(location))

    @app.post(base)
    def create(project: str, location: str) -> Answer:
        cloud.state.check_project(project)
        query = request.args
        return jsonify(
            cloud.lustre.create(
                location,
                query.get("instanceId", query.get("instance_id", "")),
                query.get("requestId", query.get("request_id")),
                _json_body(),
            )
        )

    @app.get(f"{base}/<instance>")
    def get(**parts: str) -> Answer:
        return jsonify(cloud.lustre.get(name(**parts)))

    @app.delete(f"{base}/<instance>")
    def delete(**parts: str) -> Answer:
        return jsonify(cloud.lustre.delete(name(**parts)))

    @app.patch(f"{base}/<instance>")
    def patch(**parts: str) -> Answer:
        mask = request.args.get("updateMask", request.args.get("update_mask", ""))
        return jsonify(cloud.lustre.patch(name(**parts), mask, _json_body()))

    @app.post(f"{base}/<instance>:<verb>")
    def transfer(project: str, location: str, instance: str, verb: str) -> Answer:
        if verb not in ("exportData", "importData"):
            raise Problem("NOT_FOUND", f"Method {verb} not found.")
        full = name(project, location, instance)
        return jsonify(cloud.lustre.transfer(full, verb, _json_body()))


def _storage(app: Blueprint, cloud: Cloud) -> None:
    storage = cloud.storage

    @app.get("/storage/v1/b")
    def buckets() -> Answer:
        return jsonify(storage.buckets())

    @app.post("/storage/v1/b")
    def create() -> Answer:
        return jsonify(storage.create_bucket(str(_json_body().get("name", ""))))

    @app.get("/storage/v1/b/<bucket>")
    def bucket(bucket: str) -> Answer:
        return jsonify(storage.bucket(bucket))

    @app.get("/storage/v1/b/<bucket>/iam")
    def policy(bucket: str) -> Answer:
        return jsonify(storage.policy(bucket))

    @app.get("/storage/v1/b/<bucket>/o")
    def listing(bucket: str) -> Answer:
        return jsonify(storage.objects(bucket, request.args))

    def _object(bucket: str, name: str) -> Answer:
        if request.method == "DELETE":
            storage.delete(bucket, name, request.args)
            return Response(status=204)
        if request.args.get("alt") == "media":
            return _media(cloud, bucket, name)
        return jsonify(storage.metadata(bucket, name))

    app.add_url_rule(
        "/storage/v1/b/<bucket>/o/<path:name>", "object", _object, methods=["GET", "DELETE"]
    )

    @app.get("/download/storage/v1/b/<bucket>/o/<path:name>")
    def download(bucket: str, name: str) -> Answer:
        return _media(cloud, bucket, name)

    @app.post("/upload/storage/v1/b/<bucket>/o")
    def upload(bucket: str) -> Answer:
        kind, body, query = request.content_type or "", request.get_data(), request.args
        name = query.get("name", "")
        if query.get("uploadType") == "multipart":
            metadata, body, kind = multipart(kind, body)
            name = name or str(metadata.get("name", ""))
        elif query.get("uploadType") != "media":
            raise Problem(
                "UNIMPLEMENTED",
                "uploadType must be media or multipart: this stand-in has no resumable uploads",
            )
        return jsonify(storage.insert(bucket, name, body, kind, query))


def _media(cloud: Cloud, bucket: str, name: str) -> Answer:
    path, metadata = cloud.storage.file(bucket, name)
    response = send_file(path, mimetype=metadata["contentType"], conditional=True, etag=False)
    response.headers["X-Goog-Generation"] = metadata["generation"]
    return response


def _compute(app: Blueprint, cloud: Cloud) -> None:
    @app.get("/compute/v1/projects/<project>/aggregated/instances")
    def aggregated(project: str) -> Answer:
        cloud.state.check_project(project)
        return jsonify(cloud.compute.aggregated(request.args.get("filter", "")))

    @app.get("/compute/v1/projects/<project>/aggregated/machineTypes")
    def machine_types(project: str) -> Answer:
        cloud.state.check_project(project)
        return jsonify(cloud.compute.machine_types(request.args.get("filter", "")))

    @app.get("/compute/v1/projects/<project>/zones")
    def zones(project: str) -> Answer:
        cloud.state.check_project(project)
        return jsonify(cloud.compute.zones())


def _resource_manager(app: Blueprint, cloud: Cloud) -> None:
    @app.get("/v1/projects/<project>")
    def project(project: str) -> Answer:
        cloud.state.check_project(project)
        return jsonify({"projectId": cloud.state.project, "projectNumber": cloud.state.number})

    @app.post("/v1/projects/<project>:getIamPolicy")
    def policy(project: str) -> Answer:
        cloud.state.check_project(project)
        return jsonify({"version": 3, "bindings": []})


def _pubsub(app: Blueprint, cloud: Cloud) -> None:
    @app.post("/v1/projects/<project>/topics/<topic>:publish")
    def publish(project: str, topic: str) -> Answer:
        cloud.state.check_project(project)
        if not cloud.pubsub:
            raise Problem("NOT_FOUND", "this cloud passes nothing on to Pub/Sub")
        answer = httpx.post(
            cloud.pubsub + request.path,
            content=request.get_data(),
            trust_env=False,
            timeout=10,
            headers={"Content-Type": "application/json"},
        )
        return Response(answer.content, answer.status_code, mimetype="application/json")


def _metadata(app: Blueprint, cloud: Cloud) -> None:
    """The metadata server of a pod or function (GCE_METADATA_HOST): tokens of this cloud."""

    @app.get("/computeMetadata/v1/<path:what>")
    def metadata(what: str) -> Answer:
        if request.headers.get("Metadata-Flavor") != "Google":
            return Response("Missing Metadata-Flavor:Google header.", 403)
        flavor = {"Metadata-Flavor": "Google"}
        if what.endswith("/token"):
            return jsonify(_token(cloud, TOKEN_SECONDS)), 200, flavor
        if what == "project/project-id":
            return Response(cloud.state.project, headers=flavor)
        if what.endswith("/email"):
            return Response(f"local@{cloud.state.project}.iam.gserviceaccount.com", headers=flavor)
        return Response("not found", 404, headers=flavor)


def _local(app: Blueprint, cloud: Cloud) -> None:
    @app.get("/_local/inventory")
    def inventory() -> Answer:
        return jsonify(cloud.inventory())

    @app.route("/_local/faults", methods=["GET", "POST", "DELETE"])
    def faults() -> Answer:
        if request.method == "DELETE":
            cloud.faults.clear()
        if request.method == "POST":
            body = request.get_json(force=True)
            try:
                for rule in body if isinstance(body, list) else [body]:
                    cloud.faults.add(rule)
            except (ValueError, TypeError) as error:
                raise Problem("INVALID_ARGUMENT", str(error)) from None
        return jsonify(cloud.faults.rules())

    @app.post("/_local/preempt")
    def preempt() -> Answer:
        body = _json_body()
        node = str(body.get("node", ""))
        return jsonify({"pods": cloud.preempt(node, stopped=bool(body.get("stopped")))})

    @app.post("/_local/fill")
    def fill() -> Answer:
        body = _json_body()
        try:
            share = float(body.get("share", -1))
        except (TypeError, ValueError) as error:
            raise Problem("INVALID_ARGUMENT", f"share: {error}") from None
        cloud.fill(str(body.get("instance", "")), share)
        return jsonify({})

    @app.post("/_local/token")
    def token() -> Answer:
        return jsonify(_token(cloud, float(_json_body().get("seconds", TOKEN_SECONDS))))

    @app.post("/_local/metric")
    def metric() -> Answer:
        body = _json_body()
        key = (str(body["instance"]), str(body["metric"]))
        with cloud.state.lock:
            if body.get("value") is None:
                cloud.state.series.pop(key, None)
            else:
                cloud.state.series[key] = int(body["value"])
        return jsonify({})


def _token(cloud: Cloud, seconds: float) -> dict[str, Any]:
    token = f"ya29.local-{unique(24)}"
    cloud.state.tokens[token] = time.time() + seconds
    return {"access_token": token, "expires_in": int(seconds), "token_type": "Bearer"}


def _json_body() -> dict[str, Any]:
    try:
        found = json.loads(request.get_data() or b"{}")
    except ValueError as error:
        raise Problem("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from None
    if not isinstance(found, dict):
        raise Problem("INVALID_ARGUMENT", "Invalid JSON payload received. An object is expected.")
    return found


_PARTS = {
    "gke": _gke,
    "lustre": _lustre,
    "storage": _storage,
    "compute": _compute,
    "resource_manager": _resource_manager,
    "pubsub": _pubsub,
    "metadata": _metadata,
    "local": _local,
}

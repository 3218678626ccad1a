"""`delete_ray_cluster`: delete the RayCluster and wait for its pods."""

import flask
import functions_framework
from lustrum.handlers.ray_cluster import delete_ray_cluster as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def delete_ray_cluster(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "delete_ray_cluster",
        request,
        lambda call: step(services(), call["run_id"], call["execution"]),
    )

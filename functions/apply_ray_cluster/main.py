"""`apply_ray_cluster`: ensure the RayCluster and all it needs; say whether it is ready.

The only function that is given the tokens: they go from Secret Manager into its environment and
from there into a Kubernetes Secret, nowhere else.
"""

import os

import flask
import functions_framework
from lustrum.handlers.pages import with_page
from lustrum.handlers.ray_cluster import apply_ray_cluster as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def apply_ray_cluster(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    tokens = (
        os.environ.get("LUSTRUM_HF_TOKEN", "").strip(),
        os.environ.get("LUSTRUM_WANDB_API_KEY", "").strip(),
    )
    return answer_call(
        "apply_ray_cluster",
        request,
        lambda call: with_page(
            services(), call, step(services(), call["run_id"], call.get("execution"), tokens)
        ),
    )

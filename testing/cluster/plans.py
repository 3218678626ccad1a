"""Plans of runs for this tier: the product's own, small enough for two cores."""

from __future__ import annotations

import itertools
from typing import Any

from lustrum.adapters.supervisor_archive import supervisor_archive
from lustrum.core import kubernetes_objects, names
from lustrum.core.plan import make_plan
from lustrum.core.request import StartRequest
from lustrum.core.run_plan import RunPlan

EXPIRES = 1_900_000_000.0
_counter = itertools.count(1)


def fresh_plan(**request: Any) -> RunPlan:
    """A plan with a run id that no other test has."""
    limits = request.pop("limits", {"cost_usd": 1_000_000})
    body = {"limits": limits, **request}
    return make_plan(
        StartRequest.model_validate(body), names.run_id(f"cluster-{next(_counter)}"), "exports"
    )


def companions(plan: RunPlan) -> list[dict[str, Any]]:
    """What a RayCluster's pods need beside the claim: account, Secret, ConfigMap."""
    return [
        kubernetes_objects.account(plan, EXPIRES),
        kubernetes_objects.tokens(plan, EXPIRES, "hf-secret-value", "wandb-secret-value"),
        kubernetes_objects.job_files(plan, EXPIRES, {"supervisor.pyz": supervisor_archive()}),
    ]

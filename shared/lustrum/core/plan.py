"""`RunPlan`: a request resolved against profiles, tables and prices. Pure; refused before
anything is created.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, JsonValue

from lustrum.core import images, names
from lustrum.core.cost import Prices, prices
from lustrum.core.overrides import by_name, merged, split_key
from lustrum.core.request import BadRequest, StartRequest

# The tiers of Managed Lustre: MB/s per TiB -> (smallest GiB, step GiB, largest GiB).
# Source: Managed Lustre, "performance tiers"; the API's own text is older and wrong.
LUSTRE_TIERS = {
    1000: (9_000, 9_000, 1_530_000),
    500: (18_000, 18_000, 3_060_000),
    250: (36_000, 36_000, 6_120_000),
    125: (72_000, 72_000, 12_240_000),
}
EXPORT_GRACE_HOURS = 1.0  # after the deadline: export only, GPUs are gone


class Timing(BaseModel):
    """Seconds: between polls, of a wait for the callback (``doorbell``), and the deadline of each
    stage.
    """

    poll: float
    doorbell: float
    build: float
    head: float
    stage: float
    stall: float  # without progress of the training: a hang
    pending: float  # a submitted job may stay PENDING
    silence: float  # the dashboard may be unreachable
    export: float  # between polls of an export
    evidence: float  # how long after a failed job a lost node may still show


class Resources(BaseModel):
    """CPU and memory of a pod, Kubernetes quantities; requests and limits are the same."""

    cpu: str
    memory: str
    machine: str = ""


class Profile(BaseModel):
    """One entry of profiles.yaml."""

    model_config = ConfigDict(extra="forbid")

    about: str
    image: str
    model: str
    fetch_model: bool
    machine: str
    accelerator: str
    nodes: int
    gpus_per_node: int
    zones: list[str]
    head: Resources
    worker: Resources
    lustre: dict[str, int]
    model_gib: float
    checkpoint_gib: float
    max_num_steps: int
    overrides: dict[str, JsonValue]
    environment: dict[str, str]
    timing: Timing


class RunPlan(BaseModel):
    """Everything a run will do, decided before the first create. Hours, GiB, US dollars as
    named.
    """

    run_id: str
    name: str
    profile: str
    image: str
    ray_version: str
    script: str
    model: str
    fetch_model: bool
    nodes: int
    gpus_per_node: int
    machine: str
    accelerator: str
    zones: list[str]
    capacity: str
    head: Resources
    worker: Resources
    lustre_capacity_gib: int
    lustre_throughput: int
    max_num_steps: int
    save_period: int
    keep: int
    overrides: dict[str, JsonValue]
    environment: dict[str, str]
    code: str | None
    export_to: str
    export_required: bool
    resume_from: str | None
    hours: float
    hard_hours: float
    attempts: int
    capacity_wait_minutes: float
    gpus_idle_minutes: float | None = None  # None: idle GPUs are told and the run goes on
    cost_limit: float
    worst_cost: float
    hourly_cost: float
    prices_dated: str
    timing: Timing

    @property
    def gpus(self) -> int:
        """Accelerators of the whole run."""
        return self.nodes * self.gpus_per_node

    @property
    def export_bucket(self) -> str:
        """The bucket of ``export_to``."""
        return self.export_to.removeprefix("gs://").split("/", 1)[0]

    @property
    def checkpoint_dir(self) -> str:
        """Where the training writes ``step_N``: it holds the run id, so no other run's is
        resumed.
        """
        return names.run_folder(self.run_id) + "/checkpoints"

    @property
    def log_dir(self) -> str:
        """Where the training writes its logs: on Lustre, or they would die with the head pod."""
        return names.run_folder(self.run_id) + "/logs"

    def rates(self) -> dict[str, tuple[float, float]]:
        """Return resource -> (pieces, dollars per hour each) while all of the run is up."""
        table = prices()
        if self.machine == "local":  # a folder and a few processes: nobody is billed
            return dict.fromkeys(("accelerators", "lustre", "system"), (1.0, 0.0))
        return {
            "accelerators": (self.nodes, table.node(self.machine, self.capacity)),
            "lustre": (1, table.lustre(self.lustre_capacity_gib, self.lustre_throughput)),
            "system": (1, table.node(self.head.machine, "on-demand") + table.cluster_hour),
        }


@cache
def profiles() -> dict[str, Profile]:
    """Return the profiles shipped with Lustrum."""
    raw: dict[str, Any] = yaml.safe_load((files("lustrum.core") / "profiles.yaml").read_text())
    return {name: Profile(**body) for name, body in raw.items()}


def make_plan(request: StartRequest, run_id: str, export_bucket: str) -> RunPlan:
    """Resolve a request.

    Args:
        request: what was asked.
        run_id: the run's id.
        export_bucket: bucket of the exports when the request names none.

    Raises:
        BadRequest: the request cannot become a run, naming the field and what is accepted.
    """
    profile = profiles().get(request.profile)
    if profile is None:
        raise BadRequest("profile", request.profile, "must be one of " + ", ".join(profiles()))
    image = request.image or profile.image
    try:
        known = images.resolve(image, request.ray_version)
    except ValueError as error:
        raise BadRequest("image", image, str(error)) from None
    overrides = merged(profile.overrides, request.overrides)
    goal = by_name(overrides).get("grpo.max_num_steps", profile.max_num_steps)
    overrides = {
        key: value for key, value in overrides.items() if split_key(key)[1] != "grpo.max_num_steps"
    }
    max_steps = _whole(goal)
    for key, value in overrides.items():
        try:
            images.check_override(image, key, value, request.ray_version)
        except ValueError as error:
            raise BadRequest(f"overrides.{key}", value, str(error)) from None
    nodes = request.nodes or profile.nodes
    _check_batch(by_name(overrides))
    lustre = request.lustre
    capacity = lustre.capacity_gib if lustre else profile.lustre["capacity_gib"]
    tier = lustre.throughput_mbps_per_tib if lustre else profile.lustre["throughput_mbps_per_tib"]
    _check_lustre(capacity, tier, profile, request.checkpoints.keep)
    limits = request.limits
    export_default = f"gs://{export_bucket}/runs/"
    plan = RunPlan(
        run_id=run_id,
        name=request.name,
        profile=request.profile,
        image=image,
        ray_version=known.ray_version,
        script=known.script,
        model=str(by_name(overrides).get("policy.model_name", profile.model)),
        fetch_model=profile.fetch_model,
        nodes=nodes,
        gpus_per_node=profile.gpus_per_node,
        machine=profile.machine,
        accelerator=profile.accelerator,
        zones=request.zones or profile.zones,
        capacity=request.capacity,
        head=profile.head,
        worker=profile.worker,
        lustre_capacity_gib=capacity,
        lustre_throughput=tier,
        max_num_steps=max_steps,
        save_period=request.checkpoints.save_period,
        keep=request.checkpoints.keep,
        overrides=overrides,
        environment=profile.environment,
        code=request.code,
        export_to=f"{_folder(request.checkpoints.export_to or export_default)}{run_id}/",
        export_required=request.checkpoints.required,
        resume_from=request.checkpoints.resume_from,
        hours=limits.hours,
        hard_hours=limits.hours + EXPORT_GRACE_HOURS,
        attempts=limits.attempts,
        capacity_wait_minutes=limits.capacity_wait_minutes,
        gpus_idle_minutes=limits.gpus_idle_minutes,
        cost_limit=limits.cost_usd,
        worst_cost=0,
        hourly_cost=0,
        prices_dated=prices().dated,
        timing=profile.timing,
    )
    try:
        return _priced(plan, prices())
    except BadRequest:
        raise
    except ValueError as error:  # what has no price has no bound
        raise BadRequest("capacity", request.capacity, str(error)) from None


def worst_cost(plan: RunPlan, hours: float) -> float:
    """Return the most a run of ``hours`` costs, dollars."""
    return sum(worst_costs(plan, hours).values())


def worst_costs(plan: RunPlan, hours: float) -> dict[str, float]:
    """Return resource -> the most it costs in a run of ``hours``, dollars: all of it up until the
    deadline, then Lustre and head while the export lasts, and the builds.
    """
    after = {"accelerators": 0.0}  # hours past the deadline
    costs = {
        name: pieces * rate * (hours + after.get(name, EXPORT_GRACE_HOURS))
        for name, (pieces, rate) in plan.rates().items()
    }
    return {**costs, "builds": 4 * 60 * prices().build_minute}


def _priced(plan: RunPlan, table: Prices) -> RunPlan:
    hourly = sum(pieces * rate for pieces, rate in plan.rates().values())
    worst = worst_cost(plan, plan.hours)
    if worst > plan.cost_limit:
        fits = math.floor((plan.cost_limit - worst_cost(plan, 0)) / hourly * 10) / 10
        shorter = f" or lower limits.hours to {fits:.1f}" if fits > 0 else ""
        raise BadRequest(
            "limits.cost_usd",
            plan.cost_limit,
            f"is below the worst case of this run, ${worst:,.0f} for {plan.hours:g} h at "
            f"${hourly:,.2f}/h (prices of {table.dated}); raise it to {math.ceil(worst)}{shorter}",
        )
    return plan.model_copy(update={"worst_cost": round(worst, 2), "hourly_cost": round(hourly, 2)})


def _whole(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise BadRequest(
            "overrides.grpo.max_num_steps", value, "must be a whole number from 1 to 1000000"
        )
    return value


def _check_batch(overrides: dict[str, JsonValue]) -> None:
    """Refuse what NeMo-RL refuses only after the model is loaded: prompts x generations must be a
    multiple of train_global_batch_size, and equal to it with loss_fn.force_on_policy_ratio.
    Source: GRPO's setup at v0.4.0 to v0.7.0.
    """
    keys = (
        "grpo.num_prompts_per_step",
        "grpo.num_generations_per_prompt",
        "policy.train_global_batch_size",
    )
    values = [overrides.get(key, default) for key, default in zip(keys, (32, 8, 256), strict=True)]
    for key, value in zip(keys, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadRequest(f"overrides.{key}", value, "must be a whole number, 1 or more")
    prompts, generations, batch = (int(str(value)) for value in values)
    if keys[2] not in overrides:
        return  # it follows from the other two
    samples = prompts * generations
    if overrides.get("loss_fn.force_on_policy_ratio") is True and batch != samples:
        raise BadRequest(
            f"overrides.{keys[2]}",
            batch,
            f"must be prompts x generations = {samples} with loss_fn.force_on_policy_ratio",
        )
    if samples % batch:
        raise BadRequest(
            f"overrides.{keys[2]}", batch, f"must divide prompts x generations = {samples}"
        )


def _check_lustre(capacity: int, tier: int, profile: Profile, keep: int) -> None:
    smallest, step, largest = LUSTRE_TIERS[tier]
    if not smallest <= capacity <= largest or capacity % step:
        raise BadRequest(
            "lustre.capacity_gib",
            capacity,
            f"must be a multiple of {step} from {smallest} to {largest} at {tier} MB/s per TiB",
        )
    needed = profile.model_gib + 1.1 * profile.checkpoint_gib * (keep + 1)
    if capacity * 0.8 < needed:
        raise BadRequest(
            "checkpoints.keep",
            keep,
            f"needs about {needed:,.0f} GiB with one save in flight; lustre.capacity_gib "
            f"{capacity} leaves too little, raise it or lower keep",
        )


def _folder(uri: str) -> str:
    return uri if uri.endswith("/") else uri + "/"

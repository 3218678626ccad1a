"""`RunPlan`: a request resolved against profiles, tables and prices. Pure; refused before
anything is created.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from pydantic import JsonValue

from lustrum.core import images, recipes, transport
from lustrum.core.cost import Prices, prices
from lustrum.core.overrides import by_name, split_key
from lustrum.core.profiles import Profile, profiles
from lustrum.core.recipes import Recipe
from lustrum.core.request import BadRequest, StartRequest
from lustrum.core.reserve import EXPORT_GRACE_HOURS, export_faults, extension_hours, waiting_price
from lustrum.core.run_plan import LUSTRE_TIERS, RunPlan
from lustrum.core.training_command import (
    TrainingCommand,
    is_megatron,
    training_numbers,
)
from lustrum.head.recipe_numbers import NODES


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
    trainer = request.trainer
    if trainer is not None and (request.overrides or request.recipe):
        raise BadRequest(
            "overrides" if request.overrides else "recipe",
            request.overrides or request.recipe,
            "is NeMo-RL's own; with a trainer write arguments into trainer.command",
        )
    recipe = None if trainer else _recipe(request, profile, known)
    algorithm = recipe.algorithm if recipe else "grpo"
    settings = {} if request.recipe or trainer else profile.settings
    faults: list[BadRequest] = []
    goal = by_name(request.overrides).get(f"{algorithm}.max_num_steps", profile.max_num_steps)
    if trainer is not None and trainer.max_steps is not None:
        goal = trainer.max_steps
    overrides = {
        key: value
        for key, value in request.overrides.items()
        if split_key(key)[1] != f"{algorithm}.max_num_steps"
    }
    if not _is_whole(goal, 1_000_000):
        key = f"overrides.{algorithm}.max_num_steps"
        faults.append(BadRequest(key, goal, "must be a whole number from 1 to 1000000"))
    for key, value in overrides.items():
        try:
            images.check_override(image, key, value, request.ray_version, algorithm)
        except ValueError as error:
            faults.append(BadRequest(f"overrides.{key}", value, str(error)))
    refused = {fault.field for fault in faults}
    overrides = {key: one for key, one in overrides.items() if f"overrides.{key}" not in refused}
    model = recipe.model if recipe and request.recipe else profile.model
    model = str(by_name(overrides).get("policy.model_name", model))
    lustre = request.lustre
    capacity = lustre.capacity_gib if lustre else profile.lustre["capacity_gib"]
    tier = lustre.throughput_mbps_per_tib if lustre else profile.lustre["throughput_mbps_per_tib"]
    limits = request.limits
    export_default = f"gs://{export_bucket}/runs/"
    plan = RunPlan(
        run_id=run_id,
        name=request.name,
        profile=request.profile,
        image=image,
        ray_version=known.ray_version,
        script=trainer.command[0] if trainer else recipe.script if recipe else known.script,
        config=recipe.config if recipe else None,
        algorithm=algorithm,
        recipe_settings=dict(recipe.settings) if recipe else {},
        settings=settings,
        dataset=None if request.recipe or trainer else profile.dataset,
        model=(trainer.model or "") if trainer else model,
        fetch_model=bool(trainer.model) if trainer else profile.fetch_model,
        nodes=request.nodes or (recipe.nodes if recipe and request.recipe else profile.nodes),
        gpus_per_node=profile.gpus_per_node,
        machine=profile.machine,
        accelerator=profile.accelerator,
        zones=request.zones or profile.zones,
        capacity=request.capacity,
        network=_network(request, profile, faults),
        gib=request.gib or known.gib,
        head=profile.head,
        worker=profile.worker,
        lustre_capacity_gib=capacity,
        lustre_throughput=tier,
        max_num_steps=goal if isinstance(goal, int) else 1,
        save_period=_save_period(request, profile),
        keep=request.checkpoints.keep,
        at_deadline=request.checkpoints.at_deadline,
        extend_hours=request.checkpoints.extend_hours,
        extend_cost=request.checkpoints.extend_cost_usd,
        overrides=overrides,
        environment=profile.environment,
        code=request.code,
        trainer=trainer,
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
        extras=prices().extras,
        timing=profile.timing,
    )
    if trainer is None:
        plan, unfit = _fit(plan, by_name(request.overrides))
        faults += unfit
    plan = _sized(plan, profile)
    faults += _lustre_faults(plan)
    faults += export_faults(plan)
    try:
        plan = _priced(plan, prices())
    except BadRequest as bad:
        faults.append(bad)
    except ValueError as error:  # what has no price has no bound
        faults.append(BadRequest("capacity", request.capacity, str(error)))
    if faults:
        raise BadRequest.together(faults)
    return plan


def training_command(plan: RunPlan, wandb: bool = False) -> TrainingCommand:
    """Return what decides the command line of the plan's training."""
    recipe = None
    if plan.config is not None:
        recipe = Recipe(plan.config, plan.algorithm, plan.script, plan.recipe_settings)
    return TrainingCommand(
        image=images.resolve(plan.image, plan.ray_version),
        model=plan.model,
        nodes=plan.nodes,
        gpus_per_node=plan.gpus_per_node,
        checkpoint_dir=plan.checkpoint_dir,
        log_dir=plan.log_dir,
        save_period=plan.save_period,
        keep=plan.keep,
        max_num_steps=plan.max_num_steps,
        overrides=plan.overrides,
        wandb=wandb,
        name=f"{plan.name}-{plan.run_id}",
        resumes=plan.resume_from is not None,
        recipe=recipe,
        settings=plan.settings,
        dataset=plan.dataset,
    )


def worst_cost(plan: RunPlan, hours: float) -> float:
    """Return the most a run of ``hours`` costs, dollars."""
    return sum(worst_costs(plan, hours).values())


def worst_costs(plan: RunPlan, hours: float) -> dict[str, float]:
    """Return resource -> the most it costs in a run of ``hours``, dollars: all of it up until the
    deadline, then Lustre and head while the export lasts, an extension of it, and the builds.
    """
    after = {"accelerators": 0.0}  # hours past the deadline
    costs = {
        name: pieces * rate * (hours + after.get(name, EXPORT_GRACE_HOURS))
        for name, (pieces, rate) in plan.rates().items()
    }
    extended = extension_hours(plan)
    if extended:
        costs["extension"] = extended * waiting_price(plan)
    extras = plan.extras or prices().extras
    costs["builds"] = 4 * 60 * extras.build_minute
    if plan.machine != "local":
        machines = plan.nodes * hours + hours + EXPORT_GRACE_HOURS
        fetched = plan.downloaded_gib * len(plan.zones)
        costs["nat"] = machines * extras.nat_vm_hour + fetched * extras.nat_gib
        kept = (plan.checkpoint_gib or 0) * (hours + EXPORT_GRACE_HOURS)
        costs["storage"] = kept * extras.storage_gib_month / extras.hours_per_month
    return costs


def _priced(plan: RunPlan, table: Prices) -> RunPlan:
    hourly = sum(pieces * rate for pieces, rate in plan.rates().values())
    worst = worst_cost(plan, plan.hours)
    if worst > plan.cost_limit:
        fits = math.floor((plan.cost_limit - worst_cost(plan, 0)) / hourly * 10) / 10
        if worst_cost(plan, fits) > plan.cost_limit:  # what is bought by the whole: not linear
            fits -= 0.1
        shorter = f" or lower limits.hours to {fits:.1f}" if fits > 0 else ""
        raise BadRequest(
            "limits.cost_usd",
            plan.cost_limit,
            f"is below the worst case of this run, ${worst:,.0f} for {plan.hours:g} h at "
            f"${hourly:,.2f}/h (prices of {table.dated}); raise it to {math.ceil(worst)}{shorter}",
        )
    return plan.model_copy(update={"worst_cost": round(worst, 2), "hourly_cost": round(hourly, 2)})


def _recipe(request: StartRequest, profile: Profile, image: images.Image) -> Recipe | None:
    name = request.recipe or profile.recipe
    if name is None:
        return None
    if not image.release:
        if request.recipe is None:
            return None
        raise BadRequest("recipe", name, f"{image.name} has one training and no recipes: omit it")
    try:
        return recipes.find(image.release, name)
    except ValueError as error:
        if request.recipe:
            raise BadRequest("recipe", name, str(error)) from None
        reason = f"has not the recipe of profile {request.profile}: {name} {error}"
        raise BadRequest("image", image.name, reason) from None


def _network(request: StartRequest, profile: Profile, faults: list[BadRequest]) -> str:
    """Return how the nodes talk; ``auto`` stays where the zone decides."""
    has_nics = profile.machine in transport.NICS
    if request.network == transport.RDMA and not has_nics:
        reason = f"machine {profile.machine} has no RDMA NICs; omit it, or say tcp"
        faults.append(BadRequest("network", request.network, reason))
    alone = (request.nodes or profile.nodes) == 1  # its GPUs talk over NVLink
    tcp = not has_nics or request.network == transport.TCP or alone
    if request.network != transport.RDMA and tcp:
        if request.gib is not None:
            reason = "is the plugin for RDMA, which this run does not use: omit it"
            faults.append(BadRequest("gib", request.gib, reason))
        return transport.TCP
    return request.network


def _save_period(request: StartRequest, profile: Profile) -> int:
    given = "save_period" in request.checkpoints.model_fields_set
    asked = request.checkpoints.save_period
    return asked if given else profile.save_period or asked


def _fit(plan: RunPlan, given: Collection[str]) -> tuple[RunPlan, list[BadRequest]]:
    """Return the plan with what follows from how its policy is cut, and everything that NeMo-RL
    would refuse on all GPUs.
    """
    command = training_command(plan)
    recipe = command.any_recipe
    if recipe is None:
        return plan, []
    release, numbers = command.image.release, training_numbers(command)
    faults = [
        BadRequest("nodes", one.value, one.reason)
        if one.key == NODES
        else BadRequest(f"overrides.{one.key}", one.value, one.reason)
        for one in recipes.check(recipe, release, numbers, given)
    ]
    cut = "" if faults else recipes.told(recipe, release, numbers)
    return plan.model_copy(update={"parallel": cut}), faults


def _is_whole(value: JsonValue, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= largest


def _sized(plan: RunPlan, profile: Profile) -> RunPlan:
    """Return the plan with its sizes: the profile's for its own model, else of the shape."""
    own = (profile.model_gib, profile.checkpoint_gib)
    converted = plan.trainer is None and is_megatron(training_command(plan))
    if plan.trainer is not None:
        own = recipes.sizes(plan.model, False) or (None, None)
    elif plan.model != profile.model or None in own:
        own = recipes.sizes(plan.model, converted) or own
    model, checkpoint = (None if one is None else round(one, 1) for one in own)
    fetched = model / 2 if model is not None and converted else model
    return plan.model_copy(
        update={"model_gib": model, "fetched_gib": fetched, "checkpoint_gib": checkpoint}
    )


def _lustre_faults(plan: RunPlan) -> list[BadRequest]:
    capacity, tier = plan.lustre_capacity_gib, plan.lustre_throughput
    smallest, step, largest = LUSTRE_TIERS[tier]
    if not smallest <= capacity <= largest or capacity % step:
        return [
            BadRequest(
                "lustre.capacity_gib",
                capacity,
                f"must be a multiple of {step} from {smallest} to {largest} "
                f"at {tier} MB/s per TiB",
            )
        ]
    needed = (plan.model_gib or 0) + 1.1 * (plan.checkpoint_gib or 0) * (plan.keep + 1)
    if capacity * 0.8 < needed:
        return [
            BadRequest(
                "checkpoints.keep",
                plan.keep,
                f"needs about {needed:,.0f} GiB with one save in flight; lustre.capacity_gib "
                f"{capacity} leaves too little, raise it or lower keep",
            )
        ]
    return []


def _folder(uri: str) -> str:
    return uri if uri.endswith("/") else uri + "/"

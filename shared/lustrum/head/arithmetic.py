"""Whether the numbers of a NeMo-RL training fit together: said before a GPU is up.

The same rules are used at the door, on what Lustrum knows of a recipe, and on the Ray head while
the data is staged, on what the image's own loader resolved. Each is one that NeMo-RL (v0.4.0 to
v0.7.0) asserts, on all GPUs, after minutes: `Policy.__init__` (lm_policy.py), `setup` of each
algorithm, `shard_by_batch_size` and `make_microbatch_iterator` (batched_data_dict.py),
`VllmGeneration.__init__`, megatron-core's `initialize_model_parallel`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lustrum.head.recipe_numbers import (
    BATCH,
    NODES,
    SAMPLED,
    SETTINGS,
    SPLITTING,
    TRAIN_ONLY,
    Fault,
    Model,
    Numbers,
    is_count,
)

MAX_NODES = 64
_COUNTS = ("_size", "_step", "_prompt", "_per_node", "num_nodes")


def faults(
    algorithm: str,
    release: tuple[int, int],
    settings: Mapping[str, Any],
    model: Model | None = None,
    given: Collection[str] = (),
) -> list[Fault]:
    """Return everything that cannot work, the first to be hit first.

    Args:
        algorithm: the section of the configuration: grpo, sft, dpo, distillation, ppo.
        release: of NeMo-RL, (0, 6) for v0.6.0.
        settings: dotted key -> value of what SETTINGS names, resolved.
        model: heads and layers, when known.
        given: keys that the request set: of two that do not fit, one of these is at fault.
    """
    numbers = Numbers(algorithm, settings)
    found = _not_usable(numbers) or _backend(numbers)
    if found:
        return found
    return [
        *_validation(numbers, release),
        *_batches(numbers, release),
        *_world(numbers, given),
        *_micro_batches(numbers, release),
        *_generation(numbers),
        *(_cuts(numbers, model) if model else ()),
    ]


def working_nodes(
    algorithm: str,
    release: tuple[int, int],
    settings: Mapping[str, Any],
    model: Model | None = None,
) -> list[int]:
    """Return the numbers of nodes, up to MAX_NODES, that no rule refuses."""
    return [
        nodes
        for nodes in range(1, MAX_NODES + 1)
        if not any(
            fault.key == NODES
            for fault in faults(algorithm, release, {**settings, NODES: nodes}, model)
        )
    ]


def _not_usable(numbers: Numbers) -> list[Fault]:
    """Return counts that are none and switches that are neither on nor off; an interpolation that
    could not be followed is left out.
    """
    found = []
    for name, default in SETTINGS.items():
        value = numbers[name]
        if value is None or str(value).startswith("${"):
            continue
        if isinstance(default, bool) and not isinstance(value, bool):
            found.append(Fault(numbers.key(name), value, "must be true or false"))
        elif name.endswith(_COUNTS) and "split" not in name and not is_count(value):
            found.append(Fault(numbers.key(name), value, "must be a whole number, 1 or more"))
    return found


def _backend(numbers: Numbers) -> list[Fault]:
    key = "policy.megatron_cfg.enabled"
    other = "policy.dtensor_cfg.enabled"
    if numbers[key] == numbers[other]:
        reason = f"{key} or {other} must be true, and not both"
        return [Fault(key, numbers[key], reason)]
    if numbers.algorithm in SAMPLED and numbers["policy.generation.backend"] is None:
        return [Fault("policy.generation", None, f"is needed by {numbers.algorithm}")]
    return []


def _validation(numbers: Numbers, release: tuple[int, int]) -> list[Fault]:
    period = numbers["<algorithm>.val_period"]
    wanted = (isinstance(period, int | float) and period > 0) or any(
        numbers[f"<algorithm>.val_at_{when}"] is True for when in ("start", "end")
    )
    if not wanted or numbers.algorithm == "dpo" or numbers["data.validation"] is not None:
        return []
    if release >= (0, 6):
        name = numbers["data.train.dataset_name"]
        split = numbers["data.train.split_validation_size"]
        splits = isinstance(split, int | float) and split > 0
        lacking = name in TRAIN_ONLY or (name in SPLITTING and not splits)
        how = "data.validation"
    else:
        name = numbers["data.dataset_name"]
        lacking = name == "ResponseDataset" and numbers["data.val_data_path"] is None
        how = "+data.val_data_path"
    if not lacking:
        return []
    key = numbers.key("<algorithm>.val_period")
    return [
        Fault(key, period, f"needs a validation set, {name} has none: set {how}, or {key} to 0")
    ]


def _batches(numbers: Numbers, release: tuple[int, int]) -> list[Fault]:
    samples, batch = numbers.samples(), numbers[BATCH]
    if samples is None or not is_count(batch):
        return []
    if release >= (0, 5) and numbers["loss_fn.force_on_policy_ratio"] is True and batch != samples:
        return [
            Fault(
                BATCH,
                batch,
                f"must be prompts x generations = {samples} with loss_fn.force_on_policy_ratio",
            )
        ]
    if samples % batch:
        return [Fault(BATCH, batch, f"must divide prompts x generations = {samples}")]
    return []


def _world(numbers: Numbers, given: Collection[str]) -> list[Fault]:
    if numbers["env.reward_model.enabled"]:
        return []  # a reward model takes nodes of its own
    nodes, each = numbers[NODES], numbers["cluster.gpus_per_node"]
    trains, _ = numbers.gpus()
    replica, sizes = numbers.replica(), numbers.parallel()
    cut = " x ".join(f"{name}{size}" for name, size in sizes.items())
    if trains < replica or trains % replica:
        return [
            Fault(
                NODES,
                nodes,
                f"a replica of the policy is {replica} GPUs ({cut}): {trains} GPUs of {nodes} x "
                f"{each} are no multiple of it",
            )
        ]
    experts = (
        numbers["policy.megatron_cfg.expert_model_parallel_size"]
        * numbers["policy.megatron_cfg.expert_tensor_parallel_size"]
        * sizes["PP"]
    )
    if numbers.is_megatron and trains % experts:
        reason = f"experts and PP take {experts} GPUs: {trains} are no multiple of it"
        return [Fault(NODES, nodes, reason)]
    replicas, batch = trains // replica, numbers[BATCH]
    if is_count(batch) and batch % replicas:
        if BATCH in given:
            reason = f"must be a multiple of {replicas}, the data-parallel size on {nodes} nodes"
            return [Fault(BATCH, batch, reason)]
        return [
            Fault(
                NODES,
                nodes,
                f"a data-parallel size of {replicas} ({trains} GPUs, {replica} a replica) does "
                f"not divide {BATCH} {batch}",
            )
        ]
    return []


def _micro_batches(numbers: Numbers, release: tuple[int, int]) -> list[Fault]:
    packs = numbers["policy.sequence_packing.enabled"] is True
    sizes_itself = numbers["policy.dynamic_batching.enabled"] is True
    micro, logprob = numbers["policy.train_micro_batch_size"], numbers["policy.logprob_batch_size"]
    found = []
    if packs and sizes_itself:
        key = "policy.dynamic_batching.enabled"
        found.append(Fault(key, True, "excludes policy.sequence_packing.enabled: use one"))
    if numbers.algorithm == "dpo" and (packs or sizes_itself):
        key = f"policy.{'sequence_packing' if packs else 'dynamic_batching'}.enabled"
        found.append(Fault(key, True, "must be false: DPO supports neither"))
    if sizes_itself and numbers.parallel()["PP"] > 1:
        key = "policy.dynamic_batching.enabled"
        found.append(Fault(key, True, "must be false with a pipeline of more than one stage"))
    if (
        release >= (0, 6)
        and numbers.parallel()["TP"] >= 4
        and is_count(logprob)
        and logprob != micro
        and numbers["loss_fn.force_on_policy_ratio"] is not True
    ):
        reason = f"must equal policy.train_micro_batch_size {micro} with TP of 4 or more"
        found.append(Fault("policy.logprob_batch_size", logprob, reason))
    trains, _ = numbers.gpus()
    replicas = max(1, trains // numbers.replica())
    if packs or sizes_itself or numbers["env.reward_model.enabled"]:
        return found
    for key, size, total in (
        ("policy.train_micro_batch_size", micro, numbers[BATCH]),
        ("policy.logprob_batch_size", logprob, numbers.samples()),
    ):
        if total is None or not (is_count(size) and is_count(total)) or total % replicas:
            continue
        share = total // replicas
        if share % size:
            found.append(
                Fault(key, size, f"must divide {share}, the samples of one of {replicas} replicas")
            )
    return found


def _generation(numbers: Numbers) -> list[Fault]:
    if numbers.algorithm not in SAMPLED or numbers["policy.generation.backend"] != "vllm":
        return []
    nodes, each = numbers[NODES], numbers["cluster.gpus_per_node"]
    colocated = numbers["policy.generation.colocated.enabled"]
    resources = "policy.generation.colocated.resources."
    own, count = numbers[resources + "gpus_per_node"], numbers[resources + "num_nodes"]
    if not colocated and nodes == 1 and not (is_count(own) and own < each):
        return [
            Fault(resources + "gpus_per_node", own, f"must be from 1 to {each - 1} on one node")
        ]
    if not colocated and nodes > 1:
        if not is_count(count):
            return [Fault(resources + "num_nodes", count, "must be 1 or more, fewer than nodes")]
        if count >= nodes:
            return [Fault(NODES, nodes, f"generation alone takes {count} nodes: give more")]
        if own != each:
            return [Fault(resources + "gpus_per_node", own, f"must be {each}, a whole node")]
    size = numbers["policy.generation.vllm_cfg.tensor_parallel_size"]
    pipeline = numbers["policy.generation.vllm_cfg.pipeline_parallel_size"]
    _, generates = numbers.gpus()
    if generates % (size * pipeline) and not numbers["env.reward_model.enabled"]:
        return [
            Fault(
                "policy.generation.vllm_cfg.tensor_parallel_size",
                size,
                f"with a pipeline of {pipeline} must divide the {generates} GPUs that generate",
            )
        ]
    return []


def _cuts(numbers: Numbers, model: Model) -> list[Fault]:
    """Return the cuts that the model's heads and layers do not allow."""
    sizes = numbers.parallel()
    tensor = "policy.dtensor_cfg.tensor_parallel_size"
    if numbers.is_megatron:
        tensor = "policy.megatron_cfg.tensor_model_parallel_size"
    cuts = [(tensor, sizes["TP"])]
    if numbers.algorithm in SAMPLED and numbers["policy.generation.backend"] == "vllm":
        key = "policy.generation.vllm_cfg.tensor_parallel_size"
        cuts.append((key, numbers[key]))
    fits = [one for one in range(1, 17) if model.heads % one == 0]
    found = [
        Fault(
            key,
            size,
            f"must divide the model's {model.heads} attention heads: "
            + ", ".join(str(one) for one in fits),
        )
        for key, size in cuts
        if model.heads % size
    ]
    uneven = any(
        numbers[f"policy.megatron_cfg.num_layers_in_{which}_pipeline_stage"] is not None
        for which in ("first", "last")
    )
    if numbers.is_megatron and not uneven and model.layers % sizes["PP"]:
        key = "policy.megatron_cfg.pipeline_model_parallel_size"
        found.append(Fault(key, sizes["PP"], f"must divide the model's {model.layers} layers"))
    return found

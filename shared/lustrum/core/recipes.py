"""NeMo-RL's own recipes: what a run may be made of, and whether its numbers fit. Pure.

`recipes.json` is read out of NeMo-RL's tags by `infra/nemo_recipes.py`: path of a configuration ->
algorithm, script and the settings that a rule of `head.arithmetic` looks at. `models.yaml` has the
shapes of the models they train.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import JsonValue

from lustrum.core.overrides import split_key
from lustrum.head.arithmetic import faults, working_nodes
from lustrum.head.recipe_numbers import BATCH, NODES, SETTINGS, Fault, Model, Numbers, version

GIB = 2**30
# Bytes of a checkpoint for each parameter. Megatron's distributed optimizer: bf16 weights, fp32
# master weights, two fp32 moments. DTensor: fp32 weights ("Always load the model in float32",
# dtensor_policy_worker.py) and two fp32 moments.
MEGATRON_BYTES, DTENSOR_BYTES = 14, 12
HUB_BYTES = 2  # bf16 weights
_VERSION = re.compile(r"\.v\d+$")
_REFERENCE = re.compile(r"\$\{([a-z_.]+)\}")


@dataclass(frozen=True)
class Recipe:
    """One configuration of a release.

    Attributes:
        config: its path in the image's working directory.
        algorithm: the section of its own settings: grpo, sft, dpo, distillation, ppo.
        script: the script that reads it.
        settings: dotted key -> value, of what a rule looks at, where it is not the default.
    """

    config: str
    algorithm: str
    script: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step_key(self) -> str:
        """The setting that holds the last step."""
        return f"{self.algorithm}.max_num_steps"

    @property
    def model(self) -> str:
        """The model it trains when nobody says another."""
        return str(self.settings["policy.model_name"])

    @property
    def nodes(self) -> int:
        """The nodes it was made for."""
        return int(self.settings.get(NODES, 1))


@dataclass(frozen=True)
class Shape:
    """A decoder of the hub: see models.yaml. ``parameters`` counts every weight once."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    head: int = 0  # 0: hidden / heads
    experts: int = 0  # 0: a dense model
    bias: bool = False  # of query, key and value
    norms: bool = False  # of query and key
    tied: bool = False  # input and output embeddings

    @property
    def parameters(self) -> int:
        """Weights of the whole model."""
        head = self.head or self.hidden // self.heads
        query, pair = self.heads * head, 2 * self.kv_heads * head
        attention = self.hidden * (2 * query + pair)
        attention += (query + pair) * self.bias + 2 * head * self.norms
        feed = 3 * self.hidden * self.ffn * (self.experts or 1) + self.hidden * self.experts
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + feed + 2 * self.hidden) + self.hidden + embeddings


def find(release: str, name: str) -> Recipe:
    """Return a recipe of a release by its path, or by its name with or without the version.

    Raises:
        ValueError: the release has none of that name; lists those that look like it.
    """
    known = _releases().get(release, {})
    wanted = name.rsplit("/", 1)[-1].removesuffix(".yaml")
    exact = [path for path in known if path == name or ("/" not in name and _stem(path) == wanted)]
    bare = _VERSION.sub("", wanted)
    near = exact or sorted(path for path in known if _VERSION.sub("", _stem(path)) == bare)
    if "/" in name and not exact:
        near = [path for path in near if path.rsplit("/", 1)[0] == name.rsplit("/", 1)[0]]
    if near:
        return known[near[-1]]
    words = set(re.split(r"[-_./]", bare))
    like = sorted(known, key=lambda path: -len(words & set(re.split(r"[-_./]", _stem(path)))))[:5]
    raise ValueError(
        f"is not a recipe of NeMo-RL {release}; near it are "
        + ", ".join(_stem(path) for path in like)
        + " (docs/recipes.md)"
    )


def names(release: str) -> list[str]:
    """Return the names of all recipes of a release."""
    return sorted(_stem(path) for path in _releases().get(release, {}))


def numbers(
    recipe: Recipe, overrides: Mapping[str, JsonValue], nodes: int, gpus_per_node: int
) -> dict[str, Any]:
    """Return the settings that a training will have: the recipe's, changed by the overrides."""
    wanted = {one.replace("<algorithm>", recipe.algorithm) for one in SETTINGS}
    found = {name: value for name, value in recipe.settings.items() if name in wanted}
    for key, value in overrides.items():
        mark, name = split_key(key)
        if mark == "~" or not isinstance(value, dict):  # all of what was there is gone
            found = {old: was for old, was in found.items() if not old.startswith(name + ".")}
        for part, inner in _leaves(name, None if mark == "~" else value):
            if part in wanted:
                found[part] = inner
    for name, value in found.items():
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if match:
            found[name] = found.get(match[1], SETTINGS.get(match[1]))
    return found | {NODES: nodes, "cluster.gpus_per_node": gpus_per_node}


def check(
    recipe: Recipe,
    release: str,
    settings: Mapping[str, Any],
    given: Collection[str] = (),
) -> list[Fault]:
    """Return what cannot work; a fault of the nodes says which numbers of nodes would."""
    released, model = version(release), cut_of(str(settings.get("policy.model_name")))
    found = faults(recipe.algorithm, released, settings, model, given)
    if any(one.key == BATCH for one in found):  # then the nodes are those of a batch that fits
        settings = {**settings, BATCH: Numbers(recipe.algorithm, settings).samples()}
    return [
        Fault(
            one.key, one.value, one.reason + "; " + _that_work(recipe, released, settings, model)
        )
        if one.key == NODES
        else one
        for one in found
    ]


def nodes_that_work(recipe: Recipe, release: str, settings: Mapping[str, Any]) -> list[int]:
    """Return the numbers of nodes that the recipe with these settings can have."""
    model = cut_of(str(settings.get("policy.model_name")))
    return working_nodes(recipe.algorithm, version(release), settings, model)


def told(recipe: Recipe, release: str, settings: Mapping[str, Any]) -> str:
    """Return how the policy is cut, and the numbers of nodes that work, for people."""
    found = Numbers(recipe.algorithm, settings)
    cut = " x ".join(f"{name}{size}" for name, size in found.parallel().items() if size > 1)
    work = ", ".join(map(str, nodes_that_work(recipe, release, settings)))
    trains, _ = found.gpus()
    return (
        f"{'Megatron' if found.is_megatron else 'DTensor'}, {cut or 'not cut'}: "
        f"{found.replica()} GPUs a replica, {trains // found.replica()} replicas; "
        f"nodes that work: {work or 'none'}"
    )


def cut_of(model: str) -> Model | None:
    """Return heads and layers of a model, None when it is not in models.yaml."""
    shape = shapes().get(model)
    return None if shape is None else Model(shape.heads, shape.layers)


def parameters(model: str) -> int | None:
    """Return the weights of a model: of its shape, or, unknown, what its name says (`27b`) and a
    tenth more; None when the name says nothing.
    """
    shape = shapes().get(model)
    if shape is not None:
        return shape.parameters
    said = re.findall(r"(?<![0-9a-z.])(\d+(?:\.\d+)?)b(?![a-z0-9])", model.lower())
    return int(max(map(float, said)) * 1.1e9) if said else None


def sizes(model: str, is_megatron: bool) -> tuple[float, float] | None:
    """Return GiB of the model's files (the Megatron conversion among them) and of one checkpoint;
    None when the size of the model cannot be told.
    """
    count = parameters(model)
    if count is None:
        return None
    copies, each = (2, MEGATRON_BYTES) if is_megatron else (1, DTENSOR_BYTES)
    return count * HUB_BYTES * copies / GIB, count * each / GIB


@cache
def shapes() -> dict[str, Shape]:
    """Return model -> shape, of models.yaml."""
    raw = yaml.safe_load((files("lustrum.core") / "models.yaml").read_text())
    return {name: Shape(**body) for name, body in raw.items()}


@cache
def _releases() -> dict[str, dict[str, Recipe]]:
    raw = json.loads((files("lustrum.core") / "recipes.json").read_text())
    found: dict[str, dict[str, Recipe]] = {}
    before: dict[str, Recipe] = {}
    for release, entries in raw.items():
        before = {
            path: before[path] if body == "same" else Recipe(path, **body)
            for path, body in entries.items()
        }
        found[release] = before
    return found


def _that_work(
    recipe: Recipe, released: tuple[int, int], settings: Mapping[str, Any], model: Model | None
) -> str:
    work = working_nodes(recipe.algorithm, released, settings, model)
    if not work:
        return "no number of nodes works with these settings"
    return "nodes that work: " + ", ".join(map(str, work))


def _leaves(name: str, value: JsonValue) -> list[tuple[str, JsonValue]]:
    """Return the leaves of an override; a map or list that a rule asks for by name is `set`."""
    if not isinstance(value, dict):
        return [(name, "set" if isinstance(value, list) else value)]
    inner = [leaf for part, item in value.items() for leaf in _leaves(f"{name}.{part}", item)]
    return [(name, "set"), *inner]


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".yaml")

"""The profiles shipped with Lustrum: where everything not in a request comes from."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, JsonValue


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
    recipe: str | None = None  # of the image's NeMo-RL; null: the original one, or the image's own
    settings: dict[str, JsonValue] | None = None  # what differs from it; a request may change that
    dataset: str | None = None  # null: the recipe's own
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
    model_gib: float | None = None  # null: of the model's shape, core/recipes.py
    checkpoint_gib: float | None = None
    max_num_steps: int
    save_period: int | None = None  # null: a request's own default
    environment: dict[str, str]
    timing: Timing


@cache
def profiles() -> dict[str, Profile]:
    """Return the profiles shipped with Lustrum."""
    raw: dict[str, Any] = yaml.safe_load((files("lustrum.core") / "profiles.yaml").read_text())
    return {name: Profile(**body) for name, body in raw.items()}

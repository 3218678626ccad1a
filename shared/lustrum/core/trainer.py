"""A trainer of the person's own: its command, how it leaves checkpoints, what it says. Pure.

Whatever it is (verl, TRL, Megatron-LM, a script), it gets the same life as NeMo-RL: staged,
watched, resumed, exported, destroyed. Its command is an argument list in which names in braces
stand for what only the run knows; the same is in its environment. No shell reads any of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from lustrum.core.plain_text import looks_secret
from lustrum.head.checkpoint_rule import LAYOUTS, NEMO_RL, Layout, own_layout

_NAMED = re.compile(r"\{([a-z_]{1,40})\}")
_VALUES = (
    "checkpoint_dir",
    "log_dir",
    "model",
    "max_steps",
    "save_period",
    "keep",
    "nodes",
    "gpus_per_node",
    "gpus",
    "run_id",
)
# The last is left to the head: the argument that holds it is left out in the first attempt.
_KNOWN = (*_VALUES, "resume_from")

Argument = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
Text = Annotated[str, StringConstraints(min_length=3, max_length=100)]
Model = Annotated[
    str,
    StringConstraints(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?)$", max_length=200
    ),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OwnLayout(_Strict):
    """Folders of a script's own: ``{"pattern": "ckpt-{step}", "complete_when": "done.txt"}``."""

    pattern: str = Field(max_length=100)
    complete_when: str = Field(max_length=200)

    @model_validator(mode="after")
    def _usable(self) -> OwnLayout:
        own_layout(self.pattern, self.complete_when)
        return self


class TrainerCheckpoints(_Strict):
    """Where a trainer's checkpoints are whole and how they are named."""

    layout: Literal["nemo-rl", "verl", "megatron", "huggingface"] | OwnLayout


class TrainerProgress(_Strict):
    """What the output says, each a text with ``{}`` where the number stands."""

    step: Text
    reward: Text | None = None
    loss: Text | None = None

    @field_validator("step", "reward", "loss")
    @classmethod
    def _one_number(cls, value: str | None) -> str | None:
        if value is not None and (value.count("{}") != 1 or not value.replace("{}", "").strip()):
            raise ValueError("must be a text with one {} where the number stands, such as step {}")
        return value


class TrainerRequest(_Strict):
    """Train with this command instead of the profile's recipe.

    Attributes:
        command: argument list, run on the Ray head in the code's folder (else the image's).
        checkpoints: how it leaves them.
        progress: what it prints; needed where the layout does not say how its trainer prints.
        max_steps: the last step; the profile's when not given.
        model: of the hub, fetched onto Lustre while no GPU is up.
    """

    command: list[Argument] = Field(min_length=1, max_length=200)
    checkpoints: TrainerCheckpoints
    progress: TrainerProgress | None = None
    max_steps: int | None = Field(None, ge=1, le=1_000_000)
    model: Model | None = None

    @field_validator("command")
    @classmethod
    def _arguments(cls, value: list[str]) -> list[str]:
        for item in value:
            if "\x00" in item:
                raise ValueError("must not hold a NUL character")
            if looks_secret("", item):
                raise ValueError("must hold no secret: it is shown by Ray's dashboard")
            unknown = [name for name in _NAMED.findall(item) if name not in _KNOWN]
            if unknown:
                raise ValueError(
                    f"{{{unknown[0]}}} is not known; known are "
                    + ", ".join(f"{{{name}}}" for name in _KNOWN)
                )
        return value

    @model_validator(mode="after")
    def _fits(self) -> TrainerRequest:
        layout = self.checkpoints.layout
        if self.progress is None and (isinstance(layout, OwnLayout) or layout == "megatron"):
            raise ValueError("progress: must be given with this layout, or a hang cannot be seen")
        told = any("{checkpoint_dir}" in item for item in self.command)
        if not told and layout in ("nemo-rl", "verl", "megatron"):
            raise ValueError(
                "command: must hold {checkpoint_dir}, the only folder that is watched and exported"
            )
        return self


def layout_of(trainer: TrainerRequest | None) -> Layout:
    """Return how the trainer of a run leaves its checkpoints."""
    if trainer is None:
        return NEMO_RL
    layout = trainer.checkpoints.layout
    if isinstance(layout, OwnLayout):
        return own_layout(layout.pattern, layout.complete_when)
    return LAYOUTS[layout]


def layout_keys(trainer: TrainerRequest | None) -> dict[str, Any]:
    """Return the keys of the supervisor's spec that name the layout."""
    layout = None if trainer is None else trainer.checkpoints.layout
    if isinstance(layout, OwnLayout):
        return {
            "checkpoint_layout": "own",
            "checkpoint_pattern": layout.pattern,
            "complete_when": layout.complete_when,
        }
    return {"checkpoint_layout": layout}


def progress_texts(trainer: TrainerRequest) -> dict[str, str]:
    """Return what the output says: step, reward, loss -> text with ``{}``."""
    return trainer.progress.model_dump(exclude_none=True) if trainer.progress else {}


def filled(trainer: TrainerRequest, values: Mapping[str, Any]) -> list[str]:
    """Return the command with each ``{name}`` of ``values`` put in its place."""

    def put(match: re.Match[str]) -> str:
        name = match.group(1)
        return str(values[name]) if name in values else match.group(0)

    return [_NAMED.sub(put, item) for item in trainer.command]


def environment(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the same values as environment: ``LUSTRUM_CHECKPOINT_DIR`` and so on."""
    return {f"LUSTRUM_{name.upper()}": str(value) for name, value in values.items()}

"""The one rule of checkpoints: which folder is a step, when it is complete, what may be removed.

The supervisor asks it of the folders on Lustre, the control plane of what a listing told and of
what lies in the bucket. Pure, and of the standard library alone.

A `Layout` says how a trainer writes:

* **nemo-rl** writes ``tmp_step_N`` and renames it to ``step_N``: the rename is the commit, and
  `training_info.json` names the total step. Source: NeMo-RL's CheckpointManager.
* **verl** fills ``global_step_N`` in its place and then writes N into
  `latest_checkpointed_iteration.txt` beside it. Source: verl's RayPPOTrainer._save_checkpoint.
* **megatron** does the same with ``iter_0000010``. Source: Megatron-LM's checkpointing.py; slime
  inherits it.
* **huggingface** fills ``checkpoint-N`` in its place; `trainer_state.json`, with its
  ``global_step``, comes last. Source: transformers' Trainer._save_checkpoint; TRL inherits it.
* **own**: a pattern with ``{step}``, and a file that is there once the folder is complete.

Whatever the layout: once the supervisor has written its manifest, a step has every file that the
manifest names, in the size it names. An unreadable manifest counts as none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MANIFEST = "lustrum-manifest.json"
_STEP = re.compile(r"\{step(?::0([1-9]))?\}")  # in a pattern: where the number stands


@dataclass(frozen=True)
class Layout:
    """How a trainer leaves its checkpoints.

    Attributes:
        name: as a request names it.
        pattern: name of a step's folder, ``{step}`` where its number stands, ``{step:07}`` when
            it has seven digits at least.
        proof: file in the folder that shows that it is complete, None when ``tracker`` does.
        total_key: key of the proof's JSON that says how many steps are done, None: it is no JSON.
        tracker: file beside the folders with the newest complete step.
        renamed: prefixes of a folder that is being written, before it gets its own name; without
            one, files may still grow after the proof is there.
        replaced: prefix of a folder whose successor is being put in its place.
    """

    name: str
    pattern: str
    proof: str | None = None
    total_key: str | None = None
    tracker: str | None = None
    renamed: tuple[str, ...] = ()
    replaced: str | None = None

    @property
    def is_atomic(self) -> bool:
        """Say whether a folder that has its name does not grow any more."""
        return self.replaced is not None

    def folder(self, step: int) -> str:
        """Return the name of a step's folder."""
        return _STEP.sub(lambda found: str(step).zfill(int(found.group(1) or 0)), self.pattern)

    def step_of(self, name: str, prefix: str = "") -> int | None:
        """Return the step of a folder's name; None for one that is being written or replaced."""
        before, _, after = _STEP.split(self.pattern)
        match = re.fullmatch(re.escape(prefix + before) + "([0-9]{1,9})" + re.escape(after), name)
        step = int(match.group(1)) if match else None
        return step if step is not None and prefix + self.folder(step) == name else None


_TRACKER = "latest_checkpointed_iteration.txt"
NEMO_RL = Layout(
    "nemo-rl",
    "step_{step}",
    proof="training_info.json",
    total_key="total_steps",
    renamed=("tmp_",),
    replaced="old_",
)
LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        NEMO_RL,
        Layout("verl", "global_step_{step}", tracker=_TRACKER),
        Layout("megatron", "iter_{step:07}", tracker=_TRACKER),
        Layout(
            "huggingface",
            "checkpoint-{step}",
            proof="trainer_state.json",
            total_key="global_step",
            renamed=("tmp-",),  # transformers 4.36 to 4.38
        ),
    )
}


def own_layout(pattern: str, complete_when: str) -> Layout:
    """Return the layout of a person's own trainer.

    Args:
        pattern: name of a step's folder with one ``{step}``, such as ``ckpt-{step}``.
        complete_when: file in it, relative, that is there once the folder is complete.

    Raises:
        ValueError: the pattern or the file cannot be used; says what can.
    """
    around = _STEP.split(pattern)[::2]
    if len(around) != 2 or not re.fullmatch(r"[A-Za-z0-9_.=-]{0,100}", "".join(around)):
        raise ValueError("must be the name of a folder with one {step}, such as ckpt-{step}")
    if pattern.startswith(("broken_", "pruned_", "old_", "tmp", ".")):
        raise ValueError("must not begin with broken_, pruned_, old_, tmp or a dot")
    if around[0][-1:].isdigit() or around[1][:1].isdigit():
        raise ValueError("must not hold a digit beside {step}")
    parts = complete_when.split("/")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./=-]{0,199}", complete_when) or any(
        part in ("", ".", "..") for part in parts
    ):
        raise ValueError("must be a file in the step's folder, relative to it, such as done.txt")
    return Layout("own", pattern, proof=complete_when)


# What verl leaves of a step beyond max_actor_ckpt_to_keep: it removes the weights alone.
_LEFT = "data.pt"


@dataclass(frozen=True, order=True)
class StepFolder:
    """A committed step: files and bytes without the manifest; ``total_steps`` None if unknown."""

    step: int
    files: int
    bytes: int
    total_steps: int | None
    complete: bool


def is_manifest(path: str) -> bool:
    """Say whether a file of a step is Lustrum's own."""
    return path in (MANIFEST, MANIFEST + ".tmp")


def json_object(text: str | None) -> dict[str, Any]:
    """Return the object in a JSON text; {} when there is none or it is something else."""
    try:
        value = json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def judge(
    layout: Layout,
    name: str,
    sizes: Mapping[str, int],
    proof: str | None = None,
    manifest: str | None = None,
    tracker: str | None = None,
) -> StepFolder | None:
    """Judge one folder; None when its name is not that of a committed step.

    Args:
        layout: of its trainer.
        name: of the folder.
        sizes: relative path -> bytes of every regular file in it.
        proof, manifest, tracker: text of these files, None when absent.
    """
    step = layout.step_of(name)
    if step is None:
        return None
    found = {path: size for path, size in sizes.items() if not is_manifest(path)}
    promised = json_object(manifest).get("sizes")
    intact = not isinstance(promised, dict) or all(
        found.get(path) == size for path, size in promised.items()
    )
    total: int | None = None
    if layout.total_key is not None:
        total = _whole(json_object(proof).get(layout.total_key))
    elif layout.proof is not None:
        total = step if layout.proof in found else None
    else:  # the tracker may have stayed where the folder was copied from: its manifest proves it
        newest = _whole_text(tracker)
        proved = (newest is not None and step <= newest) or isinstance(promised, dict)
        total = step if proved and any(path != _LEFT for path in found) else None
    return StepFolder(
        step, len(found), sum(found.values()), total, complete=total is not None and intact
    )


def newest_complete(checkpoints: Iterable[StepFolder]) -> StepFolder | None:
    """Return the complete step with the highest number."""
    return max((one for one in checkpoints if one.complete), default=None)


def to_prune(checkpoints: Iterable[StepFolder], keep: int) -> tuple[int, ...]:
    """Return the steps to remove so that the newest ``keep`` complete ones stay, ascending.

    Never the newest complete one, and nothing newer than it: that may be a commit this instant.
    """
    every = sorted(checkpoints)
    kept = [one.step for one in every if one.complete][-max(keep, 1) :]
    if not kept:
        return ()
    return tuple(one.step for one in every if one.step < kept[-1] and one.step not in kept)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _whole_text(text: str | None) -> int | None:
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*", text or "")
    return int(match.group(1)) if match else None

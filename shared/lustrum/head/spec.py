"""What the supervisor is told: `Spec` lists every key."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, fields

from lustrum.head.checkpoint_rule import LAYOUTS, Layout, own_layout
from lustrum.head.exits import JobFailed
from lustrum.head.names import LUSTRE_MOUNT, MODEL_CACHE


@dataclass
class Spec:
    """Everything the supervisor is told. Seconds and bytes; paths absolute unless said."""

    run_id: str = ""
    attempt: int = 1
    lustre: str = LUSTRE_MOUNT
    command: list[str] = field(default_factory=list)  # never through a shell
    workdir: str | None = None  # of the command when there is no code; null: this one's own
    max_steps: int = 0
    environment: dict[str, str] = field(default_factory=dict)  # of the training, over the pod's
    model: str | None = None
    fetch_model: bool = False
    hf_home: str | None = None  # null: <lustre>/cache/huggingface
    code: str | None = None  # gs://bucket/path/code.zip
    resume_from: str | None = None  # a step folder on Lustre, absolute or below `lustre`
    release: str = ""  # stage: of NeMo-RL, `command` is then read by its own loader
    algorithm: str = "grpo"  # of that command
    folders: list[str] = field(default_factory=list)  # stage: make these below the run, no more
    checkpoint_layout: str = "nemo-rl"  # a name of LAYOUTS, or "own" with the next two
    checkpoint_pattern: str | None = None  # a step's folder, {step} or {step:07} in it
    complete_when: str | None = None  # file in it, there once it is complete
    progress: dict[str, str] = field(default_factory=dict)  # step, reward, loss -> text with {}
    network: str | None = None  # NCCL must take this one (gIB); null: any
    must_save_by: float | None = None  # epoch seconds: the last save of this attempt is due
    keep: int = 2
    prune: bool = False  # train: also prune beyond `keep` after each commit
    stale_tmp_seconds: float = 1800  # prune: a tmp_step_N untouched for this long is stale
    project: str | None = None  # null: nothing is published
    topic: str = "lustrum-events"
    event_key: str | None = None  # file of the key that signs events; null: they are not signed
    token: bool = True  # false: no access token (emulators)
    pubsub_endpoint: str = "https://pubsub.googleapis.com"
    storage_endpoint: str = "https://storage.googleapis.com"
    metadata_endpoint: str = "http://metadata.google.internal"
    metadata_wait_seconds: float = 30  # the metadata server can be absent in a pod's first seconds
    heartbeat_seconds: float = 10
    poll_seconds: float = 1
    stall_seconds: float = 3600
    linger_seconds: float = 300  # the training may go on after its last step is saved
    startup_stall_seconds: float | None = None  # before the first step; null: twice the above
    gpu_seconds: float = 0  # between two readings of all GPUs; 0: they are not read
    gpus_idle_seconds: float = 600  # of a training: then it is told, once
    end_idle_gpus: bool = False  # and the training is ended
    grace_seconds: float = 20  # between SIGTERM and SIGKILL of the training
    settle_seconds: float = 30  # a last look at Lustre may take; it may hang
    flush_seconds: float = 10  # for the last events

    @property
    def run_folder(self) -> str:
        """The folder of the run on Lustre."""
        return os.path.join(self.lustre, "runs", self.run_id)

    @property
    def checkpoints(self) -> str:
        """The folder of its checkpoints."""
        return os.path.join(self.run_folder, "checkpoints")

    @property
    def layout(self) -> Layout:
        """How its trainer leaves its checkpoints; raises ValueError."""
        if self.checkpoint_layout == "own":
            return own_layout(self.checkpoint_pattern or "", self.complete_when or "")
        return LAYOUTS[self.checkpoint_layout]

    @property
    def cache(self) -> str:
        """The folder of the model cache, shared by all runs."""
        return self.hf_home or os.path.join(self.lustre, MODEL_CACHE)


def read_spec(text: str) -> Spec:
    """Parse the argument; an unknown key or a wrong type is JobFailed as CONFIG, naming it."""
    try:
        if not text.lstrip().startswith("{"):
            with open(text, encoding="utf-8") as file:
                text = file.read()
        values = json.loads(text)
    except (OSError, ValueError) as error:
        raise JobFailed("CONFIG", f"--spec is neither a JSON file nor JSON: {error}") from None
    kinds = {
        "str": (str,),
        "int": (int,),
        "bool": (bool,),
        "float": (int, float),
        "list[str]": (list,),
        "dict[str, str]": (dict,),
    }
    known = {item.name: item for item in fields(Spec)}
    for key, value in values.items():
        if key not in known:
            raise JobFailed("CONFIG", f"spec.{key}: unknown; known are {', '.join(sorted(known))}")
        kind = str(known[key].type)
        if kind.endswith(" | None"):
            if value is None:
                continue
            kind = kind[: -len(" | None")]
        if not isinstance(value, kinds[kind]) or (kind != "bool" and isinstance(value, bool)):
            raise JobFailed("CONFIG", f"spec.{key}: {value!r} is not {kind}")
    spec = Spec(**values)
    if not re.fullmatch(r"[a-z][a-z0-9-]{2,62}", spec.run_id):
        raise JobFailed("CONFIG", f"spec.run_id: {spec.run_id!r} is not a run id")
    if not os.path.isabs(spec.lustre):
        raise JobFailed("CONFIG", f"spec.lustre: {spec.lustre!r} is not an absolute path")
    if spec.checkpoint_layout not in (*LAYOUTS, "own"):
        names = ", ".join((*LAYOUTS, "own"))
        raise JobFailed(
            "CONFIG", f"spec.checkpoint_layout: {spec.checkpoint_layout!r} is not one of {names}"
        )
    try:
        assert spec.layout
    except ValueError as error:
        raise JobFailed(
            "CONFIG",
            f"spec.checkpoint_pattern {spec.checkpoint_pattern!r}, "
            f"spec.complete_when {spec.complete_when!r}: {error}",
        ) from None
    return spec

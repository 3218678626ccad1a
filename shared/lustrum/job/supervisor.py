"""The supervisor: what Lustrum runs on the Ray head, in one file of standard library.

    python3 supervisor.py MODE --spec SPEC        SPEC: a JSON file, or the JSON itself; no secrets

It arrives as a ConfigMap and runs in the image's Python (3.9 or newer); it can import nothing of
Lustrum. `Spec` below lists every key.

Modes
    stage   folders, room, earlier checkpoint, code and model onto Lustre, before any GPU is up
    train   one attempt: clean, check, run the command, watch its log and its `step_N`, tell
    list    one `checkpoint.list` line
    prune   keep the newest `keep` complete steps, remove the rest; never the newest complete

Protocol. Each event is one line of standard output, `LUSTRUM {json}`; the types in PUBLISHED also
go to Pub/Sub. A failed or slow publish never fails or delays the job. Every event carries `type`,
`run_id`, `attempt`, `at` (RFC 3339) and `event_id` = `<run_id>-a<attempt>-<type>-<step>`
(`stage.*`: the start in epoch milliseconds instead of the step).
    stage.progress   phase, bytes
    stage.done       free_bytes, capacity_bytes, resume_step
    stage.failed     class, message
    attempt.started  step, max_steps
    job.progress     step, max_steps, phase, reward, step_seconds, save_seconds, quiet_seconds,
                     steps (step, reward, seconds of each step since the last such event)
    checkpoint.saved step, max_steps, checkpoint {step, files, bytes, seconds}, manifest, class
    checkpoint.set_aside, checkpoint.pruned   steps
    job.stalled      step, quiet_seconds
    job.completed    step, exit_code, total_steps, max_steps, class, message  (the last thing said)
    checkpoint.list  checkpoints [{step, files, bytes, total_steps, complete}], free_bytes,
                     capacity_bytes

Exit code: the training's own (128 + n when signal n ended it), else EXITS[class]. `class` is null
unless the supervisor itself knows why. Exit 0 with total_steps < max_steps is possible: NeMo-RL
stops early at `checkpoint_must_save_by`.

On disk. NeMo-RL writes `tmp_step_N` and renames it to `step_N`: the rename is the commit. Into
each committed step goes `lustrum-manifest.json` {step, files, bytes, sizes, total_steps, run_id,
attempt, written_at}; files and bytes do not count the manifest itself.
"""

from __future__ import annotations

import argparse
import base64
import collections
import ctypes
import errno
import hashlib
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

Event = dict[str, Any]

MANIFEST = "lustrum-manifest.json"
PUBLISHED = (
    "stage.done",
    "stage.failed",
    "attempt.started",
    "job.progress",
    "checkpoint.saved",
    "job.stalled",
    "job.completed",
)
EXITS = {
    "UNKNOWN": 70,
    "LUSTRE_CONFIG": 72,
    "LUSTRE_NETWORK": 73,
    "LUSTRE_FULL": 74,
    "INFRA_TRANSIENT": 75,
    "ACCESS": 77,
    "CONFIG": 78,
    "HANG": 85,
}
CODE_BYTES = 100 * 2**20  # of the zip
CODE_UNPACKED_BYTES = 2**30
CODE_FILES = 20_000
FETCH_MODEL = "import sys; from huggingface_hub import snapshot_download as s; s(sys.argv[1])"


class Refused(Exception):
    """The supervisor itself ends the job, with a failure class of Lustrum's table."""

    def __init__(self, failure: str, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.failure = failure
        self.exit_code = EXITS[failure] if exit_code is None else exit_code


class Stopped(Exception):
    """A signal arrived while no child was running."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.exit_code = 128 + signum


@dataclass
class Spec:
    """Everything the supervisor is told. Seconds and bytes; paths absolute unless said."""

    run_id: str = ""
    attempt: int = 1
    lustre: str = "/lustre"
    command: list[str] = field(default_factory=list)  # never through a shell
    workdir: str | None = None  # of the command when there is no code; null: this one's own
    max_steps: int = 0
    model: str | None = None
    fetch_model: bool = False
    hf_home: str | None = None  # null: <lustre>/cache/huggingface
    code: str | None = None  # gs://bucket/path/code.zip
    resume_from: str | None = None  # a step folder on Lustre, absolute or below `lustre`
    folders: list[str] = field(default_factory=list)  # stage: make these below the run, no more
    min_free_bytes: int = 0
    keep: int = 2
    prune: bool = False  # train: also prune beyond `keep` after each commit
    stale_tmp_seconds: float = 1800  # prune: a tmp_step_N untouched for this long is stale
    project: str | None = None  # null: nothing is published
    topic: str = "lustrum-events"
    token: bool = True  # false: no access token (emulators)
    pubsub_endpoint: str = "https://pubsub.googleapis.com"
    storage_endpoint: str = "https://storage.googleapis.com"
    metadata_endpoint: str = "http://metadata.google.internal"
    metadata_wait_seconds: float = 30  # the metadata server can be absent in a pod's first seconds
    heartbeat_seconds: float = 10
    poll_seconds: float = 1
    stall_seconds: float = 3600
    startup_stall_seconds: float | None = None  # before the first step; null: twice the above
    grace_seconds: float = 20  # between SIGTERM and SIGKILL of the training
    settle_seconds: float = 30  # a last look at Lustre may take; it may hang
    flush_seconds: float = 10  # for the last events

    @property
    def run_folder(self) -> str:
        return os.path.join(self.lustre, "runs", self.run_id)

    @property
    def checkpoints(self) -> str:
        return os.path.join(self.run_folder, "checkpoints")

    @property
    def cache(self) -> str:
        return self.hf_home or os.path.join(self.lustre, "cache", "huggingface")


def read_spec(text: str) -> Spec:
    """Parse the argument; an unknown key or a wrong type is Refused as CONFIG, naming it."""
    try:
        if not text.lstrip().startswith("{"):
            with open(text, encoding="utf-8") as file:
                text = file.read()
        values = json.loads(text)
    except (OSError, ValueError) as error:
        raise Refused("CONFIG", f"--spec is neither a JSON file nor JSON: {error}") from None
    kinds = {
        "str": (str,),
        "int": (int,),
        "bool": (bool,),
        "float": (int, float),
        "list[str]": (list,),
    }
    known = {item.name: item for item in fields(Spec)}
    for key, value in values.items():
        if key not in known:
            raise Refused("CONFIG", f"spec.{key}: unknown; known are {', '.join(sorted(known))}")
        kind = str(known[key].type)
        if kind.endswith(" | None"):
            if value is None:
                continue
            kind = kind[: -len(" | None")]
        if not isinstance(value, kinds[kind]) or (kind != "bool" and isinstance(value, bool)):
            raise Refused("CONFIG", f"spec.{key}: {value!r} is not {kind}")
    spec = Spec(**values)
    if not re.fullmatch(r"[a-z][a-z0-9-]{2,62}", spec.run_id):
        raise Refused("CONFIG", f"spec.run_id: {spec.run_id!r} is not a run id")
    if not os.path.isabs(spec.lustre):
        raise Refused("CONFIG", f"spec.lustre: {spec.lustre!r} is not an absolute path")
    return spec


# --- saying --------------------------------------------------------------------------------------


class LogFile(threading.Thread):
    """The attempt's log on Lustre, written in its own thread: a hung file system hangs only it."""

    LIMIT = 2**26  # bytes waiting; beyond it lines are dropped, Ray's own log has them

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True, name="log")
        self._path = path
        self._change = threading.Condition()
        self._waiting = bytearray()
        self._busy = False
        self.start()

    def add(self, data: bytes) -> None:
        with self._change:
            if len(self._waiting) < self.LIMIT:
                self._waiting += data
            self._change.notify_all()

    def close(self, seconds: float) -> None:
        with self._change:
            self._change.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def run(self) -> None:
        log: int | None = None
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._waiting)
                data, self._waiting, self._busy = bytes(self._waiting), bytearray(), True
            try:
                if log is None:
                    log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                write_all(log, data)
            except OSError:
                continue  # a full or unwritable disk is no reason to end a training


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Voice:
    """Standard output and the attempt's log: whole lines only, secrets taken out."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._began = int(time.time() * 1000)
        self._lock = threading.Lock()
        self._log: LogFile | None = None
        self._secrets = [secret.encode() for secret in known_secrets()]
        self.publish: Callable[[Event], None] = lambda event: None

    def open_log(self, path: str) -> None:
        """Also write everything to this file."""
        self._log = LogFile(path)

    def close(self, seconds: float) -> None:
        if self._log is not None:
            self._log.close(seconds)

    def write(self, data: bytes) -> bytes:
        """Pass on one whole line (or a piece of an over-long one), as returned."""
        for secret in self._secrets:
            data = data.replace(secret, b"<redacted>")
        data = re.sub(rb"\bhf_[A-Za-z0-9]{20,}", b"<redacted>", data)
        with self._lock:
            if self._log is not None:
                self._log.add(data)
            try:
                write_all(1, data)
            except OSError:
                return data  # a closed pipe is no reason to end a training
        return data

    def say(self, text: str) -> None:
        self.write(text.encode("utf-8", "replace") + b"\n")

    def event(self, kind: str, step: int | None = None, **more: Any) -> Event:
        """Print one event and hand it to the publisher if its type is one that is published."""
        spec = self._spec
        event: Event = {"type": kind, "run_id": spec.run_id, "attempt": spec.attempt}
        if step is not None:
            event["step"] = step
        if "failure" in more:
            more["class"] = more.pop("failure")  # a keyword of Python, not of the protocol
        event.update(more)
        # Staging may be repeated with the same attempt number, so its start tells it apart.
        serial = self._began if kind.startswith("stage.") else step or 0
        event["event_id"] = f"{spec.run_id}-a{spec.attempt}-{kind}-{serial}"
        event["at"] = now_text()
        line = self.write(b"LUSTRUM " + json.dumps(event).encode() + b"\n")
        if kind in PUBLISHED:
            self.publish(json.loads(line[8:]))  # what was printed: without secrets
        return event


def known_secrets() -> list[str]:
    """Values that must never be printed: from the environment, the token file and netrc."""
    found = []
    for name, value in os.environ.items():
        if re.search(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY", name) and value[:1] != "/":
            found.append(value)
    for variable, pattern in (("HF_TOKEN_PATH", r"\S+"), ("NETRC", r"password\s+(\S+)")):
        try:
            with open(os.environ.get(variable, ""), encoding="utf-8") as file:
                found += re.findall(pattern, file.read())
        except (OSError, ValueError):
            continue
    return [value for value in found if len(value) >= 8 and not value.isdigit()]


def now_text() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


# --- the network ---------------------------------------------------------------------------------


def ask(request: urllib.request.Request, timeout: float) -> Any:
    """Open a request; loopback and the metadata server never go through a proxy."""
    host = urllib.parse.urlsplit(request.full_url).hostname or ""
    direct = host in ("127.0.0.1", "localhost", "::1", "metadata.google.internal")
    handlers = [urllib.request.ProxyHandler({})] if direct else []
    return urllib.request.build_opener(*handlers).open(request, timeout=timeout)


class AccessToken:
    """A token of the pod's account from the metadata server, refreshed a minute before its end."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._header: dict[str, str] = {}
        self._until = 0.0
        self._wait_until = time.monotonic() + spec.metadata_wait_seconds

    def header(self) -> dict[str, str]:
        """The Authorization header, empty when the spec asks for no token.

        Raises OSError when the metadata server does not answer in time.
        """
        if not self._spec.token:
            return {}
        with self._lock:
            while time.monotonic() >= self._until:
                try:
                    self._refresh()
                except (OSError, ValueError, KeyError) as error:
                    if time.monotonic() > self._wait_until:
                        raise OSError(f"no access token: {type(error).__name__}") from None
                    time.sleep(1)
            return self._header

    def forget(self) -> None:
        self._until = 0.0

    def _refresh(self) -> None:
        base = self._spec.metadata_endpoint
        url = f"{base}/computeMetadata/v1/instance/service-accounts/default/token"
        request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
        with ask(request, 5) as answer:
            token = json.load(answer)
        self._header = {"Authorization": "Bearer " + token["access_token"]}
        self._until = time.monotonic() + float(token["expires_in"]) - 60


class Publisher(threading.Thread):
    """Sends events to Pub/Sub in the background; bounded, and never in the way of the job."""

    LIMIT = 200  # events waiting; progress goes first when there is no room

    def __init__(self, spec: Spec, token: AccessToken, voice: Voice) -> None:
        super().__init__(daemon=True, name="publisher")
        self._spec, self._token, self._voice = spec, token, voice
        self._waiting: collections.deque[Event] = collections.deque()
        self._change = threading.Condition()
        self._busy = self._closing = False
        self._failures = 0

    def offer(self, event: Event) -> None:
        """Queue an event; a progress event still waiting is merged into the newer one."""
        with self._change:
            old = [item for item in self._waiting if item["type"] == "job.progress"]
            if event["type"] == "job.progress" and old:
                event = {**event, "steps": (old[0]["steps"] + event["steps"])[-100:]}
                self._waiting.remove(old[0])
            elif len(self._waiting) >= self.LIMIT:
                self._waiting.remove(old[0] if old else self._waiting[0])
            self._waiting.append(event)
            self._change.notify_all()

    def close(self, seconds: float) -> None:
        """Wait until all is sent, at most this long."""
        with self._change:
            self._closing = True
            self._change.notify_all()
            self._change.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting)
                event, self._busy = self._waiting.popleft(), True
            self._send(event)
            with self._change:
                self._busy = False
                self._change.notify_all()

    def _send(self, event: Event) -> None:
        attributes = {key: str(event[key]) for key in ("type", "run_id", "attempt", "event_id")}
        data = base64.b64encode(json.dumps(event).encode()).decode()
        body = json.dumps({"messages": [{"data": data, "attributes": attributes}]}).encode()
        url = (
            f"{self._spec.pubsub_endpoint}/v1/projects/{self._spec.project}"
            f"/topics/{self._spec.topic}:publish"
        )
        tries = 1 if event["type"] == "job.progress" else 6
        for attempt in range(tries):
            try:
                headers = {"Content-Type": "application/json", **self._token.header()}
                with ask(urllib.request.Request(url, body, headers), 10) as answer:
                    answer.read()
                return
            except Exception as error:  # whatever it is, the job goes on
                reason = getattr(error, "code", None) or f"{type(error).__name__}: {error}"
                if reason == 401:
                    self._token.forget()
                elif reason in (400, 403, 404):
                    break
            with self._change:
                self._change.wait_for(lambda: self._closing, min(2**attempt, 30) / 2)
            if self._closing:
                time.sleep(0.2)
        self._failures += 1
        if self._failures in (1, 10, 100):
            self._voice.say(f"lustrum: event {event['event_id']} was not published: {reason}")


# --- checkpoints on disk -------------------------------------------------------------------------


def entries(folder: str, prefix: str = "") -> Iterator[tuple[int, str]]:
    """(N, path) of each `<prefix>step_N` folder, ascending."""
    found = []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    for name in names:
        match = re.fullmatch(re.escape(prefix) + r"step_(\d+)", name)
        if match and os.path.isdir(os.path.join(folder, name)):
            found.append((int(match.group(1)), os.path.join(folder, name)))
    return iter(sorted(found))


def file_sizes(folder: str) -> dict[str, int]:
    """Relative path -> bytes of every regular file but the manifest; what vanishes is skipped."""
    sizes: dict[str, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            relative = os.path.relpath(path, folder).replace(os.sep, "/")
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and relative not in (MANIFEST, MANIFEST + ".tmp"):
                sizes[relative] = status.st_size
    return sizes


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file; {} when there is none or it is something else."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def inspect_step(step: int, path: str) -> Event:
    """What `lustrum.checkpoints.judge` says of the same folder (a test holds them together)."""
    sizes = file_sizes(path)
    total = read_json(os.path.join(path, "training_info.json")).get("total_steps")
    if not isinstance(total, int) or isinstance(total, bool) or total < 0:
        total = None
    promised = read_json(os.path.join(path, MANIFEST)).get("sizes")
    intact = not isinstance(promised, dict) or all(
        sizes.get(name) == size for name, size in promised.items()
    )
    return {
        "step": step,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "total_steps": total,
        "complete": total is not None and intact,
    }


def all_steps(folder: str) -> list[Event]:
    return [inspect_step(step, path) for step, path in entries(folder)]


def newest_complete(steps: list[Event]) -> Event | None:
    complete = [item for item in steps if item["complete"]]
    return complete[-1] if complete else None


def write_manifest(spec: Spec, step: int, path: str) -> Event:
    """Measure a committed step and write its manifest, atomically; raises OSError."""
    sizes = file_sizes(path)
    total = read_json(os.path.join(path, "training_info.json")).get("total_steps")
    manifest = {
        "step": step,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "sizes": sizes,
        "total_steps": total,
        "run_id": spec.run_id,
        "attempt": spec.attempt,
        "written_at": now_text(),
    }
    temporary = os.path.join(path, MANIFEST + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, os.path.join(path, MANIFEST))
    return manifest


def remove(path: str) -> None:
    """Remove a folder; renamed first, so that half a removal is never taken for a step."""
    parent, name = os.path.split(path)
    doomed = path
    if re.match(r"step_\d", name):
        doomed = os.path.join(parent, "pruned_" + name)
        shutil.rmtree(doomed, ignore_errors=True)
        os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clean_leftovers(folder: str, voice: Voice) -> None:
    """Before an attempt: remove interrupted saves and removals.

    NeMo-RL replaces an existing step in two renames; if it died between them `old_step_N` is the
    only copy and gets its name back.
    """
    present = {step for step, _ in entries(folder)}
    for step, path in entries(folder, "old_"):
        if step not in present and inspect_step(step, path)["complete"]:
            os.rename(path, os.path.join(folder, f"step_{step}"))
            voice.say(f"lustrum: step_{step} restored from old_step_{step}")
    for prefix in ("tmp_", "old_", "pruned_"):
        for _, path in entries(folder, prefix):
            remove(path)
            voice.say(f"lustrum: removed stale {os.path.basename(path)}")


def set_aside_broken(folder: str, steps: list[Event], voice: Voice) -> None:
    """NeMo-RL loads the highest step_N, whatever it holds: rename incomplete ones."""
    broken = [item["step"] for item in steps if not item["complete"]]
    for step in broken:
        target = os.path.join(folder, f"broken_step_{step}")
        shutil.rmtree(target, ignore_errors=True)
        os.rename(os.path.join(folder, f"step_{step}"), target)
    if broken:
        voice.event("checkpoint.set_aside", steps=broken)


def prune(spec: Spec, voice: Voice) -> None:
    """Keep the newest `keep` complete steps and whatever may still be in the making."""
    folder = spec.checkpoints
    steps = all_steps(folder)
    complete = [item["step"] for item in steps if item["complete"]]
    kept = complete[-max(spec.keep, 1) :]
    newest = kept[-1] if kept else -1
    # An incomplete step newer than the newest complete one may be a commit this instant.
    doomed = [
        f"step_{item['step']}"
        for item in steps
        if kept and item["step"] < newest and item["step"] not in kept
    ]
    for prefix in ("tmp_", "old_", "pruned_", "broken_"):
        for step, path in entries(folder, prefix):
            idle = time.time() - newest_change(path)
            if prefix == "pruned_" or (kept and step <= newest) or idle > spec.stale_tmp_seconds:
                doomed.append(os.path.basename(path))
    for name in doomed:
        try:
            remove(os.path.join(folder, name))
        except FileNotFoundError:
            continue  # NeMo-RL removed it first
    voice.event("checkpoint.pruned", steps=kept, removed=doomed)


def newest_change(folder: str) -> float:
    newest = 0.0
    for parent, _, names in os.walk(folder):
        for path in [parent, *(os.path.join(parent, name) for name in names)]:
            try:
                newest = max(newest, os.lstat(path).st_mtime)
            except OSError:
                continue
    return newest


def model_in_config(path: str) -> str | None:
    """`policy.model_name` of a step's config.yaml; None when it cannot be told."""
    try:
        with open(os.path.join(path, "config.yaml"), encoding="utf-8") as file:
            policy = re.search(
                r"^policy:[ \t]*\n((?:[ \t]+.*\n|\s*\n)+)", file.read() + "\n", re.M
            )
    except (OSError, ValueError):
        return None
    found = policy and re.search(r"^  model_name:[ \t]*(\S.*?)[ \t]*$", policy.group(1), re.M)
    return found.group(1).strip("'\"") if found else None


def check_model(spec: Spec, path: str) -> None:
    """Refuse another model's checkpoint: NeMo-RL would load it without a word."""
    held = model_in_config(path)
    if spec.model and held and held != spec.model:
        raise Refused(
            "CONFIG",
            f"{os.path.basename(path)} was saved by model {held!r}, this run "
            f"trains {spec.model!r}: give the run its own checkpoints",
        )


def conversion_folder(spec: Spec) -> str | None:
    """Where NeMo-RL keeps the model converted to Megatron's format."""
    root = os.environ.get("NRL_MEGATRON_CHECKPOINT_DIR") or os.path.join(spec.cache, "nemo_rl")
    return os.path.join(root, spec.model) if spec.model and not os.path.isabs(spec.model) else None


def remove_half_conversion(spec: Spec, voice: Voice) -> None:
    """NeMo-RL takes a conversion for done as soon as its folder exists; ours has a marker."""
    folder = conversion_folder(spec)
    if folder and os.path.isdir(folder) and not os.path.exists(folder + "/lustrum-converted"):
        shutil.rmtree(folder)
        voice.say("lustrum: removed a model conversion that had not been finished")


def mark_conversion(spec: Spec) -> None:
    folder = conversion_folder(spec)
    if folder and os.path.isdir(folder):
        with open(folder + "/lustrum-converted", "w", encoding="utf-8") as file:
            file.write(now_text())


# --- code ----------------------------------------------------------------------------------------


def fetch_code(spec: Spec, token: AccessToken, voice: Voice) -> str | None:
    """Bring `spec.code` onto Lustre; return its folder, the working directory of the training.

    The first fetch is pinned: later attempts run the same code, whatever the object holds by then.
    """
    if spec.code is None:
        return None
    root = os.path.join(spec.run_folder, "code")
    pin = read_json(os.path.join(root, "code.json"))
    folder = os.path.join(root, str(pin.get("sha256"))[:16])
    if pin.get("url") == spec.code and os.path.isdir(folder):
        return folder
    os.makedirs(root, exist_ok=True)
    archive = os.path.join(root, "code.zip.tmp")
    digest = download(spec, token, archive)
    folder = os.path.join(root, digest[:16])
    temporary = folder + ".tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    unpack(archive, temporary)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(temporary, folder)
    os.remove(archive)
    with open(os.path.join(root, "code.json.tmp"), "w", encoding="utf-8") as file:
        json.dump({"url": spec.code, "sha256": digest}, file)
    os.replace(os.path.join(root, "code.json.tmp"), os.path.join(root, "code.json"))
    voice.say(f"lustrum: code {spec.code} ({digest[:16]}) is at {folder}")
    return folder


def download(spec: Spec, token: AccessToken, target: str) -> str:
    """Fetch the object to a file; return its sha256."""
    match = re.fullmatch(r"gs://([a-z0-9][a-z0-9._-]+)/(.+)", spec.code or "")
    if not match:
        raise Refused("CONFIG", f"code: {spec.code!r} is not gs://bucket/object")
    url = (
        f"{spec.storage_endpoint}/storage/v1/b/{match.group(1)}/o/"
        f"{urllib.parse.quote(match.group(2), safe='')}?alt=media"
    )
    last = ""
    for attempt in range(5):
        try:
            digest, size = hashlib.sha256(), 0
            with (
                ask(urllib.request.Request(url, headers=token.header()), 60) as answer,
                open(target, "wb") as file,
            ):
                for block in iter(lambda: answer.read(2**20), b""):
                    size += len(block)
                    if size > CODE_BYTES:
                        raise Refused("CONFIG", f"code: {spec.code} is over {CODE_BYTES} bytes")
                    digest.update(block)
                    file.write(block)
            return digest.hexdigest()
        except urllib.error.HTTPError as error:
            last = f"HTTP {error.code}"
            if error.code == 404:
                raise Refused("CONFIG", f"code: {spec.code} does not exist") from None
            if error.code == 403:
                raise Refused("ACCESS", f"code: the job may not read {spec.code}") from None
            if error.code == 401:
                token.forget()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
                raise
            last = str(error)
        time.sleep(min(2**attempt, 10) / 4)
    raise Refused("INFRA_TRANSIENT", f"code: {spec.code} could not be fetched: {last}")


def unpack(archive: str, folder: str) -> None:
    """Unpack a zip that may be hostile: no path outside, no link, bounded in files and bytes."""
    try:
        with zipfile.ZipFile(archive) as bundle:
            items = bundle.infolist()
            if len(items) > CODE_FILES:
                raise Refused("CONFIG", f"code: {len(items)} entries, at most {CODE_FILES}")
            left = CODE_UNPACKED_BYTES
            for item in items:
                parts = item.filename.split("/")
                mode = item.external_attr >> 16
                if (
                    item.filename.startswith("/")
                    or ".." in parts
                    or "\\" in item.filename
                    or ":" in parts[0]
                    or (stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR))
                ):
                    raise Refused("CONFIG", f"code: entry {item.filename!r} is not a plain path")
                target = os.path.join(folder, *[part for part in parts if part])
                if item.is_dir():
                    os.makedirs(target, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with bundle.open(item) as source, open(target, "wb") as file:
                    for block in iter(lambda: source.read(2**20), b""):
                        left -= len(block)
                        if left < 0:
                            raise Refused(
                                "CONFIG", f"code: unpacks to more than {CODE_UNPACKED_BYTES} bytes"
                            )
                        file.write(block)
                os.chmod(target, 0o755 if mode & 0o111 else 0o644)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise Refused("CONFIG", f"code: not a usable zip: {error}") from None


# --- what the training says ----------------------------------------------------------------------


class TrainingLog:
    """NeMo-RL's lines (v0.4.0 to v0.7.0) turned into numbers.

    The banner counts within an epoch, so steps are counted from the step resumed from and set
    right by each save, which names the total step.
    """

    def __init__(self, base: int) -> None:
        self._base, self._banners = base, 0
        self.step = base  # completed
        self.phase = "starting"
        self.reward: float | None = None
        self.step_seconds: float | None = None
        self.save_seconds: float | None = None
        self.saves: dict[int, float] = {}  # step -> when its save began (monotonic)
        self.saved_by: dict[int, float] = {}  # step -> its results; the commit lies before them
        self.moves = 0  # grows with every sign of progress
        self.steps: list[Event] = []  # since last taken
        self.hint: str | None = None  # failure class a line gave away

    def feed(self, line: str, now: float) -> bool:
        """Take one line; True when something is worth looking at now."""
        match = re.match(r"={25} Step (\d+)/(\d+) ={25}$", line)
        if match:
            self._banners += 1
            self.phase = "step"
            self.moves += 1
            return True
        match = re.match(r"Saving checkpoint for step (\d+)\.\.\.$", line)
        if match:
            self._base = int(match.group(1)) - self._banners
            self.saves[int(match.group(1))], self.phase = now, "saving"
            self.moves += 1
            return True
        if line.startswith("📊 Training Results:"):
            self.phase, self.step = "step", self._base + self._banners
            if self.step in self.saves:
                self.saved_by[self.step] = now
            self.steps.append({"step": self.step, "reward": None, "seconds": None})
            del self.steps[:-100]
            self.moves += 1
            return True
        match = re.match(r"  • (Avg Reward|Total step time|checkpointing): (-?[\d.]+)", line)
        if match:
            self._number(match.group(1), float(match.group(2)))
        elif "No space left on device" in line or "Disk quota exceeded" in line:
            self.hint = "LUSTRE_FULL"
        elif "CUDA out of memory" in line or "OutOfMemoryError" in line:
            self.hint = "USER_OOM"
        return False

    def _number(self, name: str, value: float) -> None:
        if name == "checkpointing":
            self.save_seconds = value
        elif name == "Avg Reward":
            self.reward = value
        else:
            self.step_seconds = value
        key = {"Avg Reward": "reward", "Total step time": "seconds"}.get(name)
        if key and self.steps:
            self.steps[-1][key] = value

    def take_steps(self) -> list[Event]:
        taken, self.steps = self.steps, []
        return taken


class StepWatcher(threading.Thread):
    """Looks at the checkpoints in its own thread: a hung file system must not hang the rest."""

    PATIENCE = 2.0  # seconds a commit waits for the log line that says when its save began

    def __init__(self, spec: Spec, log: TrainingLog, voice: Voice) -> None:
        super().__init__(daemon=True, name="steps")
        self._spec, self._log, self._voice = spec, log, voice
        self._known = {step: os.stat(path).st_ino for step, path in entries(spec.checkpoints)}
        self._first_seen: dict[int, float] = {}
        self._early: dict[int, float] = {}
        self._growth: Any = None
        self._growth_due = 0.0
        self._ending = False
        self.wake = threading.Event()
        self.moves = 0

    def run(self) -> None:
        while True:
            last = self._ending
            try:
                self._look()
            except OSError as error:
                self._voice.say(f"lustrum: checkpoints cannot be read: {error.strerror}")
            if last:
                return
            self.wake.wait(self._spec.poll_seconds)
            self.wake.clear()

    def finish(self, seconds: float) -> None:
        """One more look, then end; wait for it at most this long."""
        self._ending = True
        self.wake.set()
        self.join(seconds)

    def _look(self) -> None:
        now, folder = time.monotonic(), self._spec.checkpoints
        for step, _ in entries(folder, "tmp_"):
            self._first_seen.setdefault(step, now)
        if now >= self._growth_due:
            self._growth_due = now + min(30.0, self._spec.stall_seconds / 10)
            growth = [
                (step, sum(file_sizes(path).values())) for step, path in entries(folder, "tmp_")
            ]
            if growth != self._growth:
                self._growth = growth
                self.moves += 1
        for step, path in entries(folder):
            inode = os.stat(path).st_ino
            if self._known.get(step) == inode:
                continue
            # Seen before its line in the log was: that line is a moment away, if it comes at all.
            early = now - self._early.setdefault(step, now) < self.PATIENCE
            if early and self._since(step) is None and not self._ending:
                break  # commits are told in their order
            self._known[step] = inode
            self.moves += 1
            self._committed(step, path)

    def _since(self, step: int) -> float | None:
        """When its save began: by the log, else by the first sight of its tmp folder."""
        return self._log.saves.get(step, self._first_seen.get(step))

    def _committed(self, step: int, path: str) -> None:
        since, ended = self._since(step), time.monotonic()
        ended = min(ended, self._log.saved_by.get(step, ended))
        seconds = None if since is None else round(ended - since, 3)
        announce(self._spec, self._voice, step, path, seconds)
        for told in (self._first_seen, self._early, self._log.saves, self._log.saved_by):
            told.pop(step, None)
        if self._spec.prune:
            prune(self._spec, self._voice)


def announce(spec: Spec, voice: Voice, step: int, path: str, seconds: float | None) -> None:
    """Write the manifest of a committed step and say so; a manifest that fails is said too."""
    problem = None
    try:
        measured = write_manifest(spec, step, path)
    except OSError as error:
        measured, problem = inspect_step(step, path), failure_of(error)
    checkpoint = {
        "step": step,
        "files": measured["files"],
        "bytes": measured["bytes"],
        "seconds": seconds,
    }
    voice.event(
        "checkpoint.saved",
        step,
        max_steps=spec.max_steps,
        checkpoint=checkpoint,
        manifest=problem is None,
        failure=problem,
    )


# --- running a child -----------------------------------------------------------------------------


class Bell:
    """Wakes the main loop from threads and signal handlers (a pipe: safe in both)."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for descriptor in (self._read, self._write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def ring(self) -> None:
        try:
            os.write(self._write, b"!")
        except OSError:
            return  # full: it rings already

    def wait(self, seconds: float) -> None:
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)


class Child:
    """A command in its own process group, its output passed on line by line."""

    PIECE = 2**16  # bytes of one line passed on at most before its end is seen

    def __init__(
        self,
        argv: list[str],
        cwd: str | None,
        env: dict[str, str],
        voice: Voice,
        on_line: Callable[[str], None],
    ) -> None:
        libc = ctypes.CDLL(None)
        try:
            # PR_SET_PDEATHSIG: if the supervisor is killed the training must not go on writing
            # into a folder that the next attempt will use.
            self.process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(1, signal.SIGTERM),
            )
        except FileNotFoundError as error:
            raise Refused("CONFIG", f"command: {error.filename!r} does not exist", 127) from None
        except PermissionError as error:
            raise Refused("CONFIG", f"command: {error.filename!r} may not be run", 126) from None
        self._voice, self._on_line = voice, on_line
        self._reader = threading.Thread(target=self._read, daemon=True, name="output")
        self._reader.start()

    def signal(self, signum: int) -> None:
        """Send a signal to the whole group; a group that is gone is fine."""
        try:
            os.killpg(self.process.pid, signum)
        except (ProcessLookupError, PermissionError):
            return

    def end(self, grace: float) -> int:
        """SIGTERM, SIGKILL after the grace, also to what outlived its leader; the exit code."""
        self.signal(signal.SIGTERM)
        until = time.monotonic() + grace
        while self._lives() and time.monotonic() < until:
            time.sleep(0.05)
        self.signal(signal.SIGKILL)
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL  # it hangs in the kernel; nobody can do more
        self._reader.join(5)
        return 128 - code if code < 0 else code

    def _lives(self) -> bool:
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _read(self) -> None:
        assert self.process.stdout is not None
        descriptor, rest = self.process.stdout.fileno(), b""
        while True:
            block = os.read(descriptor, 2**16)
            # A progress bar's bare carriage return ends a line too, or it would swallow ours.
            *lines, rest = re.split(rb"\r?\n|\r(?!\n)", rest + block)
            if rest and (not block or len(rest) > self.PIECE):
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._voice.write(line + b"\n")
                self._on_line(line.decode("utf-8", "replace"))
            if not block:
                return


class Signals:
    """SIGTERM and SIGINT go to the training's group; before there is one they end us."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.received: int | None = None
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._handle)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)  # so that it rings the bell

    def _handle(self, signum: int, frame: Any) -> None:
        first, self.received = self.received is None, signum
        if self.child is not None:
            self.child.signal(signum)
        elif first:
            raise Stopped(signum)


def failure_of(error: OSError) -> str:
    """The failure class of an error of the file system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "LUSTRE_FULL"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
        return "LUSTRE_CONFIG"
    if error.errno in (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT):
        return "LUSTRE_NETWORK"
    return "UNKNOWN"


# --- the modes -----------------------------------------------------------------------------------


def make_folders(spec: Spec) -> None:
    for name in ("checkpoints", "logs", "code"):
        os.makedirs(os.path.join(spec.run_folder, name), exist_ok=True)
    os.makedirs(spec.cache, exist_ok=True)


def train(spec: Spec, voice: Voice, token: AccessToken, signals: Signals) -> int:
    """One attempt. Always ends with `job.completed`, whatever happens."""
    failure: str | None = None
    message = ""
    try:
        exit_code, failure = attempt(spec, voice, token, signals)
    except Refused as refused:
        exit_code, failure, message = refused.exit_code, refused.failure, str(refused)
    except Stopped as stopped:
        exit_code, message = stopped.exit_code, str(stopped)
    except OSError as error:
        failure, message = failure_of(error), str(error)
        exit_code = EXITS[failure]
    steps = within(spec.settle_seconds, lambda: all_steps(spec.checkpoints))
    newest = newest_complete(steps or [])
    total = newest["total_steps"] if newest else 0
    voice.event(
        "job.completed",
        newest["step"] if newest else 0,
        exit_code=exit_code,
        total_steps=total,
        max_steps=spec.max_steps,
        message=message,
        failure=failure,
    )
    return exit_code


def attempt(
    spec: Spec, voice: Voice, token: AccessToken, signals: Signals
) -> tuple[int, str | None]:
    """Prepare, run and watch the training; its exit code and the failure class if known."""
    make_folders(spec)
    voice.open_log(os.path.join(spec.run_folder, "logs", f"attempt-{spec.attempt}.log"))
    clean_leftovers(spec.checkpoints, voice)
    steps = all_steps(spec.checkpoints)
    set_aside_broken(spec.checkpoints, steps, voice)
    newest = newest_complete(steps)
    done = newest["total_steps"] if newest else 0
    voice.event("attempt.started", done, max_steps=spec.max_steps)
    for step, path in entries(spec.checkpoints):
        if not os.path.exists(os.path.join(path, MANIFEST)):
            announce(spec, voice, step, path, None)  # committed as the last attempt died
    if newest:
        check_model(spec, os.path.join(spec.checkpoints, f"step_{newest['step']}"))
        if 0 < spec.max_steps <= done:
            voice.say(f"lustrum: {done} of {spec.max_steps} steps are done, nothing to train")
            return 0, None
    if not spec.command:
        raise Refused("CONFIG", "spec.command: empty, there is nothing to run")
    remove_half_conversion(spec, voice)
    folder = fetch_code(spec, token, voice)
    command = place_command(spec, folder)
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    environment.setdefault("HF_HOME", spec.cache)
    if folder:
        paths = [folder, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return watch(spec, voice, signals, command, folder or spec.workdir, environment, done)


def place_command(spec: Spec, folder: str | None) -> list[str]:
    """The command as run from the code's folder: what the code does not bring, the image has."""
    if not folder or not spec.workdir:
        return spec.command
    command = []
    for item in spec.command:
        ours, theirs = os.path.join(folder, item), os.path.join(spec.workdir, item)
        relative = re.fullmatch(r"[\w./-]+\.(py|yaml|yml|sh)", item) and not os.path.isabs(item)
        command.append(theirs if relative and not os.path.exists(ours) else item)
    if command[:2] == ["uv", "run"] and not os.path.exists(os.path.join(folder, "pyproject.toml")):
        command[2:2] = ["--project", spec.workdir]
    return command


def watch(
    spec: Spec,
    voice: Voice,
    signals: Signals,
    command: list[str],
    cwd: str | None,
    environment: dict[str, str],
    base: int,
) -> tuple[int, str | None]:
    """Run the command until it ends, stalls or is stopped."""
    bell, log = Bell(), TrainingLog(base)
    watcher = StepWatcher(spec, log, voice)

    def on_line(line: str) -> None:
        if log.feed(line, time.monotonic()):
            watcher.wake.set()

    child = Child(command, cwd, environment, voice, on_line)
    signals.child = child
    if signals.received is not None:
        child.signal(signals.received)
    watcher.start()
    quiet, moves, last, marked = 0.0, 0, time.monotonic(), False
    heartbeat_due, kill_at, stalled = last + spec.heartbeat_seconds, None, False
    startup = spec.startup_stall_seconds
    startup = 2 * spec.stall_seconds if startup is None else startup
    while child.process.poll() is None and not stalled:
        bell.wait(spec.poll_seconds)
        now = time.monotonic()
        # A pause of this process itself (a migrated VM, a frozen cgroup) is nobody's stall.
        quiet += min(now - last, 5 + 5 * spec.poll_seconds)
        last = now
        if log.moves + watcher.moves != moves:
            moves, quiet = log.moves + watcher.moves, 0.0
        if log.phase != "starting" and not marked:
            marked = True
            quietly(lambda: mark_conversion(spec), voice)
        if now >= heartbeat_due:
            heartbeat_due = now + spec.heartbeat_seconds
            heartbeat(spec, voice, log, quiet)
        if signals.received is not None:
            kill_at = now + spec.grace_seconds if kill_at is None else kill_at
            if now >= kill_at:
                break
        stalled = quiet >= (startup if log.phase == "starting" else spec.stall_seconds)
    if stalled:
        voice.event("job.stalled", log.step, quiet_seconds=round(quiet, 1))
    grace = spec.grace_seconds if stalled else 3.0
    code = child.end(0.0 if kill_at is not None else grace)
    watcher.finish(spec.settle_seconds)
    heartbeat(spec, voice, log, quiet)
    return (EXITS["HANG"], "HANG") if stalled else (code, log.hint if code else None)


def within(seconds: float, action: Callable[[], Any]) -> Any:
    """The action's result; None when it fails or a hung file system holds it for too long."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except OSError:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else None


def quietly(action: Callable[[], None], voice: Voice) -> None:
    """Do something the training does not depend on."""
    try:
        action()
    except OSError as error:
        voice.say(f"lustrum: {error}")


def heartbeat(spec: Spec, voice: Voice, log: TrainingLog, quiet: float) -> None:
    voice.event(
        "job.progress",
        log.step,
        max_steps=spec.max_steps,
        phase=log.phase,
        reward=log.reward,
        step_seconds=log.step_seconds,
        save_seconds=log.save_seconds,
        quiet_seconds=round(quiet, 1),
        steps=log.take_steps(),
    )


def stage(spec: Spec, voice: Voice, token: AccessToken, signals: Signals) -> int:
    """Everything that can be brought onto Lustre before a GPU is paid for. Safe to repeat."""
    try:
        make_folders(spec)
        if spec.folders:
            for name in spec.folders:
                os.makedirs(below(spec.run_folder, name), exist_ok=True)
            voice.event("stage.done")
            return 0
        usage = shutil.disk_usage(spec.lustre)
        if usage.free < spec.min_free_bytes:
            raise Refused(
                "LUSTRE_FULL",
                f"{spec.lustre} has {usage.free} bytes free, {spec.min_free_bytes} are needed",
            )
        remove_half_conversion(spec, voice)
        resumed = adopt_checkpoint(spec, voice)
        fetch_code(spec, token, voice)
        if spec.fetch_model and spec.model:
            fetch_model(spec, voice, signals)
        usage = shutil.disk_usage(spec.lustre)
        voice.event(
            "stage.done", resume_step=resumed, free_bytes=usage.free, capacity_bytes=usage.total
        )
        return 0
    except (Refused, OSError) as error:
        failure = error.failure if isinstance(error, Refused) else failure_of(error)
        voice.event("stage.failed", message=str(error), failure=failure)
        return EXITS[failure]


def below(root: str, path: str) -> str:
    """The real path of `path` seen from `root`; Refused when it leads out of it."""
    base, real = os.path.realpath(root), os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([base, real]) != base:
        raise Refused("CONFIG", f"{path!r} is not below {root}")
    return real


def adopt_checkpoint(spec: Spec, voice: Voice) -> int | None:
    """Move the imported step of an earlier run among this run's checkpoints; its number."""
    if spec.resume_from is None:
        return None
    source = below(spec.lustre, spec.resume_from)
    existing = newest_complete(all_steps(spec.checkpoints))
    if not os.path.isdir(source):
        if existing:  # staged before
            return int(existing["step"])
        raise Refused("CONFIG", f"resume_from: there is no folder {source}")
    match = re.fullmatch(r"step_(\d+)", os.path.basename(source))
    found = inspect_step(int(match.group(1)) if match else -1, source)
    if not found["complete"]:
        raise Refused(
            "CONFIG",
            f"resume_from: {source} is not a complete checkpoint "
            f"({found['files']} files, training_info.json total_steps: "
            f"{found['total_steps']})",
        )
    check_model(spec, source)
    step = int(match.group(1)) if match else int(found["total_steps"])
    target = os.path.join(spec.checkpoints, f"step_{step}")
    if source != target:
        if existing and existing["step"] >= step:
            return int(existing["step"])
        shutil.rmtree(target, ignore_errors=True)  # an incomplete one
        os.rename(source, target)
    voice.event("stage.progress", step, phase="checkpoint", bytes=found["bytes"])
    return step


def fetch_model(spec: Spec, voice: Voice, signals: Signals) -> None:
    """Fill the model cache with the image's huggingface_hub; what is there is kept."""
    folder = os.path.join(spec.cache, "hub", "models--" + str(spec.model).replace("/", "--"))
    environment = dict(os.environ, HF_HOME=spec.cache, HF_HUB_DISABLE_PROGRESS_BARS="1")
    for attempt_number in range(1, 4):
        tail: collections.deque[str] = collections.deque(maxlen=200)
        child = Child(
            [sys.executable, "-c", FETCH_MODEL, str(spec.model)],
            None,
            environment,
            voice,
            tail.append,
        )
        signals.child, bell, due = child, Bell(), 0.0
        while child.process.poll() is None:
            bell.wait(spec.poll_seconds)
            if time.monotonic() >= due:
                due = time.monotonic() + spec.heartbeat_seconds
                size = sum(file_sizes(folder).values())
                voice.event("stage.progress", phase="model", bytes=size)
        code = child.end(3)
        signals.child = None
        if signals.received is not None:
            raise Stopped(signals.received)
        if code == 0:
            voice.event("stage.progress", phase="model", bytes=sum(file_sizes(folder).values()))
            return
        failure = classify_fetch("\n".join(tail))
        if failure != "INFRA_TRANSIENT" or attempt_number == 3:
            raise Refused(
                failure,
                f"model {spec.model} could not be fetched: "
                + (tail[-1][:300] if tail else f"exit code {code}"),
            )
        time.sleep(min(spec.poll_seconds * 5 * attempt_number, 30))


def classify_fetch(output: str) -> str:
    """The failure class of a failed model download."""
    for failure, pattern in (
        ("LUSTRE_FULL", r"No space left on device|Disk quota exceeded"),
        ("ACCESS", r"GatedRepo|401 Client Error|403 Client Error|Unauthorized|Forbidden"),
        (
            "CONFIG",
            r"RepositoryNotFound|404 Client Error|HFValidationError|"
            r"No module named 'huggingface_hub'",
        ),
    ):
        if re.search(pattern, output):
            return failure
    return "INFRA_TRANSIENT"


def list_checkpoints(spec: Spec, voice: Voice) -> None:
    """Say what is on Lustre, changing nothing."""
    usage = shutil.disk_usage(spec.lustre)
    voice.event(
        "checkpoint.list",
        checkpoints=all_steps(spec.checkpoints),
        free_bytes=usage.free,
        capacity_bytes=usage.total,
    )


def main(arguments: list[str]) -> int:
    """Run one mode; the exit code."""
    parser = argparse.ArgumentParser(description="What Lustrum runs on the Ray head.")
    parser.add_argument("mode", choices=("stage", "train", "list", "prune"))
    parser.add_argument("--spec", required=True, help="a JSON file, or the JSON itself")
    options = parser.parse_args(arguments)
    spec = Spec(run_id="unknown")
    try:
        spec = read_spec(options.spec)
        voice, signals, token = Voice(spec), Signals(), AccessToken(spec)
        if options.mode == "list":
            list_checkpoints(spec, voice)
            return 0
        if options.mode == "prune":
            prune(spec, voice)
            return 0
        publisher = Publisher(spec, token, voice)
        if spec.project is not None:
            voice.publish = publisher.offer
            publisher.start()
        try:
            run = train if options.mode == "train" else stage
            return run(spec, voice, token, signals)
        finally:
            publisher.close(spec.flush_seconds)
            voice.close(spec.flush_seconds)
    except Stopped as stopped:
        return stopped.exit_code
    except (Refused, OSError) as error:
        failure = error.failure if isinstance(error, Refused) else failure_of(error)
        kind = {"train": "job.completed", "stage": "stage.failed"}.get(options.mode, "failed")
        Voice(spec).event(kind, exit_code=EXITS[failure], message=str(error), failure=failure)
        return EXITS[failure]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

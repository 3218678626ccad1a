"""The life of a run on a real Ray by the product's own functions; what the cloud does is left out.

Submitted, read, judged and verified as the functions of the control plane do it: `RayJobs`,
`log_events`, `absorb`, `decide`, `read_listing`, `export_shortfall`. The training is the example
as two Ray actors that share the GPU. It is killed three times, stopped in the middle of a save,
and its newest step is copied to a folder, as Lustre's export does, and verified there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from lustrum.adapters.ray_jobs import RayJob, RayJobs, direct
from lustrum.adapters.supervisor_archive import supervisor_archive
from lustrum.core.checkpoints import export_shortfall, read_listing
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure, named
from lustrum.core.plan import make_plan
from lustrum.core.progress import absorb, log_events
from lustrum.core.record import Run, State, add_mishap
from lustrum.core.record_parts import Job, Placement
from lustrum.core.request import StartRequest
from lustrum.core.training_command import entrypoint, supervisor_spec
from lustrum.core.usage import end_usage, start_usage
from lustrum.core.verdict import Action, Seen, Verdict, crashes_after, decide
from lustrum.head.checkpoint_rule import MANIFEST, NEMO_RL
from lustrum.show.gpus import gpu_facts

from examples.grpo_torch.supervised import SMALL, STEPS, Points, command, difference, points

PORT, DASHBOARD, AGENT, CLIENT = 6399, 8269, 8270, 8271  # beside those of another Ray
PATIENCE = 240.0  # seconds for anything


def wait_for(what: str, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Look five times a second until it holds; its value.

    Raises:
        TimeoutError: it did not.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise TimeoutError(f"{what}: not within {seconds:.0f} s")


class Ray:
    """A head on this machine, and its Jobs API."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self._folder, self._gpus = folder, gpus
        self._process: subprocess.Popen[bytes] | None = None
        self.jobs = RayJobs(direct(f"http://127.0.0.1:{DASHBOARD}/"))

    def start(self) -> str:
        """Start it, again where a slow machine made it give up; the name of its session."""

        def up() -> str | None:
            if self._process is None or self._process.poll() is not None:
                self._launch()
            return self.session()

        return str(wait_for("Ray's dashboard", up))

    def _launch(self) -> None:
        clean = {key: value for key, value in os.environ.items() if key[:4] != "RAY_"}
        with (self._folder / "ray.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
                    *(f"--port={PORT}", f"--num-gpus={self._gpus}", "--node-ip-address=127.0.0.1"),
                    *("--include-dashboard=true", f"--dashboard-port={DASHBOARD}"),
                    *(f"--dashboard-agent-listen-port={AGENT}", "--object-store-memory=400000000"),
                    f"--ray-client-server-port={CLIENT}",
                ],
                env={**clean, "RAY_USAGE_STATS_ENABLED": "0"},
                stdout=log,
                stderr=log,
            )

    def session(self) -> str | None:
        """The name of the running head's session, None while it does not answer."""
        try:
            return str(self.jobs.version()["session_name"])
        except (ServiceError, NotFound, KeyError):
            return None

    def kill_raylet(self) -> None:
        """Kill -9 the raylet."""
        for one in self._children():
            if one.name() == "raylet":
                one.kill()

    def stop(self) -> None:
        """End all of it."""
        left = [one for one in psutil.process_iter() if f":{PORT}" in _line(one)]
        children = [*self._children(), *left]  # a head that died leaves some behind
        for one in children:
            _end(one)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        psutil.wait_procs(children, 10)

    def _children(self) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        return psutil.Process(self._process.pid).children(recursive=True)


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def kill_training(run_id: str) -> None:
    """Kill -9 the training's driver."""
    for one in psutil.process_iter():
        line = _line(one)
        if "examples.grpo_torch.train" in line and run_id in line and "supervisor" not in line:
            one.kill()


def kill_learner(run_id: str) -> None:
    """Kill -9 the actor that learns; Ray names its process by its class."""
    for one in psutil.process_iter():
        if _line(one).startswith("ray::Learner"):
            one.kill()


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""


class Life:
    """One run: its record, its attempts, its files."""

    def __init__(self, ray: Ray, folder: Path, run_id: str) -> None:
        self._ray, self._lustre = ray, folder
        self.folder = folder / "runs" / run_id
        self._supervisor = folder / "supervisor.pyz"
        self._supervisor.write_bytes(supervisor_archive())
        now = time.time()
        request = StartRequest(profile="tiny-grpo", nodes=1)
        plan = make_plan(request, run_id, "exports")
        self.run = Run(
            run_id=run_id,
            key=run_id,
            request=request,
            plan=plan.model_copy(update={"max_num_steps": STEPS, "attempts": 9}),
            state=State.TRAINING,
            created_at=now,
            deadline_at=now + 3600,
            hard_deadline_at=now + 7200,
            placement=Placement(zone_attempt=1, zone="us-east1-b", slot="here", since=now),
        )
        self._class: Failure | None = None  # that the supervisor named at the attempt's end
        start_usage(self.run, "accelerators", now)

    def submit(self, *overrides: str) -> str:
        """Submit the next attempt as `advance_run` does; its id."""
        run = self.run
        run.attempt += 1
        step = run.checkpoint.step if run.checkpoint else 0
        argv = command(self.folder, *SMALL, "local.mode=ray", *overrides)
        spec = supervisor_spec(
            run.run_id,
            run.attempt,
            lustre=str(self._lustre),
            command=argv,
            workdir=os.getcwd(),
            max_steps=STEPS,
            poll_seconds=0.2,
            heartbeat_seconds=1,
            gpu_seconds=1,
            metadata_wait_seconds=0,
            token=False,
        )
        identity = f"{run.run_id}-a{run.attempt}"
        self._send(identity, "train", spec)
        run.job = Job(
            submission_id=identity,
            attempt=run.attempt,
            submitted_at=time.time(),
            session_name=self._ray.session(),
            began_step=step,
        )
        return identity

    def _send(self, identity: str, mode: Any, spec: dict[str, Any]) -> None:
        text = entrypoint(mode, spec, str(self._supervisor), sys.executable)
        env = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1", "RAY_JOB_STOP_WAIT_TIME_S": "35"}

        def accepted() -> bool:
            try:
                self._ray.jobs.submit(identity, text, env, {"run_id": self.run.run_id})
            except ServiceError as error:
                if not error.retryable:
                    raise
                return False
            return True

        wait_for("the submission", accepted)

    def look(self) -> RayJob | None:
        """Bring the record up to date from the job's log; None when the head does not answer."""
        assert self.run.job is not None
        try:
            job = self._ray.jobs.get(self.run.job.submission_id)
            text = self._ray.jobs.logs(job.submission_id)
        except (ServiceError, NotFound):
            return None
        now = time.time()
        for event in log_events(text, self.run.run_id, self.run.attempt):
            absorb(self.run, event, now)
            if event.type == "job.completed":
                self._class = named(event.failure)
        return job

    def attempt(
        self, at: int = 0, wound: Callable[[str], None] | None = None, *overrides: str
    ) -> dict[str, Any]:
        """One attempt, wounded once step `at` is saved; how Ray and the product saw its end."""
        run, self._class = self.run, None
        self.submit(*overrides)
        assert run.job is not None
        wounded = False

        def over() -> bool:
            nonlocal wounded
            job = self.look()
            saved = run.checkpoint.step if run.checkpoint else 0
            if wound is not None and not wounded and saved >= at:
                wounded = True
                wound(run.run_id)
            if job is None:
                return wounded and self._ray.session() is None
            return job.is_over

        wait_for(f"the end of attempt {run.attempt}", over)
        job = self.look()
        if job is None:
            self._ray.stop()
            self._ray.start()
            seen = Seen("MISSING", session_changed=self._ray.session() != run.job.session_name)
        else:
            error = (job.message, job.error_type)
            seen = Seen(job.status, job.exit_code, *error, failure=self._class)
        verdict = decide(run, seen, time.time())
        self._note(verdict)
        return {
            "status": seen.status,
            "exit": seen.exit_code,
            "resumed_at": self._resumed(run.attempt),
            "saved": run.checkpoint.step if run.checkpoint else 0,
            "verdict": verdict.action.value,
            "class": verdict.failure,
            "sentence": verdict.sentence[:200],
        }

    def _note(self, verdict: Verdict) -> None:
        if verdict.failure is not None:
            self.run.crashes = crashes_after(self.run, verdict.failure)
            add_mishap(self.run, verdict.failure, verdict.sentence, time.time())

    def _resumed(self, attempt: int) -> int | None:
        log = self.folder / f"logs/attempt-{attempt}.log"
        found = log_events(log.read_text(errors="replace"), self.run.run_id, attempt)
        return next((one.step for one in found if one.type == "attempt.started"), None)

    def stopped(self) -> dict[str, Any]:
        """Stop it by Ray while a save is being written, as a cancel does; then go on."""
        self.submit("local.save_seconds=8")
        assert self.run.job is not None
        root = self.folder / "checkpoints"
        wait_for("a save under way", (root / "tmp_step_20").exists)
        began = time.monotonic()
        self._ray.jobs.stop(self.run.job.submission_id)
        job = wait_for("the stop", lambda: (seen := self.look()) and seen.is_over and seen)
        seconds = time.monotonic() - began
        left = sorted(path.name for path in root.iterdir())
        after = self.attempt()
        return {
            "status": job.status,
            "seconds": seconds,
            "left": left,
            "then": after,
            "largest_difference": None,
        }

    def export(self, target: Path) -> dict[str, Any]:
        """Verify a copy of the newest step by the listing and the manifest, then a damaged one."""
        identity = f"{self.run.run_id}-list"
        self._send(identity, "list", supervisor_spec(self.run.run_id, 1, lustre=str(self._lustre)))
        wait_for("the listing", lambda: self._ray.jobs.get(identity).is_over)
        line = self._ray.jobs.logs(identity).splitlines()[-1]
        checkpoint = read_listing(json.loads(line.partition("LUSTRUM ")[2])).checkpoints[-1]
        name = NEMO_RL.folder(checkpoint.step)
        shutil.copytree(self.folder / "checkpoints" / name, target / name)
        whole = self._shortfall(target / name, checkpoint)
        weights = next((target / name).rglob("model.safetensors"))
        with weights.open("r+b") as file:
            file.truncate(weights.stat().st_size - 1)
        return {
            "step": checkpoint.step,
            "files": checkpoint.files,
            "bytes": checkpoint.bytes,
            "shortfall": whole,
            "shortfall_of_a_damaged_copy": self._shortfall(target / name, checkpoint),
        }

    @staticmethod
    def _shortfall(folder: Path, checkpoint: Any) -> str | None:
        objects = {
            str(path.relative_to(folder)): path.stat().st_size
            for path in folder.rglob("*")
            if path.is_file()
        }
        manifest = (folder / MANIFEST).read_text()
        return export_shortfall(NEMO_RL, checkpoint, objects, manifest)


def live(folder: Path, gpus: int) -> dict[str, Any]:
    """The whole life; every figure of it."""
    folder.mkdir(parents=True)
    ray = Ray(folder, gpus)
    try:
        ray.start()
        whole = Life(ray, folder, "rl-0000000002")
        undisturbed = whole.attempt()
        expected = points(whole.folder)
        life = Life(ray, folder, "rl-0000000003")
        wounds = (
            ("kill -9 of the training", 10, kill_training),
            ("kill -9 of the learner", 20, kill_learner),
            ("kill -9 of the raylet", 30, lambda _: ray.kill_raylet()),
            ("nothing", 0, None),
        )
        found = {name: life.attempt(at, wound) for name, at, wound in wounds}
        end_usage(life.run, time.time())
        return {
            "undisturbed": undisturbed,
            "attempts": found,
            "largest_difference": _difference(life, expected),
            "gpus": gpu_facts(life.run, time.time()),
            "stop": _stopped(ray, folder, expected),
            "export": life.export(folder / "exports"),
            "ended_well": found["nothing"]["verdict"] == Action.STOP.value,
        }
    finally:
        ray.stop()


def _difference(life: Life, expected: Points) -> float:
    here = points(life.folder)
    # The line of a step follows its save: a kill in between costs the line, never the step.
    if len(here) < STEPS - 3:
        raise RuntimeError(f"only {len(here)} of {STEPS} steps were logged")
    return difference(here, expected)


def _stopped(ray: Ray, folder: Path, expected: Points) -> dict[str, Any]:
    life = Life(ray, folder, "rl-0000000004")
    return {**life.stopped(), "largest_difference": _difference(life, expected)}

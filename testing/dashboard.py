"""A Ray head's dashboard, as bytes over HTTP: what a RayJobs adapter meets.

Jobs behave as the supervisor makes them: a staging job takes some seconds, a training writes
checkpoints onto the file system and events into its log, a listing prints what is there.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from lustrum.adapters.ray_jobs import RayReply
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.head.checkpoint_rule import LAYOUTS, Layout
from lustrum.head.exits import EXITS
from lustrum.head.fabric import Fabric

from testing.agenda import Agenda
from testing.files import LustreFiles, checkpoint
from testing.ray_job import Job
from testing.ray_job import Script as Script

OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class Dashboard:
    """One head. A new head has another session and knows no job."""

    def __init__(
        self,
        agenda: Agenda,
        files: LustreFiles,
        ray_version: str,
        session: str,
        script: Callable[[int], Script],
        publish: Callable[[dict[str, Any]], None],
    ) -> None:
        self.agenda = agenda
        self.files = files
        self.ray_version = ray_version
        self.session = session
        self.script = script
        self.publish = publish
        self.jobs: dict[str, Job] = {}
        self.workers = 0
        self.gpus_per_node = 8
        self.stage_seconds = 300.0
        self.list_seconds = 2.0
        self.stage_failures: list[tuple[str, str]] = []  # (class, message) of the next stagings
        self.down = False
        self.answers: list[RayReply | ServiceError] = []  # instead of the next answers
        self.submissions: list[dict[str, Any]] = []
        self.all_jobs: list[Job] = []  # of every head of the project

    def send(self, method: str, path: str, body: bytes | None = None) -> RayReply:
        """Answer a request, as the service proxy would."""
        if self.down:
            return RayReply(503, b'{"message":"no endpoints available for service"}')
        if self.answers:
            scripted = self.answers.pop(0)
            if isinstance(scripted, ServiceError):
                raise scripted
            return scripted
        parts = urlsplit(path)
        place = parts.path.strip("/")
        if place == "api/version":
            return _json({"ray_version": self.ray_version, "session_name": self.session})
        if place == "nodes":
            return _json({"data": {"summary": self._nodes()}})
        if place == "api/v0/logs/file":
            name = parse_qs(parts.query)["filename"][0].removeprefix("job-driver-")
            job = self.jobs.get(name.removesuffix(".log"))
            if job is not None:
                self._beat(job)
            lines = int(parse_qs(parts.query)["lines"][0])
            return (
                RayReply(200, "\n".join(job.log[-lines:]).encode()) if job else RayReply(404, b"")
            )
        if place == "api/jobs" and method == "POST":
            return self._submit(json.loads(body or b"{}"))
        _, _, rest = place.partition("api/jobs/")
        identity, _, verb = rest.partition("/")
        job = self.jobs.get(unquote(identity))
        if job is None:
            return RayReply(404, f"Job {identity} does not exist".encode())
        if verb == "stop":
            return self._stop(job)
        if verb == "logs":
            return _json({"logs": "\n".join(job.log)})
        return _json(self._shown(job))

    def end(self, job: Job, status: str, code: int | None, message: str = "") -> None:
        """End a job, once."""
        if job.status not in OVER:
            job.status, job.exit_code, job.message = status, code, message
            job.ended = self.agenda.now()

    def kill_trainings(self) -> None:
        """A node is gone: the driver dies with its actors, a few seconds later."""
        for job in self.jobs.values():
            if job.mode == "train" and job.status == "RUNNING":
                self.agenda.after(
                    5,
                    lambda job=job: self._die_of_node(job),  # type: ignore[misc]
                )

    def _die_of_node(self, job: Job) -> None:
        job.cause = job.cause or "node"
        self._complete(job, 1, "ActorDiedError")

    def say(self, job: Job, event: dict[str, Any], *, published: bool = True) -> None:
        """Print an event into a log and publish it."""
        script = self.script(job.spec.get("attempt", 0))
        moment = datetime.fromtimestamp(self.agenda.now(), UTC).isoformat().replace("+00:00", "Z")
        whole = {
            "run_id": job.spec["run_id"],
            "attempt": job.spec["attempt"],
            "at": moment,
            "event_id": f"{job.identity}-{event['type']}-{event.get('step', 0)}",
            **event,
        }
        mute = script.mute and job.mode == "train"
        if not mute:
            job.log.append("LUSTRUM " + json.dumps(whole))
        if published and not script.silent and not mute:
            job.told = job.told or event["type"] == "job.completed"
            self.publish(whole)

    def _submit(self, body: dict[str, Any]) -> RayReply:
        self.submissions.append(body)
        identity = body["submission_id"]
        if identity in self.jobs:
            return RayReply(
                500,
                f"ValueError: Job with submission_id {identity} already exists. "
                "Please use a different submission_id.".encode(),
            )
        words = shlex.split(body["entrypoint"])
        job = Job(
            identity,
            body["entrypoint"],
            body["runtime_env"]["env_vars"],
            body["metadata"],
            mode=words[3],
            spec=json.loads(words[words.index("--spec") + 1]),
            began=self.agenda.now(),
        )
        self.jobs[identity] = job
        self.all_jobs.append(job)
        getattr(self, f"_begin_{job.mode}")(job)
        return _json({"submission_id": identity, "job_id": identity})

    def _stop(self, job: Job) -> RayReply:
        if job.status in OVER:
            return _json({"stopped": False})
        self.agenda.after(3, lambda: self.end(job, "STOPPED", None, "stopped"))
        return _json({"stopped": True})

    def _begin_stage(self, job: Job) -> None:
        def done() -> None:
            if job.status in OVER:
                return
            if self.stage_failures and not job.spec.get("folders"):
                failure, message = self.stage_failures.pop(0)
                self.say(job, {"type": "stage.failed", "class": failure, "message": message})
                self.end(job, "FAILED", 70, message)
                return
            self.files.folders |= set(job.spec.get("folders") or [])
            wanted = job.spec.get("resume_from")
            if wanted:
                name = wanted.rsplit("/", 1)[-1]
                step = _layout(job).step_of(name)
                assert step is not None, name
                if name in self.files.imported:
                    self.files.checkpoints[step] = self.files.imported.pop(name)
                elif not self.files.checkpoints:
                    self.say(job, {"type": "stage.failed", "class": "CONFIG", "message": "empty"})
                    self.end(job, "FAILED", 78)
                    return
            self.say(job, {"type": "stage.done"})
            self.end(job, "SUCCEEDED", 0)

        quick = bool(job.spec.get("folders"))
        self.agenda.after(2 if quick else self.stage_seconds, done)

    def _begin_train(self, job: Job) -> None:
        arguments = dict(word.split("=", 1) for word in job.spec["command"] if "=" in word)
        given = job.spec.get("environment", {}).get("LUSTRUM_SAVE_PERIOD")
        period = int(given or arguments["checkpointing.save_period"])
        goal = int(job.spec["max_steps"])
        script = self.script(job.spec["attempt"])

        def step(number: int) -> None:
            if job.status != "RUNNING" or self.down:
                return
            if script.fail_at == number:
                job.cause = job.cause or "program"
                self._complete(job, script.exit_code, script.message, script.failure)
                return
            self.say(
                job,
                {
                    "type": "job.progress",
                    "step": number,
                    "max_steps": goal,
                    "steps": [{"step": number, "reward": number / 100, "seconds": 60.0}],
                },
            )
            last = number in (goal, script.leave_at, script.data_end_at)
            if number % period == 0 or last:
                self.files.checkpoints[number] = folder = checkpoint(
                    number, layout=job.spec.get("checkpoint_layout", "nemo-rl")
                )
                listed = folder.listed
                self.say(
                    job,
                    {
                        "type": "checkpoint.saved",
                        "step": number,
                        "max_steps": goal,
                        "checkpoint": {
                            "step": number,
                            "bytes": listed["bytes"],
                            "files": listed["files"],
                            "seconds": script.save_seconds,
                        },
                    },
                )
            self.files.reached = max(self.files.reached, number)
            job.moved = self.agenda.now()
            if number >= goal or number in (script.leave_at, script.data_end_at):
                ended = "data" if number == script.data_end_at else "time_limit"
                ended = "goal" if number >= goal else ended
                job.cause = job.cause or ("limit" if ended == "time_limit" else "goal")
                self._complete(job, 0, "", ended=ended)
            elif script.idle_from == number:
                self._idle(job, number)
            elif script.hang_at != number:
                self.agenda.after(script.step_seconds, lambda: step(number + 1))
            elif script.watched:
                self.agenda.after(job.spec["stall_seconds"], lambda: self._end_hang(job, number))

        began = self.files.newest
        self.say(job, {"type": "attempt.started", "step": began, "max_steps": goal})
        if job.spec.get("network"):
            self.agenda.after(15.0, lambda: self._connect(job, script.nccl))
        if began >= goal:
            self.agenda.after(2, lambda: self._complete(job, 0, "", ended="goal"))
        else:
            self.agenda.after(script.step_seconds, lambda: step(began + 1))

    def _connect(self, job: Job, line: str) -> None:
        """NCCL names its network, and the supervisor reads it."""
        if job.status in OVER or self.down:
            return
        fabric = Fabric(job.spec["network"])
        fabric.feed(line)
        if fabric.fault is not None:
            self._complete(job, 78, fabric.fault, "CONFIG")
        else:
            self.say(job, {"type": "job.progress", "step": 0, "network": fabric.network})

    def _beat(self, job: Job) -> None:
        """Print the heartbeat that the supervisor would have printed by now."""
        trains = job.mode == "train" and job.status not in OVER
        if trains and self.script(job.spec["attempt"]).watched:
            quiet = self.agenda.now() - max(job.moved, job.began)
            beat = {"type": "job.progress", "step": self.files.reached}
            self.say(job, {**beat, "quiet_seconds": quiet}, published=False)

    def _end_hang(self, job: Job, step: int) -> None:
        """As the supervisor's watchdog does."""
        if job.status not in OVER and not self.down:
            job.cause = job.cause or "program"
            self.say(job, {"type": "job.stalled", "step": step})
            self._complete(job, EXITS["HANG"], "no progress", "HANG")

    def _idle(self, job: Job, step: int) -> None:
        """As the supervisor does: tell it once, end the training if the spec says so."""
        if not job.spec.get("gpu_seconds"):
            return
        seconds = job.spec.get("gpus_idle_seconds", 600)

        def tell() -> None:
            if job.status in OVER or self.down:
                return
            self.say(job, {"type": "job.gpus_idle", "step": step, "idle_seconds": seconds})
            if job.spec.get("end_idle_gpus"):
                self._complete(job, 86, "all GPUs have idled", "GPUS_IDLE")

        self.agenda.after(seconds, tell)

    def _complete(
        self,
        job: Job,
        code: int | None,
        message: str,
        failure: str | None = None,
        ended: str | None = None,
    ) -> None:
        if job.status in OVER:
            return
        if code != 0 and self.script(job.spec["attempt"]).torn:
            self.files.tear()
        if code is not None:
            self.say(
                job,
                {
                    "type": "job.completed",
                    "step": self.files.newest,
                    "exit_code": code,
                    "message": message,
                    "ended": ended,
                    **({"class": failure} if failure else {}),
                },
            )
        status = "SUCCEEDED" if code == 0 else "FAILED"
        lag = self.script(job.spec["attempt"]).lag
        if lag:
            self.agenda.after(lag, lambda: self.end(job, status, code, message))
        else:
            self.end(job, status, code, message)

    def _begin_list(self, job: Job) -> None:
        def done() -> None:
            found = [
                {"step": n, **one.listed} for n, one in sorted(self.files.checkpoints.items())
            ]
            self.say(
                job,
                {
                    "type": "checkpoint.list",
                    "checkpoints": found,
                    "free_bytes": int(self.files.capacity * (1 - self.files.used)),
                    "capacity_bytes": self.files.capacity,
                },
                published=False,
            )
            self.end(job, "SUCCEEDED", 0)

        self.agenda.after(self.list_seconds, done)

    def _begin_prune(self, job: Job) -> None:
        def done() -> None:
            for number in sorted(self.files.checkpoints)[:-1]:
                del self.files.checkpoints[number]
            self.end(job, "SUCCEEDED", 0)

        self.agenda.after(5, done)

    def _nodes(self) -> list[dict[str, Any]]:
        head = {"raylet": {"state": "ALIVE", "resourcesTotal": {"CPU": 8.0}}}
        worker = {
            "raylet": {"state": "ALIVE", "resourcesTotal": {"GPU": float(self.gpus_per_node)}}
        }
        return [head] + [worker] * self.workers

    def _shown(self, job: Job) -> dict[str, Any]:
        return {
            "submission_id": job.identity,
            "status": job.status,
            "message": job.message,
            "driver_exit_code": job.exit_code,
            "error_type": None,
            "metadata": job.metadata,
            "entrypoint": job.entrypoint,
            "driver_node_id": "node-0",
            "runtime_env": {"env_vars": dict(job.env)},
        }


def lost(message: str = "ReadTimeout") -> ServiceError:
    """Return what a sender raises when there was no answer."""
    return ServiceError(Failure.INFRA_TRANSIENT, f"Ray: {message}", retryable=True)


def _layout(job: Job) -> Layout:
    return LAYOUTS[job.spec.get("checkpoint_layout", "nemo-rl")]


def _json(found: Any) -> RayReply:
    return RayReply(200, json.dumps(found).encode())

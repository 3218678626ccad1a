"""Runs builds: every step of the build file as a process, in a workspace of its own.

What differs from the service: an image is not pulled, its entrypoint is the command of the same
name on this machine, /workspace is the current folder of the steps, and nothing ever waits in a
queue.
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.local.builds.steps import Outcome, StepRunner
from infra.local.builds.substitute import Refused, check_names, substitute

TERMINAL = frozenset({"SUCCESS", "FAILURE", "INTERNAL_ERROR", "TIMEOUT", "CANCELLED", "EXPIRED"})
OUTPUT_LIMIT = 50 * 1024  # bytes of a step's output that the service keeps (it says 50KB)
DEFAULT_TIMEOUT = 3600.0  # seconds

Publisher = Callable[[bytes, Mapping[str, str]], None]


class UnknownBuild(Exception):
    """There is no build of that id."""


class Runner:
    """The builds of one project and place.

    Args:
        root: a folder for workspaces and logs; one folder per build, kept.
        environment: what steps get besides their own ``env``.
        publish: called with the build's JSON and attributes buildId, status on each change of
        status.
    """

    def __init__(
        self, root: Path, project: str, environment: Mapping[str, str], publish: Publisher
    ) -> None:
        self._root = root
        self.project = project
        self._environment = dict(environment)
        self._publish = publish
        self._builds: dict[str, dict[str, Any]] = {}
        self._steps: dict[str, StepRunner] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def create(
        self,
        build: Mapping[str, Any],
        location: str = "global",
        given: Mapping[str, str] | None = None,
        trigger: str = "",
    ) -> dict[str, Any]:
        """Accept a build and begin it; return its JSON.

        Args:
            given: substitutions of the call that ran a trigger; they win over the file's.
            trigger: the trigger's id; a triggered build is loose about substitutions.

        Raises:
            substitute.Refused: the service would refuse it.
        """
        identity = str(uuid.uuid4())
        values = {**(build.get("substitutions") or {}), **(given or {})}
        check_names(values)
        known = {
            "PROJECT_ID": self.project,
            "PROJECT_NUMBER": "123456789012",
            "BUILD_ID": identity,
            "LOCATION": location,
            "TRIGGER_NAME": trigger,
            **values,
        }
        options = build.get("options") or {}
        loose = bool(trigger) or options.get("substitutionOption") == "ALLOW_LOOSE"
        made: dict[str, Any] = substitute(dict(build), known, loose=loose)
        if not made.get("steps"):
            raise Refused("a build needs at least one step")
        for number, step in enumerate(made["steps"]):
            if "script" in step and ("args" in step or "entrypoint" in step):
                raise Refused(f"build step {number}: script excludes args and entrypoint")
        made |= {
            "id": identity,
            "name": f"projects/{self.project}/locations/{location}/builds/{identity}",
            "projectId": self.project,
            "status": "QUEUED",
            "createTime": _now(),
            "substitutions": values,
            "logUrl": (self._root / identity / "log.txt").as_uri(),
            **({"buildTriggerId": trigger} if trigger else {}),
        }
        made.setdefault("timeout", f"{DEFAULT_TIMEOUT:.0f}s")
        with self._lock:
            self._builds[identity] = made
        self._announce(made)
        accepted = self.get(identity)
        thread = threading.Thread(target=self._run, args=(identity,), daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()
        return accepted

    def get(self, identity: str) -> dict[str, Any]:
        """Return a build's JSON. Raises UnknownBuild."""
        with self._lock:
            if identity not in self._builds:
                raise UnknownBuild(identity)
            return dict(json.loads(json.dumps(self._builds[identity])))

    def list(self, location: str) -> list[dict[str, Any]]:
        """Return the builds of a location, newest first."""
        with self._lock:
            found = [
                self.get(identity)
                for identity, build in self._builds.items()
                if f"/locations/{location}/" in build["name"]
            ]
        return found[::-1]

    def cancel(self, identity: str) -> dict[str, Any]:
        """Cancel a build that is not over: its processes are killed, without a chance to clean
        up.
        """
        with self._lock:
            build = self._builds.get(identity)
            if build is None:
                raise UnknownBuild(identity)
            if build["status"] not in TERMINAL:
                build["_cancelled"] = True
                runner = self._steps.get(identity)
                if runner is not None:
                    runner.kill()
        self.wait(identity, 10.0)
        return self.get(identity)

    def wait(self, identity: str, seconds: float) -> dict[str, Any]:
        """Wait until a build is over, or the time is; return its JSON."""
        with self._changed:
            self._changed.wait_for(lambda: self._builds[identity]["status"] in TERMINAL, seconds)
        return self.get(identity)

    def close(self) -> None:
        """Kill everything that runs and wait for it."""
        with self._lock:
            for identity, build in self._builds.items():
                if build["status"] not in TERMINAL:
                    build["_cancelled"] = True
                    if identity in self._steps:
                        self._steps[identity].kill()
            threads = list(self._threads)
        for thread in threads:
            thread.join(10.0)

    def _run(self, identity: str) -> None:
        folder = self._root / identity
        build = self._builds[identity]
        try:
            runner = StepRunner(folder, self._environment, seconds(build["timeout"]))
            with self._lock:
                self._steps[identity] = runner
                cancelled = build.get("_cancelled", False)
            if not cancelled:
                self._change(identity, "WORKING", startTime=_now())
                self._work(identity, runner)
                cancelled = build.get("_cancelled", False)
            if cancelled:
                self._change(identity, "CANCELLED", finishTime=_now())
        except Exception as error:  # a defect here is the service's, not the build's
            self._change(identity, "INTERNAL_ERROR", finishTime=_now(), statusDetail=f"{error!r}")
            raise

    def _work(self, identity: str, runner: StepRunner) -> None:
        build = self._builds[identity]
        outputs: list[bytes] = []
        status, failure = "SUCCESS", None
        for number, step in enumerate(build["steps"]):
            outcome = runner.run(number, step)
            with self._lock:
                step |= {"status": outcome.status, "timing": outcome.timing}
            outputs.append(outcome.output)
            if build.get("_cancelled"):
                return
            if outcome.status != "SUCCESS" and not outcome.tolerated:
                status = outcome.status
                failure = _failure(number, step, outcome)
                break
        results = {
            "buildStepOutputs": [base64.b64encode(one[:OUTPUT_LIMIT]).decode() for one in outputs]
        }
        more: dict[str, Any] = {"results": results, "finishTime": _now()}
        if failure is not None:
            more["failureInfo"] = failure
        self._change(identity, status, **more)

    def _change(self, identity: str, status: str, **fields: Any) -> None:
        with self._changed:
            build = self._builds[identity]
            if build["status"] in TERMINAL:
                return
            build |= {"status": status, **fields}
            build.pop("_cancelled", None) if status in TERMINAL else None
            self._changed.notify_all()
        self._announce(build)

    def _announce(self, build: Mapping[str, Any]) -> None:
        with self._lock:
            shown = {key: value for key, value in build.items() if not key.startswith("_")}
            data = json.dumps(shown).encode()
        self._publish(data, {"buildId": build["id"], "status": build["status"]})


def seconds(duration: str) -> float:
    """Return the seconds of a protobuf duration such as ``"3600s"``."""
    return float(duration.removesuffix("s"))


def _failure(number: int, step: Mapping[str, Any], outcome: Outcome) -> dict[str, str]:
    if outcome.status == "TIMEOUT":
        return {
            "type": "FETCH_SOURCE_FAILED" if number < 0 else "FAILURE_TYPE_UNSPECIFIED",
            "detail": "Build timed out.",
        }
    return {
        "type": "USER_BUILD_STEP",
        "detail": f'Build step failure: build step {number} "{step["name"]}" failed: step exited '
        f"with non-zero status: {outcome.code}",
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

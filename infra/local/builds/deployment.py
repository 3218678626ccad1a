"""What the stand-in gcluster creates and destroys, and the Terraform state it keeps about it.

The state is written when a create is over, as Terraform does: a process killed in between leaves
things that no state knows. The lock object is made with "only if absent" and removed at a
graceful end only.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from infra.local.builds import objects
from infra.local.builds.inside import apply_inside, delete_inside, paths
from infra.local.builds.rest import Refused, call

LIMIT = 3600.0  # seconds for one create or delete, as the modules have it
PARTS = ("cluster", "lustre", "pool", "inside")


class Broken(Exception):
    """Terraform ends with an error; the text is what it prints."""


@dataclass
class Faults:
    """Faults on demand, one rule per deploy or destroy attempt, taken from the file as they are
    used.

    ``{"deploy": [RULE, ...], "destroy": [RULE, ...]}`` with rules (an empty one is no fault):
    deploy   {"fail": TEXT, "after": "nothing"|"cluster"|"all"}, {"hang_after":
    "nothing"|"cluster"},
             {"give_up": TEXT}: the instance is being created when Terraform gives up and forgets
             it,
             {"pretend": true}: exit 0, nothing is created
    destroy  {"fail": TEXT}, {"leave": ["cluster", "lustre"]}: exit 0, these stay, the state
    forgets them
    """

    path: Path | None = None
    rules: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Faults:
        """Read the file that LUSTRUM_FAULTS names, if it does."""
        name = os.environ.get("LUSTRUM_FAULTS")
        if not name or not Path(name).is_file():
            return cls()
        return cls(Path(name), json.loads(Path(name).read_text()))

    def take(self, verb: str) -> dict[str, Any]:
        """Return the next rule for a verb and strike it from the file."""
        rules = self.rules.get(verb, [])
        if not rules or self.path is None:
            return {}
        rule = rules.pop(0)
        self.path.write_text(json.dumps(self.rules))
        return rule


class State:
    """The Terraform state of one deployment group, in the bucket that the backend names."""

    def __init__(self, expanded: Mapping[str, Any]) -> None:
        backend = expanded["deployment_groups"][0]["terraform_backend"]
        if not backend or backend["type"] != "gcs":
            raise Broken("the stand-in keeps its state in a gcs backend; the blueprint has none")
        place = backend["configuration"]
        self._url = f"gs://{place['bucket']}/{place['prefix']}/default.tfstate"
        self._lock = f"gs://{place['bucket']}/{place['prefix']}/default.tflock"
        self._serial = 0
        self.known: list[str] = []

    def __enter__(self) -> State:
        info = {"ID": str(uuid.uuid4()), "Operation": "OperationTypeApply", "Who": "local"}
        try:
            objects.write(self._lock, json.dumps(info).encode(), "0")
        except Refused as error:
            if error.status != 412:
                raise Broken(f"Error: Failed to save the lock: {error}") from None
            raise Broken(
                "Error: Error acquiring the state lock\n\nError message: writing "
                f'"{self._lock}" failed: googleapi: Error 412: conditionNotMet\n'
                f"Lock Info:\n{objects.read(self._lock).decode()}"
            ) from None
        try:
            found = objects.read_json(self._url)
            resources: Any = found["resources"]
            self.known = [str(one["name"]) for one in resources]
            self._serial = int(str(found["serial"]))
        except Refused as error:
            if error.status != 404:
                raise Broken(f"Error: Failed to get existing workspaces: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        objects.delete(self._lock)

    def add(self, name: str) -> None:
        """Remember a resource."""
        self.known = [*self.known, name]
        self._save()

    def forget(self, name: str) -> None:
        """Forget a resource."""
        self.known = [one for one in self.known if one != name]
        self._save()

    def _save(self) -> None:
        self._serial += 1
        body = {
            "version": 4,
            "terraform_version": "1.12.2",
            "serial": self._serial,
            "resources": [{"mode": "managed", "name": name} for name in self.known],
        }
        objects.write(self._url, json.dumps(body).encode())


def deploy(expanded: Mapping[str, Any], faults: Faults) -> None:
    """Create what the blueprint describes and the state does not know. Raises Broken."""
    rule = faults.take("deploy")
    with _interruptible(), State(expanded) as state:
        say("Running terraform apply on deployment group primary")
        if rule.get("pretend"):
            return
        _fault(rule, "nothing")
        todo = [part for part in PARTS if part not in state.known]
        begun = {part: _begin(expanded, part) for part in ("cluster", "lustre") if part in todo}
        if "give_up" in rule:
            _await("cluster", begun["cluster"])
            state.add("cluster")
            raise Broken(f"Error: Error waiting to create Instance: {rule['give_up']}")
        for part, wait in begun.items():
            _await(part, wait)
            state.add(part)
            _fault(rule, part)
        if "pool" in todo:
            _await("pool", _begin(expanded, "pool"))
            state.add("pool")
        if "inside" in todo:
            _attempt("inside", lambda: apply_inside(dict(expanded)))
            state.add("inside")
        _fault(rule, "all")
        say("Apply complete! Resources: 8 added, 0 changed, 0 destroyed.")


def destroy(expanded: Mapping[str, Any], faults: Faults) -> None:
    """Destroy what the state knows, and nothing else. Raises Broken."""
    rule = faults.take("destroy")
    with _interruptible(), State(expanded) as state:
        if not state.known:
            say("Cloud infrastructure in deployment group primary is already destroyed")
            return
        if "fail" in rule:
            raise Broken(str(rule["fail"]))
        if "inside" in state.known:
            _attempt("inside", lambda: delete_inside(dict(expanded)))
            state.forget("inside")
        if "pool" in state.known:
            _remove(expanded, "pool")
            state.forget("pool")
        waits = {}
        for part in ("lustre", "cluster"):
            if part in state.known and part not in rule.get("leave", ()):
                waits[part] = _remove(expanded, part)
        for part, wait in waits.items():
            wait()
            say(f"{part}: Destruction complete")
        for part in list(state.known):
            state.forget(part)
        say("Destroy complete!")


def say(text: str) -> None:
    """Print a progress line."""
    print(text, flush=True)


def _begin(expanded: Mapping[str, Any], part: str) -> Callable[[], None]:
    """Begin to create a part; return what waits for its end."""
    from infra.local.builds import bodies

    path = paths(expanded)[part]
    parent, _, name = path.rpartition("/")
    say(f"{part}: Creating...")
    service = "lustre" if part == "lustre" else "container_rest"
    query = {"instanceId": name} if part == "lustre" else None
    body = bodies.of(dict(expanded), part)
    operation = _attempt(part, lambda: call(service, "POST", parent, body, query))
    return lambda: _await_operation(part, path, operation)


def _remove(expanded: Mapping[str, Any], part: str) -> Callable[[], None]:
    path = paths(expanded)[part]
    say(f"{part}: Destroying...")
    service = "lustre" if part == "lustre" else "container_rest"
    try:
        operation = call(service, "DELETE", path)
    except Refused as error:
        if error.status != 404:
            raise Broken(_error(part, error)) from None
        return lambda: None  # a refresh takes what is gone out of the state

    def wait() -> None:
        _await_operation(part, path, operation)

    if part == "pool":
        wait()
    return wait


def _await(part: str, wait: Callable[[], None]) -> None:
    wait()
    say(f"{part}: Creation complete")


def _await_operation(part: str, path: str, operation: Mapping[str, Any]) -> None:
    """Poll a long operation of GKE or Lustre until it is over. Raises Broken."""
    lustre = part == "lustre"
    name = str(operation["name"])
    url = f"/v1/{name}" if lustre else f"{path.split('/clusters/')[0]}/operations/{name}"
    parent, end, pause = os.getppid(), time.monotonic() + LIMIT, 0.03
    while True:
        found = _attempt(part, lambda: call("lustre" if lustre else "container_rest", "GET", url))
        if found.get("done") or found.get("status") == "DONE":
            break
        if os.getppid() != parent:
            raise SystemExit("the build that started this is gone")
        if time.monotonic() > end:
            raise Broken(f"Error: {part}: timeout while waiting for state to become 'done: true'")
        time.sleep(pause)
        pause = min(pause * 1.3, 0.3)
    error = found.get("error")
    if error:
        raise Broken(f"Error: Error waiting for {part}: {error.get('message', error)}")


def _attempt(part: str, send: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return send()
    except Refused as error:
        raise Broken(_error(part, error)) from None


def _error(part: str, error: Refused) -> str:
    return f"Error: {part}: googleapi: Error {error.status}: {error.text}, {error.code}"


def _fault(rule: Mapping[str, Any], moment: str) -> None:
    if "fail" in rule and rule.get("after", "nothing") == moment:
        raise Broken(str(rule["fail"]))
    if rule.get("hang_after") == moment:
        say("still creating...")
        signal.pause()


class _interruptible:
    """SIGINT and SIGTERM end an apply in good order: error text, lock given back."""

    def __enter__(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            raise Broken(
                "Error: execution halted\n\nInterrupt received: state stored, lock released"
            )

        self._before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

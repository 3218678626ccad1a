"""Looking and sweeping by exact name, with a played gcloud and clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.builds.paths import load

inventory = load("inventory")
ENV = {
    "LUSTRUM_PROJECT": "p",
    "LUSTRUM_RUN_ID": "rl-4f0c2a9d31",
    "LUSTRUM_ZONE": "us-east1-b",
}
GONE = {
    "container": "ResponseError: code=404, message=Not found: projects/p/locations/l/clusters/c.",
    "lustre": "NOT_FOUND: Resource 'projects/p/.../instances/i' was not found",
}


class Gcloud:
    """Plays gcloud: a list of states per service, the last one stays; records deletes."""

    def __init__(self, **states: list[str]) -> None:
        self.states = states
        self.deleted: list[str] = []
        self.refuse: list[str] = []

    def __call__(self, words: Sequence[str]) -> tuple[int, str, str]:
        service = words[0]
        if "delete" in words:
            self.deleted.append(service)
            if self.refuse:
                return 1, "", self.refuse.pop(0)
            self.states[service] = ["DELETING", "GONE"]
            return 0, "", ""
        states = self.states[service]
        now = states.pop(0) if len(states) > 1 else states[0]
        if now == "GONE":
            return 1, "", GONE[service]
        return (1, "", now) if now.startswith("ERROR") else (0, now, "")


def sweep(gcloud: Gcloud, seconds: float = 600.0) -> dict[str, str]:
    """Sweep in virtual time, a minute between looks."""
    clock: Any = {"now": 0.0}

    def sleep(pause: float) -> None:
        clock["now"] += pause

    found: dict[str, str] = inventory.sweep(
        inventory.things(ENV), gcloud, seconds, pause=60.0, clock=lambda: clock["now"], sleep=sleep
    )
    return found


class TestInventory:
    def test_things_are_named_exactly(self) -> None:
        cluster, instance = inventory.things(ENV)
        assert cluster.describe[:4] == ("container", "clusters", "describe", "rl-4f0c2a9d31")
        assert cluster.describe[4:6] == ("--region", "us-east1")
        assert instance.delete[4:6] == ("--location", "us-east1-b")
        assert "--filter" not in " ".join((*cluster.describe, *instance.describe))

    def test_look_takes_an_error_for_unknown_and_not_for_absent(self) -> None:
        gcloud = Gcloud(container=["ERROR: 503 backend"], lustre=["GONE"])
        found = inventory.look(inventory.things(ENV), gcloud)
        assert list(found) == ["cluster projects/p/locations/us-east1/clusters/rl-4f0c2a9d31"]
        assert next(iter(found.values())).startswith("unknown")

    def test_look_takes_a_missing_project_for_unknown(self) -> None:
        gcloud = Gcloud(container=["ERROR code=404, message=Project not found"], lustre=["GONE"])
        assert inventory.look(inventory.things(ENV), gcloud)

    def test_sweep_awaits_a_create_and_then_deletes(self) -> None:
        gcloud = Gcloud(container=["GONE"], lustre=["CREATING", "CREATING", "CREATING", "ACTIVE"])
        assert sweep(gcloud) == {}
        assert gcloud.deleted == ["lustre"]

    def test_sweep_tries_a_refused_delete_again(self) -> None:
        gcloud = Gcloud(container=["RUNNING"], lustre=["GONE"])
        gcloud.refuse = ["FAILED_PRECONDITION: operation in progress"] * 2
        assert sweep(gcloud) == {}
        assert gcloud.deleted == ["container"] * 3

    def test_sweep_deletes_what_it_cannot_see_but_does_not_call_it_gone(self) -> None:
        gcloud = Gcloud(container=["ERROR: 503"], lustre=["GONE"])
        gcloud.refuse = ["503"] * 99
        left = sweep(gcloud, 180.0)
        assert next(iter(left.values())).startswith("unknown")
        assert gcloud.deleted.count("container") >= 3

    def test_sweep_deletes_a_cluster_without_nodes(self) -> None:
        # gcloud 528: describe crashes after reading a cluster that has no node version.
        crash = (
            "ERROR: gcloud crashed (ParseError): The value is not a valid SemVer string: [None]"
        )
        gcloud = Gcloud(container=[crash], lustre=["GONE"])
        assert inventory.look(inventory.things(ENV), gcloud) != {}
        assert sweep(gcloud) == {}
        assert gcloud.deleted == ["container"]

    def test_sweep_says_what_remains_when_time_is_over(self) -> None:
        gcloud = Gcloud(container=["PROVISIONING"], lustre=["GONE"])
        left = sweep(gcloud, 180.0)
        assert list(left.values()) == ["PROVISIONING"]
        assert gcloud.deleted == []

    @pytest.mark.parametrize("state", ["ERROR", "DEGRADED", "SUSPENDED", "REPAIRING", "RUNNING"])
    def test_sweep_deletes_in_every_other_state(self, state: str) -> None:
        class Odd(Gcloud):
            def __call__(self, words: Sequence[str]) -> tuple[int, str, str]:
                if "describe" in words and self.states[words[0]] == [state]:
                    return 0, state, ""
                return super().__call__(words)

        gcloud = Odd(container=[state], lustre=["GONE"])
        assert sweep(gcloud) == {}
        assert gcloud.deleted == ["container"]

"""What a build is told, and the settings that it comes from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lustrum.core.build_substitutions import next_zone, rdma_network, substitutions
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import State
from lustrum.core.settings import Settings, Slot
from lustrum.wiring.settings import read_settings

from testing.samples import plan, run

SLOTS = (
    Slot("a", "us-east1", "n", "s", "p", "v", "172.16.0.0/28"),
    Slot("b", "us-central1", "n", "s", "p", "v", "172.16.0.16/28"),
)
SETTINGS = Settings(
    project="p",
    region="us-east1",
    slots=SLOTS,
    state_bucket="state",
    node_account="nodes@p",
    scripts="gs://state/s.zip",
    gcluster_sha256="a" * 64,
)


class TestDeployment:
    def test_substitutions_are_all_that_the_build_needs(self) -> None:
        one = run(State.PROVISIONING)
        found = substitutions(one, SETTINGS, "deploy")
        text = (
            __import__("pathlib").Path(__file__).parents[2] / "docs/architecture.md"
        ).read_text()
        line = text.split("## Build substitutions")[1].split("`_NONE`")[0]
        import re

        assert set(found) == set(re.findall(r"`(_[A-Z0-9_]+)`", line))
        assert found["_EXPIRES"] == str(int(one.hard_deadline_at))
        assert found["_CAPACITY"] == "spot" and found["_RESERVATION"] == ""
        assert all(isinstance(value, str) for value in found.values())

    @pytest.mark.parametrize("action", ("deploy", "destroy"))
    def test_an_upgrade_in_between_changes_no_build_of_a_placed_run(self, action: str) -> None:
        """Review M5: another toolkit must not destroy the folder that this one made."""
        one = run(State.PROVISIONING)
        assert one.placement is not None
        one.placement.scripts, one.placement.gcluster_sha256 = "gs://state/old.zip", "b" * 64
        found = substitutions(one, SETTINGS, action)
        assert (found["_SCRIPTS"], found["_GCLUSTER_SHA256"]) == ("gs://state/old.zip", "b" * 64)

    def test_a_run_placed_by_an_older_release_is_built_by_the_present_scripts(self) -> None:
        found = substitutions(run(State.PROVISIONING), SETTINGS, "destroy")
        assert (found["_SCRIPTS"], found["_GCLUSTER_SHA256"]) == ("gs://state/s.zip", "a" * 64)

    def test_without_a_digest_the_trigger_gives_its_own(self) -> None:
        bare = replace(SETTINGS, gcluster_sha256="")
        assert "_GCLUSTER_SHA256" not in substitutions(run(State.PROVISIONING), bare, "deploy")

    def test_a_reservation_is_named(self) -> None:
        one = run(plan=plan(capacity="my-res", limits={"cost_usd": 9000}))
        found = substitutions(one, SETTINGS, "deploy")
        assert (found["_CAPACITY"], found["_RESERVATION"]) == ("reservation", "my-res")

    def test_a_slot_that_is_no_more(self) -> None:
        with pytest.raises(ServiceError, match="LUSTRUM_SLOTS"):
            substitutions(run(), Settings(project="p", region="r"), "deploy")

    @pytest.mark.parametrize(
        ("tried", "closed", "zone"),
        (
            ([], [], "us-east1-b"),
            (["us-east1-b"], [], "us-east1-c"),
            (["us-east1-b"], ["us-east1"], "us-central1-a"),
            (["us-east1-b", "us-east1-c", "us-central1-a"], [], None),
            ([], ["us-east1", "us-central1"], None),
        ),
    )
    def test_next_zone(self, tried: list[str], closed: list[str], zone: str | None) -> None:
        zones = ["europe-west4-a", "us-east1-b", "us-east1-c", "us-central1-a"]
        one = run(plan=plan(zones=zones), zones_tried=tried, regions_closed=closed)
        assert next_zone(one, SETTINGS) == zone

    @pytest.mark.parametrize(
        ("asked", "zone", "network"),
        (
            ("rdma", "us-east1-c", "roce-c"),
            ("auto", "us-east1-b", "_NONE"),
            ("tcp", "us-east1-b", "_NONE"),
        ),
    )
    def test_rdma_is_only_where_a_zone_has_it(self, asked: str, zone: str, network: str) -> None:
        settings = replace(SETTINGS, rdma={"us-east1-c": "roce-c"})
        one = run(plan=plan(zones=["us-east1-b", "us-east1-c"], network=asked))
        assert next_zone(one, settings) == zone
        assert (rdma_network(one.plan, zone, settings) or "_NONE") == network

    @pytest.mark.parametrize(("asked", "network"), (("auto", "roce-b"), ("tcp", "")))
    def test_auto_takes_rdma_where_the_first_zone_has_it(self, asked: str, network: str) -> None:
        settings = replace(SETTINGS, rdma={"us-east1-b": "roce-b"})
        assert rdma_network(plan(network=asked), "us-east1-b", settings) == network


class TestSettings:
    @pytest.mark.parametrize(
        ("env", "word"),
        (
            ({}, "LUSTRUM_PROJECT"),
            ({"LUSTRUM_PROJECT": "p"}, "LUSTRUM_REGION"),
            (
                {"LUSTRUM_PROJECT": "p", "LUSTRUM_REGION": "r", "LUSTRUM_SLOTS": "x"},
                "LUSTRUM_SLOTS",
            ),
            (
                {
                    "LUSTRUM_PROJECT": "p",
                    "LUSTRUM_REGION": "r",
                    "LUSTRUM_SLOTS": '[{"name": "a"}]',
                },
                "LUSTRUM_SLOTS",
            ),
            (
                {"LUSTRUM_PROJECT": "p", "LUSTRUM_REGION": "r", "LUSTRUM_ENDPOINTS": "{"},
                "LUSTRUM_ENDPOINTS",
            ),
        ),
    )
    def test_read_settings_names_what_is_wrong(self, env: dict[str, str], word: str) -> None:
        with pytest.raises(ServiceError) as error:
            read_settings(env)
        assert error.value.failure is Failure.CONFIG
        assert word in str(error.value)

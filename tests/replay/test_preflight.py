"""Cases D4 and I11, and what else can be known before a run costs anything."""

from __future__ import annotations

from typing import Any

import pytest
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Run
from lustrum.doctor.expected_setup import lustre_agent

from testing.cloud import Deploy
from testing.life import Life
from testing.stories import TWO_REGIONS, check_nothing_is_left, to_the_end

AGENT = lustre_agent("1")


def refuse(service: str, method: str) -> None:
    if service == "project":
        raise ServiceError(Failure.ACCESS, "project answered 403", status=403)


def check_it_cost_nothing(life: Life, run: Run) -> None:
    check_nothing_is_left(life, run)
    assert life.cloud.deployments == 0
    assert run.outcome == "FAILED"
    assert not run.usage


class TestZones:
    def test_d4_a_zone_without_lustre_is_never_tried(self) -> None:
        life = Life()
        life.services.project.lustre = {"us-central1-a"}
        run = life.run(to_the_end(TWO_REGIONS))
        check_nothing_is_left(life, run)
        assert (run.outcome, run.zones_tried) == ("SUCCEEDED", ["us-central1-a"])

    def test_d4_no_zone_offers_both(self) -> None:
        life = Life()
        life.services.project.lustre = {"us-central1-a"}
        life.services.project.machines = {"us-east1-b", "us-east1-c"}
        run = life.run(to_the_end(TWO_REGIONS))
        check_it_cost_nothing(life, run)
        assert run.failure == "CONFIG"
        assert "us-east1-b does not offer Managed Lustre" in run.reason
        assert "us-central1-a does not offer a4-highgpu-8g" in run.reason

    def test_a_list_without_zones_says_nothing(self) -> None:
        life = Life()
        life.services.project.lustre = {"us-west2", "global"}
        assert life.run(to_the_end()).outcome == "SUCCEEDED"

    def test_what_was_seen_holds_for_every_zone(self) -> None:
        life = Life()
        life.cloud.deploys = [Deploy("STOCKOUT", "GCE_STOCKOUT")] * 2
        life.run(to_the_end(TWO_REGIONS))
        assert life.cloud.calls.count(("project", "lustre_zones")) == 1


class TestExport:
    def test_i11_learnt_before_anything_is_created(self) -> None:
        life = Life()
        life.services.project.on_bucket = {("roles/storage.objectViewer", AGENT)}
        run = life.run(to_the_end())
        check_it_cost_nothing(life, run)
        assert run.failure == "ACCESS"
        assert f"--member={AGENT} --role=roles/storage.objectUser" in run.reason

    @pytest.mark.parametrize(
        "grant",
        (
            {"on_project": {("roles/storage.admin", AGENT)}},
            {"on_bucket": {("projects/p/roles/ours", AGENT)}},  # who knows what it holds
            {"owner": "2"},  # that project's policy is not ours to read
        ),
    )
    def test_i11_what_could_be_otherwise_is_not_held_against_it(
        self, grant: dict[str, Any]
    ) -> None:
        life = Life()
        vars(life.services.project).update({"on_bucket": set(), **grant})
        assert life.run(to_the_end()).outcome == "SUCCEEDED"

    def test_i11_an_export_that_is_not_required_may_fail(self) -> None:
        life = Life()
        life.services.project.on_bucket = set()
        run = life.run(to_the_end({"checkpoints": {"required": False}}))
        assert run.outcome == "SUCCEEDED"

    def test_a_look_that_is_refused_says_nothing(self) -> None:
        life = Life()
        life.cloud.hooks.append(refuse)
        assert life.run(to_the_end()).outcome == "SUCCEEDED"


class TestResume:
    @pytest.mark.parametrize(
        ("buckets", "said"),
        (
            ({"export-bucket", "report-bucket", "state-bucket"}, "there is no bucket"),
            (None, "holds no step_N"),
        ),
    )
    def test_a_folder_without_a_checkpoint(self, buckets: set[str] | None, said: str) -> None:
        life = Life()
        life.cloud.buckets = buckets
        run = life.run(to_the_end({"checkpoints": {"resume_from": "gs://mine/before/"}}))
        check_it_cost_nothing(life, run)
        assert run.failure == "CONFIG"
        assert "checkpoints.resume_from" in run.reason and said in run.reason

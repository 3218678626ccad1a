"""RDMA between the GPU nodes: where it is, that it is used, and that TCP never takes its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.core.record import Run
from lustrum.show import report

from testing.dashboard import Script
from testing.life import Life
from testing.services import FakeServices
from testing.stories import check_nothing_is_left, to_the_end

ZONES = ["us-east1-b", "us-east1-c"]
FALLS_BACK = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"
NO_PLUGIN = "h:1:2 [0] NCCL WARN Error: network gIB not found."


def lived(request: dict[str, Any], nccl: str = "", **rdma: str) -> tuple[Life, Run]:
    """Live one run in a project with RDMA networks in some zones."""
    zones = {zone.replace("_", "-"): network for zone, network in rdma.items()}
    life = Life(FakeServices(LUSTRUM_RDMA=json.dumps(zones)))
    if nccl:
        life.cloud.scripts = {1: Script(nccl=nccl)}
    return life, life.run(to_the_end({"zones": ZONES, **request}))


class TestRdma:
    def test_auto_takes_rdma_where_the_zone_has_it_and_says_so(self) -> None:
        life, run = lived({}, us_east1_b="roce-b")
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert run.placement is not None and run.placement.rdma_network == "roce-b"
        assert run.nccl_network == "gIB"
        assert "RDMA by roce-b; NCCL says gIB" in report.render(run, [])

    def test_without_an_rdma_network_nothing_of_it_is_in_pods_or_job(self) -> None:
        life, run = lived({})
        assert run.outcome == "SUCCEEDED"
        assert run.placement is not None and run.placement.rdma_network == ""
        job = next(one for one in life.cloud.jobs if one.mode == "train")
        assert not any(key.startswith("NCCL_IB") or key == "NCCL_NET" for key in job.env)
        assert job.spec.get("network") is None

    def test_rdma_asked_for_passes_over_a_zone_without_it(self) -> None:
        _, run = lived({"network": "rdma"}, us_east1_c="roce-c")
        assert run.zones_tried == ["us-east1-c"]
        assert run.outcome == "SUCCEEDED"

    def test_rdma_that_no_zone_has_ends_before_anything_is_billed(self) -> None:
        life, run = lived({"network": "rdma"})
        assert (run.outcome, run.failure, run.usage) == ("FAILED", "CONFIG", [])
        assert "RDMA network (LUSTRUM_RDMA)" in run.reason and "network: tcp" in run.reason
        assert not life.cloud.builds

    @pytest.mark.parametrize("line", (FALLS_BACK, NO_PLUGIN))
    @pytest.mark.parametrize("asked", ("auto", "rdma"))
    def test_a_fall_back_to_tcp_ends_within_minutes(self, asked: str, line: str) -> None:
        life, run = lived({"network": asked}, line, us_east1_b="roce-b")
        check_nothing_is_left(life, run)
        assert (run.outcome, run.failure, run.attempt) == ("FAILED", "CONFIG", 1)
        assert "RDMA network" in run.reason and "network: tcp" in run.reason
        up = next(one for one in run.usage if one.resource == "accelerators")
        assert up.until is not None and up.until - up.since < 600

    def test_nccl_speaks_on_the_first_attempt_alone(self) -> None:
        life = Life(FakeServices(LUSTRUM_RDMA=json.dumps({"us-east1-b": "roce-b"})))
        life.cloud.scripts = {1: Script(fail_at=9)}
        run = life.run(to_the_end({}))
        assert run.outcome == "SUCCEEDED"
        first, second = (one.env for one in life.cloud.jobs if one.mode == "train")
        assert first["NCCL_NET"] == second["NCCL_NET"] == "gIB"
        assert first["NCCL_DEBUG"] == "INFO" and "NCCL_DEBUG" not in second
        # Read on the head, where NeMo-RL's driver runs and the image set its own path.
        assert first["LD_LIBRARY_PATH"].endswith(":${LD_LIBRARY_PATH}")

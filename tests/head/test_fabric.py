"""The network that NCCL names, read by the real supervisor, as a process."""

from __future__ import annotations

import pytest

from .conftest import Head


class TestFabric:
    @pytest.mark.parametrize(
        "line",
        [
            "\x1b[36m(W pid=7, ip=10.0.0.2)\x1b[0m h:7:9 [0] NCCL INFO Using network Socket",
            "h:1:2 [3] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [receive] via NET/Socket/0",
            "h:1:2 [0] NCCL WARN Error: network gIB not found.",
        ],
    )
    def test_train_over_tcp_ends_at_once_where_rdma_was_asked_for(
        self, head: Head, line: str
    ) -> None:
        said = f"say({line!r}); time.sleep(300)"
        assert head.train(said, network="gIB") == 78
        completed = head.last("job.completed")
        assert completed["class"] == "CONFIG"
        assert "RDMA network" in completed["message"]
        # Nobody asked for RDMA: the same line is no fault, and is told.
        if "Using network" in line:
            assert head.train(f"say({line!r})") == 0
            assert head.last("job.progress")["network"] == "Socket"

    def test_train_tells_that_it_goes_by_rdma(self, head: Head) -> None:
        said = "say('h:1:2 [0] NCCL INFO Using network gIB'); train(1, 2)"
        assert head.train(said, max_steps=2, network="gIB") == 0
        assert head.last("job.progress")["network"] == "gIB"

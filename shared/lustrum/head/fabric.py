"""Which network NCCL chose: read from its own lines in the training's output.

Lines of NCCL (2.26 to 2.28) with ``NCCL_DEBUG=INFO``: ``NCCL INFO Using network gIB``, ``NCCL INFO
Channel 00/0 : 0[0] -> 8[0] [send] via NET/gIB/0/GDRDMA``; and, when the network asked for is
absent, ``NCCL WARN Error: network gIB not found.``
"""

from __future__ import annotations

import re

RDMA_NETWORK = "gIB"
LINE = 600  # characters of a line that can matter; Ray puts some of its own before NCCL's
_CHOSEN = re.compile(r"NCCL INFO (?:Using network |Channel .{1,80} via NET/)([A-Za-z_]{1,20})")
_ABSENT = re.compile(r"NCCL WARN (?:Error: )?network ([A-Za-z_]{1,20}) not found", re.IGNORECASE)


class Fabric:
    """What NCCL said of its network so far."""

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self.network: str | None = None  # that NCCL uses, by its own name
        self.fault: str | None = None  # why this attempt must not go on

    def feed(self, line: str) -> None:
        """Take one line of the training's output; never raises."""
        if "NCCL" not in line[:LINE]:
            return
        chosen = _CHOSEN.search(line, 0, LINE)
        if chosen:
            self.network = chosen.group(1)
            if self._wanted is not None and self.network != self._wanted:
                self.fault = (
                    f"NCCL took {self.network}, not RDMA ({self._wanted}): the GPUs would wait "
                    "for the network; look at the zone's RDMA network, or ask for network: tcp"
                )
            return
        absent = _ABSENT.search(line, 0, LINE)
        if absent and self._wanted is not None:
            self.fault = (
                f"NCCL found no {absent.group(1)} network: the plugin or its NICs are not in the "
                "worker pods; look at the RDMA network of the zone, give another gib, or ask for "
                "network: tcp"
            )

"""What the checks of one life share: the life, what went wrong in it, and what they found."""

from __future__ import annotations

from dataclasses import dataclass, field

from lustrum.core.record import Run

from testing.cloud import LustreInstance
from testing.files import MANIFEST
from testing.life import Life
from testing.schedule import Schedule
from testing.seam import Seam

PASSING = frozenset({"before", "after", "lose", "contention", "slow"})  # asked again, it is well
BROKEN = frozenset(
    {"many writers", "denied", "shape", "kill", "away", "stale", "hide", "partial", "meanwhile"}
)
DEATHS = frozenset({"execution", "second teardown"})
INVENTORY = {("gke", "list"), ("lustre", "list"), ("compute", "machines"), ("builds", "tagged")}
FEW = 4  # calls that fail in passing, in a row even: each caller asks more often


@dataclass
class Trial:
    """One life before its judges. Times in epoch seconds."""

    life: Life
    seam: Seam
    schedule: Schedule
    run_id: str = ""
    found: dict[str, str] = field(default_factory=dict)  # name of the check -> what was seen
    refused: set[str] = field(default_factory=set)  # messages that can be no request
    seen: set[str] = field(default_factory=set)  # checks that had something to judge

    @property
    def now(self) -> float:
        """The time of the world."""
        return self.life.agenda.time

    def expect(self, name: str, holds: bool, what: object = "") -> None:
        """Hold one promise; the first breach of each is kept."""
        self.seen.add(name)
        if not holds and name not in self.found:
            begin = self.life.states[0][0] if self.life.states else self.now
            self.found[name] = f"{name} (after {self.now - begin:.0f} s): {what}"

    def record(self) -> Run | None:
        """Return the run's record as it is stored, None when there is none that can be read."""
        try:
            return self.life.record(self.run_id)
        except Exception:
            return None

    def went_wrong(self, kinds: frozenset[str], since: float = 0.0) -> int:
        """Return how many faults of these kinds struck since a moment."""
        return sum(one.kind in kinds and one.at + one.lasts >= since for one in self.seam.struck)

    @property
    def is_smooth(self) -> bool:
        """Say whether no call went wrong so far but a few in passing, and nothing was killed:
        then every bound is narrow, and nobody but rl_run and the teardown has anything to do.
        """
        return (
            not self.went_wrong(BROKEN | DEATHS)
            and self.went_wrong(PASSING) <= FEW
            and not any("start_run" in one.who or "reap" in one.who for one in self.seam.struck)
            and not self.schedule.world.old_record
        )

    @property
    def is_quiet(self) -> bool:
        """Say whether not a single call went wrong so far and nothing was killed."""
        return (
            not self.went_wrong(BROKEN | DEATHS | PASSING) and not self.schedule.world.old_record
        )

    def is_due(self, run: Run) -> bool:
        """Say whether the reaper may end the run because the deadline passed just now: then
        rl_run has not looked yet.
        """
        late = self.now - run.deadline_at
        return -61 <= late <= run.plan.timing.doorbell + 60

    def unseen(self) -> list[str]:
        """Return the listings of the cloud that failed, or lacked places, in the call of a
        function that is at work now: what it saw is not all that is there.
        """
        who = self.seam.who
        return [
            f"{one.service}: {one.kind}"
            for one in self.seam.struck
            if one.at >= who.at
            and one.who == who.name
            and one.kind in ("partial", "before", "after", "denied", "shape")
            and (one.service, one.method) in INVENTORY
        ]

    def orphans_due(self) -> float:
        """Return when the last rung may delete what no record knows: an hour past its expiry, and
        no earlier than this life, with its first sweep, began.
        """
        began = self.life.states[0][0] if self.life.states else self.now
        return max(began, *(one.expires + 3600 for one in self.schedule.world.orphans))

    def left(self) -> list[str]:
        """Return what of this run costs money now."""
        cloud, run = self.life.cloud, self.run_id
        return [
            *(f"cluster {one.name}" for one in cloud.clusters if one.name == run),
            *(f"Lustre {one.name}" for one in cloud.instances if one.name == run),
            *(f"build {one.build_id}" for one in cloud.builds if one.is_live),
            *(f"VM {one.name}" for one in cloud.remains if one.cluster == run),
        ]

    def is_whole(self, instance: LustreInstance, step: int) -> bool:
        """Say whether a step of a file system is in the bucket, every byte of it."""
        folder = instance.files.checkpoints.get(step)
        if folder is None:
            return True
        objects = self.life.cloud.objects
        for prefix in self._exports_of(step):
            if all(
                _size(objects.get(prefix + path)) == size for path, size in folder.sizes.items()
            ):
                return True
        return False

    def _exports_of(self, step: int) -> list[str]:
        ending = f"/step_{step}/training_info.json"
        found = [key for key in self.life.cloud.objects if key.endswith(ending)]
        return [key.removesuffix("training_info.json") for key in found]

    def stored(self, uri: str, step: int) -> bool:
        """Say whether a folder of the bucket holds a whole step."""
        objects = self.life.cloud.objects
        names = {key.removeprefix(uri) for key in objects if key.startswith(uri)}
        weights = {"policy/weights/shard_0.bin", "policy/weights/shard_1.bin"}
        return {"training_info.json", "config.yaml", MANIFEST} | weights <= names


def _size(content: bytes | int | None) -> int | None:
    return len(content) if isinstance(content, bytes) else content

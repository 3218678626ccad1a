"""What the supervisor tells of the GPUs, by an NVML that speaks the real library's names."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from lustrum.head import gpu_counters
from lustrum.head.gpu_counters import GpuCounters
from lustrum.head.gpu_watch import BROKEN, GpuMeter
from lustrum.head.last_error import _GPU

from .conftest import ROOT, Head, wait_for

FAKE = ROOT / "testing/nvml"
BUSY = {
    "utilisation": 90,
    "memory_used": 50,
    "memory_total": 100,
    "milliwatts": 400_000,
    "ecc": 0,
    "xid": [],
}
IDLE = {**BUSY, "utilisation": 2}
# Steps go on, so that no stall ends it; a save in between, as in a real training.
FOR_EVER = "n = 0\nwhile True:\n    n += 1; banner(n); results(n); time.sleep(0.05)"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that the fake NVML reads, and the fake in place."""
    figures = tmp_path / "nvml.json"
    monkeypatch.setenv("FAKE_NVML", str(figures))
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setattr(gpu_counters, "COPIES", ("pynvml",))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return figures


def write(path: Path, *gpus: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(gpus))
    part.rename(path)


def watched(head: Head, figures: Path, script: str, **more: Any) -> int:
    """Train under the supervisor with the fake NVML, all figures in a hurry."""
    head.environment |= {"PYTHONPATH": str(FAKE), "FAKE_NVML": str(figures)}
    return head.train(script, gpu_seconds=0.1, **more)


class TestGpuCounters:
    def test_names_are_those_of_the_real_library(self) -> None:
        spec = importlib.util.find_spec("ray._private.thirdparty.pynvml.pynvml")
        assert spec is not None and spec.origin is not None
        real = set(
            re.findall(r"^(?:def |class )?(nvml\w+|NVML\w+)", Path(spec.origin).read_text(), re.M)
        )
        fake = set(
            re.findall(
                r"^(?:def |class )?(nvml\w+|NVML\w+)", (FAKE / "pynvml.py").read_text(), re.M
            )
        )
        ours = set(
            re.findall(r"\b(nvml[A-Z]\w+|NVML_\w+)", Path(gpu_counters.__file__).read_text())
        )
        assert len(ours) > 8
        assert fake <= real
        assert ours <= fake

    def test_read_all_gpus(self, nvml: Path) -> None:
        write(nvml, BUSY, {**BUSY, "utilisation": 10, "ecc": 3})
        first, second = GpuCounters("10.0.0.7").read()
        assert first == {
            "node": "10.0.0.7",
            "index": 0,
            "utilisation": 90,
            "memory_used": 50,
            "memory_total": 100,
            "watts": 400.0,
            "ecc": 0,
            "xid": [],
        }
        assert (second["index"], second["utilisation"], second["ecc"]) == (1, 10, 3)

    def test_xid_events_are_counted_once_each_by_gpu(self, nvml: Path) -> None:
        write(nvml, BUSY, BUSY)
        counters = GpuCounters()
        assert [one["xid"] for one in counters.read()] == [[], []]
        write(nvml, BUSY, {**BUSY, "xid": [79, 31]})
        assert [one["xid"] for one in counters.read()] == [[], [79, 31]]
        assert [one["xid"] for one in counters.read()] == [[], [79, 31]]

    def test_what_a_gpu_does_not_support_is_none(self, nvml: Path) -> None:
        write(nvml, {"utilisation": 7})
        (reading,) = GpuCounters().read()
        assert (reading["utilisation"], reading["watts"], reading["ecc"]) == (7, None, None)
        assert reading["memory_total"] is None

    def test_without_a_driver_there_are_no_gpus(self, nvml: Path) -> None:
        assert GpuCounters().read() == []


class TestGpuUse:
    @staticmethod
    def reading(utilisation: int | None = 0, index: int = 0, **more: Any) -> dict[str, Any]:
        return {"node": "n", "index": index, "utilisation": utilisation, **more}

    def test_seconds_are_gpu_seconds(self) -> None:
        use = GpuMeter()
        for now in (10.0, 20.0, 30.0):
            use.add([self.reading(100), self.reading(50, 1)], now, "step", 10.0)
        report = use.report()
        assert report is not None
        assert (report["busy_seconds"], report["seen_seconds"]) == (45.0, 60.0)
        assert (report["count"], report["utilisation"], report["lowest"]) == (2, 75.0, 50)
        again = use.report()
        assert again is not None and again["utilisation"] == 75.0  # nothing was read since

    def test_a_pause_of_the_supervisor_is_not_counted_whole(self) -> None:
        use = GpuMeter()
        use.add([self.reading(100)], 0.0, "step", 10.0)
        use.add([self.reading(100)], 5000.0, "step", 10.0)
        assert use.busy_seconds == 40.0

    def test_idle_is_the_mean_of_all_and_ends_with_work(self) -> None:
        use = GpuMeter()
        for now in range(0, 50, 10):
            use.add([self.reading(0), self.reading(9, 1)], now, "step", 10.0)
        assert use.idle_seconds == 50.0
        use.add([self.reading(0), self.reading(10, 1)], 50.0, "step", 10.0)
        assert use.idle_seconds == 0.0

    def test_idle_is_not_counted_while_starting_or_saving(self) -> None:
        use = GpuMeter()
        use.add([self.reading(0)], 0.0, "starting", 10.0)
        assert use.idle_seconds == 0.0
        use.add([self.reading(0)], 10.0, "step", 10.0)
        use.add([self.reading(0)], 20.0, "saving", 10.0)
        assert use.idle_seconds == 10.0

    def test_no_figure_is_not_idleness(self) -> None:
        use = GpuMeter()
        use.add([], 0.0, "step", 10.0)
        use.add([self.reading(None)], 10.0, "step", 10.0)
        assert (use.idle_seconds, use.seen_seconds) == (0.0, 0.0)

    def test_ecc_errors_from_before_the_attempt_are_not_its_fault(self) -> None:
        use = GpuMeter()
        use.add([self.reading(90, ecc=4)], 0.0, "step", 10.0)
        assert use.faults() == [] and use.broken() == ""
        use.add([self.reading(90, ecc=6)], 10.0, "step", 10.0)
        assert use.broken() == "GPU 0 of node n: 2 uncorrectable ECC errors"

    def test_a_program_s_own_xid_breaks_no_gpu(self) -> None:
        use = GpuMeter()
        use.add([self.reading(90, xid=[31])], 0.0, "step", 10.0)
        assert use.faults() == ["GPU 0 of node n: Xid 31"]
        assert use.broken() == ""
        use.add([self.reading(90, xid=[31, 79])], 0.0, "step", 10.0)
        assert use.broken() == "GPU 0 of node n: Xid 79"

    def test_codes_are_those_that_the_log_is_read_for(self) -> None:
        read = {code for code in range(1, 200) if _GPU.search(f"NVRM: Xid (PCI:0): {code}, x")}
        assert read == BROKEN


class TestHeartbeats:
    def test_gpus_are_in_the_heartbeats(self, head: Head, tmp_path: Path) -> None:
        figures = tmp_path / "nvml.json"
        write(figures, BUSY, {**BUSY, "utilisation": 30})
        script = "hold(root / 'go')\ntrain(1, 2)"
        process = _start(head, figures, script)
        _seen(head, lambda gpus: gpus["count"] == 2)
        (head.checkpoints / "go").touch()
        assert process.wait(30) == 0
        told = [event["gpus"] for event in head.events("job.progress") if event["gpus"]]
        last = told[-1]
        assert (last["count"], last["nodes"], last["lowest"]) == (2, 1, 30)
        assert (last["memory_percent"], last["watts"], last["ecc"]) == (50.0, 800.0, 0)
        assert [one["busy_seconds"] for one in told] == sorted(one["busy_seconds"] for one in told)
        assert last["busy_seconds"] == pytest.approx(0.6 * last["seen_seconds"], abs=0.2)
        assert last["faults"] == []

    def test_off_unless_the_spec_asks(self, head: Head, tmp_path: Path) -> None:
        figures = tmp_path / "nvml.json"
        write(figures, BUSY)
        head.environment |= {"PYTHONPATH": str(FAKE), "FAKE_NVML": str(figures)}
        assert head.train("train(1, 2)") == 0
        assert {event["gpus"] for event in head.events("job.progress")} == {None}

    def test_without_nvml_the_training_goes_on(self, head: Head, tmp_path: Path) -> None:
        assert watched(head, tmp_path / "absent.json", "train(1, 4)", max_steps=4) == 0
        assert {event["gpus"] for event in head.events("job.progress")} == {None}


class TestIdle:
    def test_idle_gpus_end_a_training_that_asked_for_it(self, head: Head, tmp_path: Path) -> None:
        figures = tmp_path / "nvml.json"
        write(figures, IDLE)
        code = watched(head, figures, FOR_EVER, gpus_idle_seconds=0.5, end_idle_gpus=True)
        assert code == 86
        assert head.last("job.gpus_idle")["idle_seconds"] >= 0.5
        completed = head.last("job.completed")
        assert (completed["class"], completed["exit_code"]) == ("GPUS_IDLE", 86)
        assert completed["message"].startswith("all GPUs have idled for ")

    def test_else_it_is_told_once_and_the_training_goes_on(
        self, head: Head, tmp_path: Path
    ) -> None:
        figures = tmp_path / "nvml.json"
        write(figures, IDLE)
        script = FOR_EVER.replace("True", "not (root / 'go').exists()")
        process = _start(head, figures, script, gpus_idle_seconds=0.3)
        _seen(head, lambda gpus: gpus["idle_seconds"] > 0.8)
        assert len(head.events("job.gpus_idle")) == 1
        write(figures, BUSY)
        _seen(head, lambda gpus: gpus["idle_seconds"] == 0)
        write(figures, IDLE)
        _seen(head, lambda gpus: gpus["idle_seconds"] > 0.5)
        assert len(head.events("job.gpus_idle")) == 2
        (head.checkpoints / "go").touch()
        assert process.wait(30) == 0

    def test_busy_gpus_are_not_idle(self, head: Head, tmp_path: Path) -> None:
        figures = tmp_path / "nvml.json"
        write(figures, IDLE, BUSY)
        script = "for n in range(1, 31): banner(n); results(n); time.sleep(0.05)"
        assert watched(head, figures, script, gpus_idle_seconds=0.3, end_idle_gpus=True) == 0
        assert not head.events("job.gpus_idle")


class TestBrokenGpu:
    def test_an_error_beside_a_fatal_xid_is_a_lost_node(self, head: Head, tmp_path: Path) -> None:
        figures = tmp_path / "nvml.json"
        write(figures, {**BUSY, "xid": [79]})
        script = "hold(root / 'go')\nraise RuntimeError('odd')"
        process = _start(head, figures, script)
        _seen(head, lambda gpus: gpus["xid"] == 1)
        (head.checkpoints / "go").touch()
        assert process.wait(30) == 1
        completed = head.last("job.completed")
        assert completed["class"] == "NODE_LOST"
        assert completed["message"].startswith("a GPU failed: GPU 0: Xid 79; RuntimeError: odd")


def _start(head: Head, figures: Path, script: str, **more: Any) -> Any:
    head.environment |= {"PYTHONPATH": str(FAKE), "FAKE_NVML": str(figures)}
    return head.start("train", command=head.command(script), gpu_seconds=0.1, **more)


def _seen(head: Head, condition: Any) -> None:
    """Wait until the newest heartbeat with GPUs is as wanted."""

    def holds() -> bool:
        told = [event["gpus"] for event in head.events("job.progress") if event["gpus"]]
        return bool(told) and condition(told[-1])

    wait_for("a heartbeat", holds)

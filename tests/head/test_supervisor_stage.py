"""Staging, listing and pruning: what happens on Lustre before and between trainings."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from lustrum.head import checkpoint_files
from lustrum.head.spec import Spec

from .conftest import RUN, Head
from .google import Google

Keys = dict[str, Any]
CODE = "gs://bucket/a/code.zip"


def zipped(entries: dict[str, bytes], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | mode) << 16
            bundle.writestr(info, data)
    return buffer.getvalue()


class TestStage:
    def test_stage_makes_the_folders(self, head: Head) -> None:
        assert head.run("stage") == 0
        run = head.lustre / "runs" / RUN
        assert sorted(os.listdir(run)) == ["checkpoints", "code", "logs"]
        assert (head.lustre / "cache/huggingface").is_dir()
        assert head.last("stage.done")["capacity_bytes"] > 0

    def test_stage_folders_only(self, head: Head) -> None:
        assert head.run("stage", folders=["imported/step_8"], model="x", fetch_model=True) == 0
        assert (head.lustre / "runs" / RUN / "imported/step_8").is_dir()

    def test_stage_folders_cannot_leave_the_run(self, head: Head) -> None:
        assert head.run("stage", folders=["../../elsewhere"]) == 78
        assert head.last("stage.failed")["class"] == "CONFIG"
        assert not (head.lustre / "elsewhere").exists()

    def test_stage_twice_gives_two_events(self, head: Head, google: Google, cloud: Keys) -> None:
        head.run("stage", folders=["imported/step_8"], **cloud)
        head.run("stage", **cloud)
        assert len({event["event_id"] for event in google.of("stage.done")}) == 2


class TestResumeFrom:
    def test_resume_from_moves_the_imported_step(self, head: Head) -> None:
        source = head.checkpoint("step_8", 8)
        imported = head.lustre / "runs" / RUN / "imported"
        imported.mkdir()
        source.rename(imported / "step_8")
        spec = {"resume_from": f"runs/{RUN}/imported/step_8"}
        assert head.run("stage", **spec) == 0
        assert head.last("stage.done")["resume_step"] == 8
        assert head.run("stage", **spec) == 0  # again: nothing to do
        assert head.last("stage.done")["resume_step"] == 8
        head.train("say('up')", max_steps=20, attempt=1)
        assert head.last("attempt.started")["step"] == 8

    def test_resume_from_incomplete_is_refused(self, head: Head) -> None:
        folder = head.lustre / "imported/step_8"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("")
        assert head.run("stage", resume_from="imported/step_8") == 78
        assert "not a complete checkpoint" in head.last("stage.failed")["message"]

    def test_resume_from_part_of_a_manifest_is_refused(self, head: Head) -> None:
        folder = head.lustre / "imported/step_8"
        folder.mkdir(parents=True)
        (folder / "training_info.json").write_text('{"total_steps": 8}')
        (folder / "lustrum-manifest.json").write_text('{"sizes": {"policy/model.bin": 5}}')
        assert head.run("stage", resume_from="imported/step_8") == 78

    def test_resume_from_other_model_is_refused_before_a_gpu_c10(self, head: Head) -> None:
        folder = head.lustre / "imported/step_8"
        folder.mkdir(parents=True)
        (folder / "training_info.json").write_text('{"total_steps": 8}')
        (folder / "config.yaml").write_text("grpo:\n  a: 1\npolicy:\n  model_name: org/other\n")
        assert head.run("stage", resume_from="imported/step_8", model="org/this") == 78
        assert "org/other" in head.last("stage.failed")["message"]

    def test_resume_from_outside_is_refused(self, head: Head, tmp_path: Path) -> None:
        assert head.run("stage", resume_from=str(tmp_path)) == 78


class TestFetchModel:
    def hub(self, head: Head, tmp_path: Path, body: str) -> None:
        """A huggingface_hub of this test's own, found by the supervisor's Python."""
        (tmp_path / "huggingface_hub.py").write_text(
            f"import os, pathlib, sys\ndef snapshot_download(model):\n    {body}\n"
        )
        head.environment["PYTHONPATH"] = str(tmp_path)

    def test_fetch_model_fills_the_cache_on_lustre(self, head: Head, tmp_path: Path) -> None:
        body = (
            "p = pathlib.Path(os.environ['HF_HOME'], 'hub', 'models--org--model');"
            " p.mkdir(parents=True); (p / 'w').write_bytes(b'w' * 77)"
        )
        self.hub(head, tmp_path, body)
        assert head.run("stage", model="org/model", fetch_model=True) == 0
        assert (head.lustre / "cache/huggingface/hub/models--org--model/w").stat().st_size == 77
        assert head.last("stage.progress")["bytes"] == 77

    @pytest.mark.parametrize(
        ("message", "failure"),
        [
            ("GatedRepoError: 401 Client Error", "ACCESS"),
            ("RepositoryNotFoundError: 404 Client Error", "CONFIG"),
            ("OSError: No space left on device", "LUSTRE_FULL"),
        ],
    )
    def test_fetch_model_failure_has_its_class(
        self, head: Head, tmp_path: Path, message: str, failure: str
    ) -> None:
        self.hub(head, tmp_path, f"sys.exit({message!r})")
        assert head.run("stage", model="org/model", fetch_model=True) != 0
        assert head.last("stage.failed")["class"] == failure

    def test_fetch_model_transient_failure_is_tried_again(
        self, head: Head, tmp_path: Path
    ) -> None:
        mark = tmp_path / "tried"
        self.hub(
            head,
            tmp_path,
            f"p = pathlib.Path({str(mark)!r}); p.exists() or sys.exit(p.touch() or 1)",
        )
        assert head.run("stage", model="org/model", fetch_model=True) == 0


class TestCode:
    def test_code_becomes_the_working_directory(
        self, head: Head, google: Google, cloud: Keys
    ) -> None:
        google.objects["bucket/a/code.zip"] = zipped(
            {"mine/train.py": b"import mod; print('from', mod.X)", "mod.py": b"X = 'my code'"}
        )
        spec = cloud | {"code": CODE}
        assert head.run("train", command=[sys.executable, "mine/train.py"], **spec) == 0
        assert "from my code" in head.text()

    def test_code_is_pinned_for_later_attempts(
        self, head: Head, google: Google, cloud: Keys
    ) -> None:
        command = [sys.executable, "t.py"]
        google.objects["bucket/a/code.zip"] = zipped({"t.py": b"print('first')"})
        assert head.run("stage", code=CODE, **cloud) == 0
        google.objects["bucket/a/code.zip"] = zipped({"t.py": b"print('second')"})
        head.run("train", command=command, code=CODE, attempt=2, **cloud)
        assert "first" in head.text()
        assert google.downloads == 1

    def test_code_what_it_lacks_comes_from_the_image(
        self, head: Head, google: Google, cloud: Keys, tmp_path: Path
    ) -> None:
        image = tmp_path / "image"
        (image / "examples").mkdir(parents=True)
        (image / "examples/run.py").write_text(
            "import os, sys; print('ran', sys.argv, os.getcwd())"
        )
        google.objects["bucket/a/code.zip"] = zipped({"conf/mine.yaml": b"a: 1"})
        command = [sys.executable, "examples/run.py", "--config", "conf/mine.yaml"]
        assert head.run("train", command=command, code=CODE, workdir=str(image), **cloud) == 0
        assert f"ran ['{image}/examples/run.py', '--config', 'conf/mine.yaml']" in head.text()

    @pytest.mark.parametrize(
        "name", ["../evil.py", "/etc/evil.py", "a/../../evil.py", "a\\evil.py", "C:/evil.py"]
    )
    def test_code_zip_slip_is_refused_e14(
        self, head: Head, google: Google, cloud: Keys, name: str
    ) -> None:
        google.objects["bucket/a/code.zip"] = zipped({name: b"x"})
        assert head.run("stage", code=CODE, **cloud) == 78
        assert not list(head.lustre.rglob("evil.py"))

    def test_code_symbolic_link_is_refused(self, head: Head, google: Google, cloud: Keys) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as bundle:
            info = zipfile.ZipInfo("link")
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            bundle.writestr(info, "/etc/passwd")
        google.objects["bucket/a/code.zip"] = buffer.getvalue()
        assert head.run("stage", code=CODE, **cloud) == 78

    def test_code_that_is_no_zip(self, head: Head, google: Google, cloud: Keys) -> None:
        google.objects["bucket/a/code.zip"] = b"<html>"
        assert head.run("stage", code=CODE, **cloud) == 78
        assert "not a usable zip" in head.last("stage.failed")["message"]

    def test_code_executable_stays_executable(
        self, head: Head, google: Google, cloud: Keys
    ) -> None:
        google.objects["bucket/a/code.zip"] = zipped({"run.sh": b"#!/bin/sh\necho ran\n"}, 0o755)
        assert head.run("train", command=["./run.sh"], code=CODE, **cloud) == 0
        assert "\nran\n" in head.text()

    @pytest.mark.parametrize(("status", "failure"), [(403, "ACCESS"), (404, "CONFIG")])
    def test_code_unreachable_has_its_class(
        self, head: Head, google: Google, cloud: Keys, status: int, failure: str
    ) -> None:
        google.objects["bucket/a/code.zip"] = b""
        google.storage_status = [status]
        head.run("stage", code=CODE, **cloud)
        assert head.last("stage.failed")["class"] == failure

    def test_code_transient_failure_is_tried_again(
        self, head: Head, google: Google, cloud: Keys
    ) -> None:
        google.objects["bucket/a/code.zip"] = zipped({"t.py": b""})
        google.storage_status = [503]
        assert head.run("stage", code=CODE, **cloud) == 0


class TestList:
    def test_list_says_what_is_complete(self, head: Head) -> None:
        head.checkpoint("step_4", 4)
        head.checkpoint("step_6")
        head.checkpoint("tmp_step_8", 8)
        assert head.run("list") == 0
        listing = head.last("checkpoint.list")
        assert listing["checkpoints"] == [
            {"step": 4, "files": 3, "bytes": 128, "total_steps": 4, "complete": True},
            {"step": 6, "files": 2, "bytes": 110, "total_steps": None, "complete": False},
        ]
        assert 0 < listing["free_bytes"] <= listing["capacity_bytes"]

    def test_list_of_nothing(self, head: Head) -> None:
        assert head.run("list") == 0
        assert head.last("checkpoint.list")["checkpoints"] == []

    def test_list_changes_nothing(self, head: Head) -> None:
        head.checkpoint("tmp_step_8", 8)
        before = sorted(head.lustre.rglob("*"))
        head.run("list")
        assert sorted(head.lustre.rglob("*")) == before


class TestPrune:
    def test_prune_never_the_newest_complete_i9(self, head: Head) -> None:
        for step in (2, 4, 6):
            head.checkpoint(f"step_{step}", step)
        head.checkpoint("step_8")  # a commit this instant, or broken: not ours to say
        head.checkpoint("tmp_step_10", 10)  # a save in flight
        head.checkpoint("tmp_step_4", 4)  # of an attempt long gone
        assert head.run("prune", keep=1) == 0
        assert sorted(os.listdir(head.checkpoints)) == ["step_6", "step_8", "tmp_step_10"]
        pruned = head.last("checkpoint.pruned")
        assert pruned["removed"] == ["step_2", "step_4", "tmp_step_4"]
        assert pruned["steps"] == [6]

    def test_prune_stale_save_goes(self, head: Head) -> None:
        head.checkpoint("step_6", 6)
        stale = head.checkpoint("tmp_step_8")
        for path in [stale, *stale.rglob("*")]:
            os.utime(path, (1, 1))
        head.run("prune", keep=2)
        assert sorted(os.listdir(head.checkpoints)) == ["step_6"]

    def test_prune_without_a_complete_step_removes_no_step(self, head: Head) -> None:
        head.checkpoint("step_2")
        head.checkpoint("step_4")
        head.run("prune", keep=1)
        assert sorted(os.listdir(head.checkpoints)) == ["step_2", "step_4"]

    def test_prune_counts_what_it_says(self, head: Head) -> None:
        head.checkpoint("step_2", 2)
        head.run("prune", keep=0)
        assert json.loads((head.checkpoints / "step_2/training_info.json").read_text())


class TestRemove:
    def test_remove_interrupted_leaves_nothing_that_looks_like_a_step(
        self, head: Head, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = head.checkpoint("step_2", 2)  # no manifest: half of it would count as complete
        monkeypatch.setattr(checkpoint_files.shutil, "rmtree", lambda *_, **__: None)
        checkpoint_files.remove(str(step))
        assert os.listdir(head.checkpoints) == ["pruned_step_2"]
        spec = Spec(run_id=RUN, lustre=str(head.lustre))
        assert checkpoint_files.all_steps(spec) == []

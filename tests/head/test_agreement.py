"""The supervisor cannot import the library: both must say the same of the same folders."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from lustrum.core import checkpoints
from lustrum.head import checkpoint_files
from lustrum.head.output import Voice
from lustrum.head.spec import Spec

NAMES = st.one_of(
    st.integers(0, 12).map("step_{}".format),
    st.sampled_from(["tmp_step_4", "old_step_4", "step_", "step_4x", "xstep_4", "broken_step_2"]),
)
INFO = st.one_of(
    st.none(),
    st.sampled_from(
        [
            "",
            "{",
            "[]",
            "null",
            '{"total_steps": true}',
            '{"total_steps": "4"}',
            '{"total_steps": -1}',
            '{"total_steps": 4.5}',
            '{"other": 1}',
        ]
    ),
    st.integers(0, 20).map(lambda total: json.dumps({"total_steps": total})),
)
FILES = st.dictionaries(
    st.sampled_from(["policy/weights/a.distcp", "policy/weights/b.distcp", "config.yaml"]),
    st.integers(0, 9),
)
SIZES = st.dictionaries(
    st.sampled_from(["policy/weights/a.distcp", "config.yaml", "gone.bin"]), st.integers(0, 9)
)
MANIFEST = st.one_of(
    st.none(),
    st.sampled_from(["", "{", "[]", '{"sizes": []}', '{"sizes": {}}']),
    SIZES.map(lambda sizes: json.dumps({"sizes": sizes})),
)
FOLDERS = st.dictionaries(NAMES, st.tuples(INFO, FILES, MANIFEST), max_size=5)


def build(
    root: Path, name: str, info: str | None, files: dict[str, int], manifest: str | None
) -> None:
    folder = root / name
    folder.mkdir()
    for path, size in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x" * size)
    for path, text in ((checkpoints.TRAINING_INFO, info), (checkpoints.MANIFEST, manifest)):
        if text is not None:
            (folder / path).write_text(text)


def judged(root: Path) -> list[checkpoints.Checkpoint]:
    found = []
    for folder in root.iterdir():
        files = [path for path in folder.rglob("*") if path.is_file()]
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
        info, manifest = folder / checkpoints.TRAINING_INFO, folder / checkpoints.MANIFEST
        found.append(
            checkpoints.judge(
                folder.name,
                sizes,
                info.read_text() if info.exists() else None,
                manifest.read_text() if manifest.exists() else None,
            )
        )
    return sorted(one for one in found if one is not None)


class TestAgreement:
    @settings(max_examples=150, deadline=None)
    @given(folders=FOLDERS, keep=st.integers(0, 3))
    def test_supervisor_and_library_judge_alike(
        self, folders: dict[str, tuple[str | None, dict[str, int], str | None]], keep: int
    ) -> None:
        with tempfile.TemporaryDirectory() as lustre:
            spec = Spec(run_id="rl-0123456789", lustre=lustre, keep=keep)
            root = Path(spec.checkpoints)
            root.mkdir(parents=True)
            for name, body in folders.items():
                build(root, name, *body)
            mine = judged(root)
            event = {
                "type": "checkpoint.list",
                "checkpoints": checkpoint_files.all_steps(str(root)),
                "free_bytes": 1,
                "capacity_bytes": 2,
            }
            assert list(checkpoints.read_listing(event).checkpoints) == mine
            newest = checkpoint_files.newest_complete(event["checkpoints"])
            expected = checkpoints.newest_complete(mine)
            assert (newest and newest["step"]) == (expected and expected.step)

            checkpoint_files.prune(spec, Voice(spec))
            gone = {one.step for one in mine} - {one.step for one in judged(root)}
            assert sorted(gone) == list(checkpoints.to_prune(mine, keep))

    def test_names_are_the_same(self) -> None:
        assert checkpoint_files.MANIFEST == checkpoints.MANIFEST

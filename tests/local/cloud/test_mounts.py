"""Container paths and local ones."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from infra.local.cloud import mounts

MOUNTS = {
    "/lustre": Path("/x/lustre/rl-1"),
    "/etc/lustrum": Path("/x/pods/h/etc/lustrum"),
    "/etc/lustrum-tokens": Path("/x/pods/h/etc/lustrum-tokens"),
}


class TestPaths:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("/lustre", "/x/lustre/rl-1"),
            ("/lustre/runs/a", "/x/lustre/rl-1/runs/a"),
            ('{"lustre":"/lustre"}', '{"lustre":"/x/lustre/rl-1"}'),
            ("dir=/lustre/a:/lustre/b", "dir=/x/lustre/rl-1/a:/x/lustre/rl-1/b"),
            ("/etc/lustrum-tokens/netrc", "/x/pods/h/etc/lustrum-tokens/netrc"),
            ("/etc/lustrum/supervisor.py", "/x/pods/h/etc/lustrum/supervisor.py"),
            ("/lustre2 /data/lustre /lustre-x gs://b/lustre", None),
        ],
    )
    def test_whole_prefixes_only(self, text: str, wanted: str | None) -> None:
        assert mounts.inward(text, MOUNTS) == (text if wanted is None else wanted)

    def test_outward_undoes_inward(self) -> None:
        text = 'python3 /etc/lustrum/supervisor.py train --spec \'{"lustre":"/lustre"}\''
        assert mounts.outward(mounts.inward(text, MOUNTS), MOUNTS) == text

    def test_job_is_written_anew_but_its_metadata_is_not(self) -> None:
        job = {
            "entrypoint": "cat /lustre/a",
            "metadata": {"dir": "/lustre"},
            "runtime_env": {"env_vars": {"HF_HOME": "/lustre/cache"}},
        }
        found = json.loads(mounts.job_inward(json.dumps(job).encode(), MOUNTS))
        assert found["entrypoint"] == "cat /x/lustre/rl-1/a"
        assert found["runtime_env"]["env_vars"]["HF_HOME"] == "/x/lustre/rl-1/cache"
        assert found["metadata"] == {"dir": "/lustre"}

    def test_binary_file_of_a_config_map_arrives_as_it_is(self, tmp_path: Path) -> None:
        files = {"data": {"a.txt": "dG9r"}, "binaryData": {"b.pyz": "UEsDBP8="}}
        mounts.write_files(tmp_path / "c", {"kind": "ConfigMap", **files}, 0o644)
        assert (tmp_path / "c" / "a.txt").read_bytes() == b"dG9r"
        assert (tmp_path / "c" / "b.pyz").read_bytes() == b"PK\x03\x04\xff"

    def test_secret_files_are_for_the_owner_alone(self, tmp_path: Path) -> None:
        secret = {"kind": "Secret", "data": {"hf_token": "dG9r"}}
        mounts.write_files(tmp_path / "s", secret, 0o600)
        file = tmp_path / "s" / "hf_token"
        assert file.read_bytes() == b"tok"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

"""What goes into a request's own code, and what is refused."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from lustrum.cli.pack import CodeRefused, pack, walk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    for name in ("train.py", "lib/model.py", "lib/deep/data.txt"):
        write(folder / name, name)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(folder: Path) -> list[str]:
    return [name for name, _ in walk(folder)]


class TestPack:
    def test_pack_holds_every_file(self, folder: Path, tmp_path: Path) -> None:
        packed = pack(folder, tmp_path / "code.zip")
        with zipfile.ZipFile(tmp_path / "code.zip") as bundle:
            assert bundle.namelist() == ["lib/deep/data.txt", "lib/model.py", "train.py"]
            assert bundle.read("lib/model.py") == b"lib/model.py"
        assert (packed.files, packed.bytes) == (3, 37)

    def test_pack_twice_gives_the_same_bytes(self, folder: Path, tmp_path: Path) -> None:
        first = pack(folder, tmp_path / "a.zip")
        os.utime(folder / "train.py", (1, 1))
        assert pack(folder, tmp_path / "b.zip") == first
        assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()

    def test_pack_changed_file_changes_the_digest(self, folder: Path, tmp_path: Path) -> None:
        first = pack(folder, tmp_path / "a.zip")
        write(folder / "train.py", "other")
        assert pack(folder, tmp_path / "b.zip").sha256 != first.sha256

    def test_pack_keeps_the_executable_bit(self, folder: Path, tmp_path: Path) -> None:
        (folder / "train.py").chmod(0o755)
        pack(folder, tmp_path / "code.zip")
        with zipfile.ZipFile(tmp_path / "code.zip") as bundle:
            modes = {info.filename: info.external_attr >> 16 for info in bundle.infolist()}
        assert modes["train.py"] & 0o111
        assert not modes["lib/model.py"] & 0o111

    def test_pack_into_the_folder_leaves_itself_out(self, folder: Path) -> None:
        assert pack(folder, folder / "code.zip").files == 3
        assert pack(folder, folder / "code.zip").files == 3

    def test_pack_too_large_names_the_biggest(self, folder: Path, tmp_path: Path) -> None:
        (folder / "weights.bin").write_bytes(b"x" * 3_000_000)
        with pytest.raises(CodeRefused, match=r"weights\.bin \(2\.9 MiB\)"):
            pack(folder, tmp_path / "code.zip", max_bytes=2**20)
        assert not (tmp_path / "code.zip").exists()

    def test_pack_nothing_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(CodeRefused, match="no file"):
            pack(tmp_path / "empty", tmp_path / "code.zip")


class TestIgnore:
    def test_ignore_rayignore_and_gitignore(self, folder: Path) -> None:
        write(folder / ".gitignore", "*.pt\n")
        write(folder / ".rayignore", "lib/deep/\n")
        write(folder / "big.pt", "x")
        assert names(folder) == [".gitignore", ".rayignore", "lib/model.py", "train.py"]

    def test_ignore_file_of_a_deeper_folder(self, folder: Path) -> None:
        write(folder / ".gitignore", "*.txt\n")
        write(folder / "lib/.gitignore", "!data.txt\n/model.py\n")
        write(folder / "model.py", "stays: the deeper file is anchored to its folder")
        assert names(folder) == [
            ".gitignore",
            "lib/.gitignore",
            "lib/deep/data.txt",
            "model.py",
            "train.py",
        ]

    def test_ignore_nothing_below_an_ignored_folder_comes_back(self, folder: Path) -> None:
        write(folder / ".gitignore", "lib/\n!lib/model.py\n")
        assert names(folder) == [".gitignore", "train.py"]

    def test_ignore_rayignore_cannot_take_back_what_git_ignores(self, folder: Path) -> None:
        write(folder / ".gitignore", "*.txt\n")
        write(folder / ".rayignore", "!*.txt\n")
        assert "lib/deep/data.txt" not in names(folder)

    @pytest.mark.parametrize("name", [".git/config", ".venv/bin/python", "lib/__pycache__/m.pyc"])
    def test_ignore_always(self, folder: Path, name: str) -> None:
        write(folder / name, "x")
        assert name not in names(folder)

    def test_ignored_secret_is_no_obstacle(self, folder: Path, tmp_path: Path) -> None:
        write(folder / ".env", "HF_TOKEN=x")
        write(folder / ".rayignore", ".env\n")
        assert pack(folder, tmp_path / "code.zip").files == 4


# Put together here, so that this file itself holds nothing that looks like a secret.
_SECRETS = {
    "a.py": "TOKEN = 'hf_" + "A" * 34 + "'",
    "b.yaml": "key: AKIA" + "B" * 16,
    "c.txt": "-----BEGIN " + "PRIVATE KEY-----",
    "d.json": json.dumps({"type": "service_account", "private_key": "k" * 30}),
    "e.sh": "export WANDB_API_KEY=" + "0a" * 20,
    "f.txt": "ghp_" + "c" * 36,
}


class TestSecrets:
    @pytest.mark.parametrize(
        "name",
        [
            ".env",
            ".env.local",
            "env.sh",
            "conf/tls.pem",
            "id_rsa",
            ".netrc",
            "netrc",
            ".git-credentials",
            "kubeconfig",
            "application_default_credentials.json",
        ],
    )
    def test_secret_by_name(self, folder: Path, tmp_path: Path, name: str) -> None:
        write(folder / name, "x")
        with pytest.raises(CodeRefused, match=name.rsplit("/", 1)[-1].replace(".", r"\.")):
            pack(folder, tmp_path / "code.zip")

    @pytest.mark.parametrize("name", sorted(_SECRETS))
    def test_secret_by_content_is_named_and_not_shown(
        self, folder: Path, tmp_path: Path, name: str
    ) -> None:
        write(folder / name, "first line\n" + _SECRETS[name])
        with pytest.raises(CodeRefused) as caught:
            pack(folder, tmp_path / "code.zip")
        assert name in str(caught.value)
        assert "line 2" in str(caught.value)
        assert _SECRETS[name][-12:] not in str(caught.value)

    @pytest.mark.parametrize("name", [".env.example", "public.txt", "keyboard.py", "monkey.py"])
    def test_secret_innocent_names(self, folder: Path, tmp_path: Path, name: str) -> None:
        write(folder / name, "HF_TOKEN=<your token>; hf_hub_download(x)")
        assert pack(folder, tmp_path / "code.zip").files == 4


class TestLinks:
    def test_link_out_of_the_folder_is_refused(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "outside.txt").write_text("x")
        (folder / "link").symlink_to("../outside.txt")
        with pytest.raises(CodeRefused, match="link is a link that leaves"):
            pack(folder, tmp_path / "code.zip")

    def test_link_within_becomes_a_file(self, folder: Path, tmp_path: Path) -> None:
        (folder / "link.py").symlink_to("lib/model.py")
        pack(folder, tmp_path / "code.zip")
        with zipfile.ZipFile(tmp_path / "code.zip") as bundle:
            assert bundle.read("link.py") == b"lib/model.py"

    @pytest.mark.parametrize("target", ["nowhere", "lib"])
    def test_link_to_no_file_is_refused(self, folder: Path, tmp_path: Path, target: str) -> None:
        (folder / "link").symlink_to(target)
        with pytest.raises(CodeRefused, match="link"):
            pack(folder, tmp_path / "code.zip")

    def test_pipe_is_refused(self, folder: Path, tmp_path: Path) -> None:
        os.mkfifo(folder / "pipe")
        with pytest.raises(CodeRefused, match="pipe"):
            pack(folder, tmp_path / "code.zip")

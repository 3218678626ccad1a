"""Build the real programs of the cluster tier into a cache outside the repository.

``python -m testing.cluster.tools.build`` builds what is missing, ``--check`` only asks and exits
0 when nothing would have to be built. Nothing but pinned versions (``*/go.mod``, ``*/go.sum``) is
kept in the repository; the go command brings the modules.

The directory named by ``KUBEBUILDER_ASSETS`` (the convention of controller tests) is asked first
for ``etcd`` and ``kube-apiserver``; a ``kube-controller-manager`` there is used as well.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_KUBERNETES = "k8s.io/kubernetes/cmd/"
_RAY_OPERATOR = "github.com/ray-project/kuberay/ray-operator"


@dataclass(frozen=True)
class Tool:
    """One go.mod and the programs that are built from it.

    ``files`` are copied from the module ``module`` beside the programs (CRDs, roles): they are
    read from what the go command unpacked, never kept in this repository.
    """

    name: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    ldflags: str = "-s -w"
    module: str = ""
    files: tuple[str, ...] = ()


def pinned_version(tool_name: str, module: str) -> str:
    """The version that the tool's go.mod requires of a module, as ``v1.35.4``."""
    text = (_HERE / tool_name / "go.mod").read_text()
    found = re.search(rf"{re.escape(module)} (v\S+)", text)
    if found is None:
        raise ValueError(f"{tool_name}/go.mod does not require {module}")
    return found.group(1)


def _stamp() -> str:
    """Linker flags without which an API server would call itself v0.0.0-master."""
    version = pinned_version("kubernetes", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".")
    base = "-X k8s.io/component-base/version"
    return f"-s -w {base}.gitVersion={version} {base}.gitMajor={major} {base}.gitMinor={minor}"


def _kuberay(minor: str) -> Tool:
    return Tool(
        f"kuberay-{minor}",
        (_RAY_OPERATOR,),
        ("ray-operator",),
        module=_RAY_OPERATOR,
        files=("config/crd/bases", "config/rbac/role.yaml"),
    )


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("etcd", ("go.etcd.io/etcd/server/v3",), ("etcd",)),
        Tool(
            "kubernetes",
            (f"{_KUBERNETES}kube-apiserver", f"{_KUBERNETES}kube-controller-manager"),
            ("kube-apiserver", "kube-controller-manager"),
            ldflags=_stamp(),
        ),
        _kuberay("v1.5"),
        _kuberay("v1.6"),
    )
}


def cache_root() -> Path:
    """Where built programs are kept: ``$XDG_CACHE_HOME`` or ``~/.cache``, then our name."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lustrum" / "cluster-tools"


def directory(tool: Tool) -> Path:
    """The cache directory of a tool, named by all that decides what is in it."""
    digest = hashlib.sha256()
    for part in ("go.mod", "go.sum"):
        digest.update((_HERE / tool.name / part).read_bytes())
    digest.update(repr((tool.packages, tool.programs, tool.ldflags, tool.files)).encode())
    return cache_root() / f"{tool.name}-{digest.hexdigest()[:12]}"


def find(tool_name: str, program: str) -> Path | None:
    """The program's path, or None when it has to be built first."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (Path(assets) / program).is_file():
        return Path(assets) / program
    path = directory(TOOLS[tool_name]) / program
    return path if path.is_file() else None


def is_ready(tool: Tool) -> bool:
    """True when every program and file of the tool can be had without building."""
    if any(find(tool.name, program) is None for program in tool.programs):
        return False
    return not tool.files or (directory(tool) / ".complete").is_file()


def build(tool: Tool) -> float:
    """Build one tool into its cache directory and return the seconds it took.

    Raises:
        SystemExit: the go command is missing or refused; its own words were printed.
    """
    if shutil.which("go") is None:
        raise SystemExit(
            "go is not installed: install Go >= 1.25, or point KUBEBUILDER_ASSETS at a directory"
            " holding etcd and kube-apiserver (the KubeRay operator has to be built all the same)"
        )
    target = directory(tool)
    target.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    staging = target.with_name(target.name + ".partial")
    with _lock(target):
        if is_ready(tool):  # another process was building it while we waited for the lock
            return 0.0
        for leftover in (staging, target):
            shutil.rmtree(leftover, ignore_errors=True)
        staging.mkdir()
        for package, program in zip(tool.packages, tool.programs, strict=True):
            _go(
                tool,
                "build",
                "-trimpath",
                "-ldflags",
                tool.ldflags,
                "-o",
                str(staging / program),
                package,
            )
        if tool.files:
            _copy_files(tool, staging)
        (staging / ".complete").touch()
        staging.rename(target)
    return time.monotonic() - started


def _copy_files(tool: Tool, target: Path) -> None:
    listed = _go(tool, "list", "-m", "-json", tool.module, capture=True)
    module = Path(json.loads(listed)["Dir"])
    for name in tool.files:
        source = module / name
        for file in sorted(source.glob("*.yaml")) if source.is_dir() else [source]:
            (target / source.name if source.is_dir() else target).mkdir(exist_ok=True)
            into = target / source.name / file.name if source.is_dir() else target / file.name
            into.write_bytes(file.read_bytes())  # not copy(): the module cache is read-only


def _go(tool: Tool, *arguments: str, capture: bool = False) -> str:
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    jobs = ("-p", "2") if arguments[0] == "build" else ()
    command = ["nice", "-n", "10", "go", arguments[0], *jobs, *arguments[1:]]
    done = subprocess.run(
        command,
        cwd=_HERE / tool.name,
        env=environment,
        text=True,
        check=False,
        stdout=subprocess.PIPE if capture else None,
    )
    if done.returncode != 0:
        raise SystemExit(f"{tool.name}: `{' '.join(command)}` ended with {done.returncode}")
    return done.stdout or ""


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    """Let one process build a tool; the others wait and then find it."""
    with open(f"{target}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Entry point: build what is missing, or with ``--check`` say what is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="build nothing; exit 1 if needed")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TOOLS)}; none means all")
    options = parser.parse_args()
    unknown = set(options.names) - set(TOOLS)
    if unknown:
        parser.error(f"unknown tool {sorted(unknown)[0]!r}: one of {', '.join(TOOLS)}")
    missing = [t for n, t in TOOLS.items() if n in (options.names or TOOLS) and not is_ready(t)]
    if options.check:
        for tool in missing:
            print(f"{tool.name}: not built ({directory(tool)})")
        return 1 if missing else 0
    for tool in missing:
        print(f"{tool.name}: building, this can take many minutes ...", flush=True)
        print(f"{tool.name}: built in {build(tool):.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

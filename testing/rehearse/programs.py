"""The programs of a rehearsal: which, in which version, from where, and where they are kept.

All are Go programs, but hardly one is a Go module that the go command could bring by itself: a
tag v7 of a module path without /v7 is no version to it, and Terraform replaces modules by folders
of its own. So each is built from a clone of its repository at the pinned tag; its dependencies are
Go modules. Clones are looked for in ``REHEARSE_SOURCES``, a folder of ``<owner>/<repository>``,
and made there (or in the cache) when they are absent.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from testing.cluster.tools.build import cache_root as cluster_cache

PLATFORM = "linux_amd64"


@dataclass(frozen=True)
class Program:
    """One program, built from a repository at a tag.

    Args:
        variable: linker variable that is set, or "".
        value: what it is set to; the version unless said.
        provider: source address of a Terraform provider, ``namespace/name``, or "".
    """

    name: str
    repository: str
    version: str
    variable: str = ""
    value: str = ""
    provider: str = ""

    @property
    def ldflags(self) -> str:
        """What the linker is told."""
        return "-s -w" + (
            f" -X {self.variable}={self.value or self.version}" if self.variable else ""
        )

    @property
    def path(self) -> Path:
        """Where the built program is, or will be: providers lie as a filesystem mirror does."""
        if not self.provider:
            return bin_folder(self) / self.name
        number = self.version.removeprefix("v")
        folder = mirror() / "registry.terraform.io" / self.provider / number / PLATFORM
        return folder / f"terraform-provider-{self.provider.split('/')[1]}_{self.version}"

    @property
    def is_built(self) -> bool:
        """True when nothing would have to be built."""
        return self.path.is_file()


def _provider(name: str, version: str, owner: str = "hashicorp") -> Program:
    repository = f"{owner}/terraform-provider-{name}"
    return Program(name, repository, version, provider=f"{owner}/{name}")


# Versions: gcluster and Terraform as steps/versions.sh has them (held by a test); the google
# providers the newest that gcluster v1.95.0 admits (pkg/config/expand.go: <= 7.36.0); helm as the
# module management/kubectl-apply wants it (~> 2.17).
PROGRAMS = (
    Program(
        "gcluster",
        "GoogleCloudPlatform/cluster-toolkit",
        "v1.95.0",
        variable="main.gitTagVersion",
    ),
    Program(
        "terraform",
        "hashicorp/terraform",
        "v1.12.2",
        variable="github.com/hashicorp/terraform/version.dev",
        value="no",
    ),
    _provider("kubectl", "v1.19.0", "gavinbunney"),
    _provider("null", "v3.2.4"),
    _provider("random", "v3.7.2"),
    _provider("time", "v0.13.1"),
    _provider("http", "v3.5.0"),
    _provider("helm", "v2.17.0"),
    _provider("kubernetes", "v2.38.0"),
    _provider("google", "v7.36.0"),
    _provider("google-beta", "v7.36.0"),
)


def root() -> Path:
    """The cache of the rehearsal, beside the cluster tier's."""
    return cluster_cache().with_name("rehearse")


def mirror() -> Path:
    """The folder that Terraform takes providers from (``filesystem_mirror``)."""
    return root() / "mirror"


def bin_folder(program: Program) -> Path:
    """The folder of one program that is no provider, named by all that decides what is in it."""
    told = f"{program.repository} {program.version} {program.ldflags}"
    digest = hashlib.sha256(told.encode()).hexdigest()[:12]
    return root() / f"{program.name}-{digest}"


def clone_of(program: Program) -> Path:
    """The clone that a program is built from, there or not."""
    given = os.environ.get("REHEARSE_SOURCES")
    return (Path(given) if given else root() / "sources") / program.repository


def missing(names: tuple[str, ...] = ()) -> list[Program]:
    """The programs (of those named; none: all) that are not built yet, quickest first."""
    return [one for one in PROGRAMS if (not names or one.name in names) and not one.is_built]


def terraform_settings(folder: Path) -> Path:
    """Write the CLI configuration that lets Terraform take providers from the mirror alone."""
    path = folder / "terraform.rc"
    path.write_text(
        f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror()}"\n  }}\n}}\n'
    )
    return path

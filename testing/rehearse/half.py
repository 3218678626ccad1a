"""A gcluster whose ``create`` is the real one and whose Terraform is played by the stand-in.

    python -m testing.rehearse.half create|deploy|destroy|... ARGUMENTS

What a run is deployed from (modules, backend, staged files) is then what the real gcluster writes;
the stand-in reads the cluster module's text in it, and speaks to the stand-in cloud. The real
validators ask Google Cloud and are left out, as is the question what a machine type has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.local.builds import gcluster as stand_in
from infra.local.builds.blueprint import expand
from infra.local.builds.gcloud import split
from testing.rehearse.programs import PROGRAMS

MACHINES = '{"gpus":{"a4-highgpu-8g":{"count":8,"type":"nvidia-b200"}},"tpus":{},"cpus":{}}'
REAL_ARTIFACT = ".ghpc/artifacts/expanded_blueprint.yaml.real"
_BARE = {"--auto-approve", "--robust", "--no-color"}


def real(arguments: Sequence[str]) -> int:
    """Run the real gcluster and return its exit code."""
    program = next(one.path for one in PROGRAMS if one.name == "gcluster")
    asked = [] if "--validation-level" in arguments else ["--validation-level", "IGNORE"]
    command = [str(program), *arguments, *(asked if arguments[:1] == ["create"] else [])]
    environment = os.environ | {"GHPC_MOCK_MACHINE_CONFIG": MACHINES}
    return subprocess.run(command, env=environment, check=False).returncode


def _for_the_stand_in(arguments: Sequence[str]) -> None:
    """Lay the blueprint as the stand-in expands it where it looks for it; keep the real one."""
    places, flags = split([f"{word}=true" if word in _BARE else word for word in arguments])
    expanded = expand(Path(places[1]), Path(flags["--deployment-file"]))
    folder = Path(flags.get("--out", ".")) / str(expanded["vars"]["deployment_name"])
    (folder / stand_in.ARTIFACT).rename(folder / REAL_ARTIFACT)
    (folder / stand_in.ARTIFACT).write_text(json.dumps(expanded, indent=2))


def main(arguments: Sequence[str]) -> int:
    """Run one command; return the exit code."""
    if arguments[:1] in (["deploy"], ["destroy"]):
        return stand_in.main(arguments)
    code = real(arguments)
    if code == 0 and arguments[:1] == ["create"]:
        _for_the_stand_in(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

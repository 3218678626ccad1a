"""Stands in for gcluster: expands the real blueprint, then creates or destroys what it describes.

Terraform's part in it is played honestly where the scripts depend on it: the state is an object
that is written after every step, a lock object refuses a second writer and stays when the process
is killed, a
destroy knows only what the state knows. ``LUSTRUM_FAULTS`` names a JSON file of faults, see
`Faults`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.local.builds.blueprint import Invalid, expand, module
from infra.local.builds.deployment import Broken, Faults, deploy, destroy
from infra.local.builds.gcloud import split

ARTIFACT = ".ghpc/artifacts/expanded_blueprint.yaml"
MODULE = "_modules/embedded/modules/scheduler/gke-cluster/main.tf"
_BOOTSTRAP = re.compile(
    r'^resource "google_container_cluster".*?^  node_config \{\n(?P<body>.*?)^  \}', re.M | re.S
)


def _create(places: list[str], flags: dict[str, str]) -> int:
    variables = flags.get("--deployment-file")
    expanded = expand(Path(places[0]), Path(variables) if variables else None)
    root = Path(flags.get("--out", ".")) / str(expanded["vars"]["deployment_name"])
    if root.exists():
        raise Invalid(f"{root} already exists; use -w to overwrite it")
    (root / ".ghpc" / "artifacts").mkdir(parents=True)
    (root / "primary").mkdir()
    # JSON is YAML; the real one writes the same tree in block style.
    (root / ARTIFACT).write_text(json.dumps(expanded, indent=2))
    (root / "primary" / "main.tf").write_text("# the stand-in reads the expanded blueprint\n")
    (root / MODULE).parent.mkdir(parents=True)
    (root / MODULE).write_text((Path(__file__).parent / "cluster_module.tf").read_text())
    print(f'Creating deployment folder "{root}" ...')
    return 0


def _read(places: list[str]) -> dict[str, object]:
    artifact = Path(places[0]) / ARTIFACT
    if not artifact.is_file():
        raise Invalid(f"artifacts path {artifact.parent} is not a directory")
    found = dict(json.loads(artifact.read_text()))
    return {**found, "bootstrap_account": _bootstrap_account(Path(places[0]) / MODULE, found)}


def _bootstrap_account(module_file: Path, expanded: dict[str, object]) -> str:
    """Return the account that the module's text gives the pool every cluster begins with."""
    block = _BOOTSTRAP.search(module_file.read_text())
    if block is None:
        raise Invalid(f"{module_file} has no node_config in its cluster")
    if not re.search(r"^    service_account = var\.service_account_email$", block["body"], re.M):
        return ""
    return str(module(expanded, "modules/scheduler/gke-cluster")["service_account_email"])


def _deploy(places: list[str], flags: dict[str, str]) -> int:
    wrong = {"--deployment-file", "--out", "--skip-validators", "--vars"} & set(flags)
    if wrong:
        raise Invalid(
            f'cannot specify flag "{wrong.pop()[2:]}" with DEPLOYMENT_DIRECTORY provided'
        )
    _approved(flags)
    deploy(_read(places), Faults.load())
    return 0


def _destroy(places: list[str], flags: dict[str, str]) -> int:
    _approved(flags)
    blueprint, faults = _read(places), Faults.load()
    attempts = 3 if "--robust" in flags else 1
    for attempt in range(1, attempts + 1):
        print(f"Destroy attempt {attempt} of {attempts}", flush=True)
        try:
            destroy(blueprint, faults)
        except Broken as error:
            print(f'Error: failed to destroy group "primary":\n{error}', flush=True)
            if attempt == attempts:
                raise Broken(
                    f"Destruction of {places[0]!r} failed after {attempts} attempts"
                ) from None
        else:
            print("Successfully destroyed all selected groups.")
            return 0
    return 1


def _approved(flags: dict[str, str]) -> None:
    # Without it the real one asks, and takes the end of standard input for a no.
    if "--auto-approve" not in flags:
        raise Invalid("user declined: run with --auto-approve where nobody can answer")
    if flags.get("--download-dependencies") not in ("false", "true"):
        raise Invalid("user declined to download packer")


def main(argv: Sequence[str]) -> int:
    """Run one command; return the exit code."""
    bare = {"--auto-approve", "--robust", "--no-color"}
    places, flags = split([f"{word}=true" if word in bare else word for word in argv])
    try:
        match places[:1]:
            case ["create"]:
                return _create(places[1:], flags)
            case ["deploy"]:
                return _deploy(places[1:], flags)
            case ["destroy"]:
                return _destroy(places[1:], flags)
    except (Invalid, Broken) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"Error: the stand-in gcluster does not know: {' '.join(argv)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

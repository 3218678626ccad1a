"""Give the cluster module's bootstrap pool the run's node account. Standard library only.

python3 bootstrap_pool.py FOLDER    patch the deployment folder that gcluster made

GKE makes every cluster with a first node pool, which Terraform removes at once. The pinned module
(modules/scheduler/gke-cluster) names no service account for it, so that GKE takes the project's
default Compute Engine account and asks who creates the cluster for ``iam.serviceAccounts.actAs``
on it. The build's account may act as the node account alone, and a project may have no default
account. No setting of the module reaches that pool; hence this patch of the generated text.
"""

from __future__ import annotations

import sys
from pathlib import Path

MODULE = "_modules/embedded/modules/scheduler/gke-cluster/main.tf"
PLACE = "\n  node_config {\n    shielded_instance_config {\n"
ACCOUNT = "    service_account = var.service_account_email\n"


class Unknown(Exception):
    """The module's text is not the one that this patch was made for."""


def patched(text: str) -> str:
    """Return the module's text with the account in its bootstrap pool.

    Raises:
        Unknown: the place does not occur exactly once.
    """
    found = text.count(PLACE)
    if found != 1:
        raise Unknown(
            f"the bootstrap pool's node_config occurs {found} times in {MODULE}, not once: this "
            "version of gcluster has another cluster module; mend steps/bootstrap_pool.py"
        )
    first, rest = PLACE.removesuffix("    shielded_instance_config {\n"), text.split(PLACE)
    return f"{rest[0]}{first}{ACCOUNT}    shielded_instance_config {{\n{rest[1]}"


def main(argv: list[str]) -> int:
    """Patch a deployment folder; return the exit code."""
    path = Path(argv[1]) / MODULE
    try:
        path.write_text(patched(path.read_text()))
    except (OSError, Unknown) as error:
        print(f"Error: the cluster module cannot be patched: {error}")
        return 1
    print(f"the bootstrap pool of {path} takes the node account")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

"""What a build was told: read from the environment, checked against allow-lists, written out for
gcluster.

Standard library only: it runs in the builder image. A triggered build lets a misspelt substitution
pass without an error (it is loose), so an absent value is refused here by name.

    python3 settings.py check                  refuse a bad build (exit 1, result.json)
    python3 settings.py deployment             print the deployment file of gcluster (JSON is YAML)
    python3 settings.py can-recreate           exit 0 if the deployment file can be written
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

NAME = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"  # RFC 1035, as Compute Engine has it

# Who and where: without these not even a destroy can act.
IDENTITY: Mapping[str, str] = {
    "ACTION": r"deploy|destroy",
    "RUN_ID": r"rl-[0-9a-f]{10}",
    "ZONE_ATTEMPT": r"[1-9][0-9]{0,3}",
    "PROJECT": r"[a-z][-a-z0-9]{4,28}[a-z0-9]",
    "ZONE": r"[a-z]+-[a-z]+[0-9]{1,2}-[a-z]",
    "STATE_BUCKET": r"[a-z0-9][-a-z0-9_.]{1,220}[a-z0-9]",
    "BUILD_ID": r"[-a-z0-9]{1,64}",
    "LOCATION": r"[a-z]+-[a-z]+[0-9]{1,2}|global",
    "GCLUSTER_SHA256": r"[0-9a-f]{64}",
}

# What to build. A destroy can do without: it then sweeps by name.
BLUEPRINT: Mapping[str, str] = {
    "NODES": r"[1-9][0-9]{0,3}",
    "CAPACITY": r"spot|reservation",
    "RESERVATION": rf"(?:{NAME}(?:/reservationBlocks/{NAME})?)?",
    "LUSTRE_CAPACITY_GIB": r"[1-9][0-9]{0,8}",
    "LUSTRE_THROUGHPUT": r"125|250|500|1000",
    "EXPIRES": r"[1-9][0-9]{9}",
    "NETWORK": NAME,
    "SUBNETWORK": NAME,
    "PODS_RANGE": NAME,
    "SERVICES_RANGE": NAME,
    "CONTROL_PLANE_CIDR": r"[0-9.]{7,15}/28",
    "RDMA_NETWORK": rf"(?:{NAME})?",
    "NODE_ACCOUNT": rf"[-a-z0-9]{{1,63}}@{NAME}\.iam\.gserviceaccount\.com",
}

PREFIX = "LUSTRUM_"
RDMA_NICS = 8  # of an A4 machine, one for each GPU


def read(env: Mapping[str, str]) -> dict[str, str]:
    """Return the values by substitution name; ``_NONE`` is the empty string."""
    values = {}
    for name in (*IDENTITY, *BLUEPRINT):
        value = env.get(PREFIX + name, "")
        values[name] = "" if value == "_NONE" else value
    return values


def problems(values: Mapping[str, str], rules: Mapping[str, str]) -> list[str]:
    """Return one sentence for each value that is absent or outside its allow-list."""
    found = []
    for name, pattern in rules.items():
        value = values[name]
        if re.fullmatch(pattern, value):
            continue
        if not value:
            found.append(f"substitution _{name} is missing or empty; is it spelt right?")
        else:
            found.append(f"substitution _{name} is {value[:80]!r}; it must match {pattern}")
    return found or _contradictions(values, rules)


def _contradictions(values: Mapping[str, str], rules: Mapping[str, str]) -> list[str]:
    if rules is not BLUEPRINT:
        return []
    found = []
    if values["CAPACITY"] == "reservation" and not values["RESERVATION"]:
        found.append("substitution _RESERVATION is empty, but _CAPACITY is 'reservation'")
    if values["CAPACITY"] == "spot" and values["RESERVATION"]:
        found.append("substitution _RESERVATION is given, but _CAPACITY is 'spot': choose one")
    # gcluster destroy --robust deletes the firewall rules of every network whose name contains the
    # deployment's; a shared network must therefore never contain it.
    found += [
        f"substitution _{name} contains the run id: destroy would strip its firewall"
        for name in ("NETWORK", "RDMA_NETWORK")
        if values["RUN_ID"] in values[name]
    ]
    try:
        ipaddress.IPv4Network(values["CONTROL_PLANE_CIDR"])
    except ValueError as error:
        found.append(f"substitution _CONTROL_PLANE_CIDR is not a /28 network: {error}")
    return found


def region(zone: str) -> str:
    """Return the region of a zone."""
    return zone.rsplit("-", 1)[0]


def deployment(values: Mapping[str, str]) -> dict[str, object]:
    """Return gcluster's deployment file: the state's place and every variable of the blueprint.

    A file, not ``--vars``: that list is split at commas and each value read as YAML, which would
    turn an expiry into a number.
    """
    run, attempt = values["RUN_ID"], values["ZONE_ATTEMPT"]
    reserved = values["CAPACITY"] == "reservation"
    return {
        "terraform_backend_defaults": {
            "type": "gcs",
            "configuration": {
                "bucket": values["STATE_BUCKET"],
                "prefix": f"{run}/z{attempt}/terraform",
            },
        },
        "vars": {
            "project_id": values["PROJECT"],
            "deployment_name": run,
            "region": region(values["ZONE"]),
            "zone": values["ZONE"],
            "nodes": int(values["NODES"]),
            "spot": not reserved,
            "reservation_affinity": {
                "consume_reservation_type": "SPECIFIC_RESERVATION"
                if reserved
                else "NO_RESERVATION",
                "specific_reservations": [{"name": values["RESERVATION"]}] if reserved else [],
            },
            "lustre_size_gib": int(values["LUSTRE_CAPACITY_GIB"]),
            "lustre_throughput": int(values["LUSTRE_THROUGHPUT"]),
            "expires": values["EXPIRES"],
            "network": values["NETWORK"],
            "subnetwork": values["SUBNETWORK"],
            "pods_range": values["PODS_RANGE"],
            "services_range": values["SERVICES_RANGE"],
            "control_plane_cidr": values["CONTROL_PLANE_CIDR"],
            "node_account": values["NODE_ACCOUNT"],
            "additional_networks": rdma_interfaces(values),
        },
    }


def rdma_interfaces(values: Mapping[str, str]) -> list[dict[str, object]]:
    """Return one entry for each RDMA NIC, in their order; every field the module's type has.

    infra/terraform names the subnetworks after their network.
    """
    network = values["RDMA_NETWORK"]
    return [
        {
            "network": network,
            "subnetwork": f"{network}-{number}",
            "subnetwork_project": values["PROJECT"],
            "network_ip": None,
            "nic_type": "MRDMA",
            "stack_type": None,
            "queue_count": None,
            "access_config": [],
            "ipv6_access_config": [],
            "alias_ip_range": [],
        }
        for number in range(RDMA_NICS if network else 0)
    ]


def main(argv: list[str]) -> int:
    """Run one of the commands in the module's first lines; return the exit code."""
    values = read(os.environ)
    command = argv[1] if len(argv) > 1 else ""
    if command == "deployment":
        json.dump(deployment(values), sys.stdout, indent=2)
        return 0
    if command == "can-recreate":
        return 1 if problems(values, BLUEPRINT) else 0
    if command != "check":
        print(f"settings.py: unknown command {command!r}; one of check, deployment, can-recreate")
        return 2
    found = problems(values, IDENTITY)
    wanting = problems(values, BLUEPRINT)
    if values["ACTION"] == "deploy" and not found:
        found = wanting
    elif wanting and not found:
        print(
            "warning: the blueprint cannot be made again from these values:", *wanting, sep="\n  "
        )
    if not found:
        return 0
    print("ERROR: this build was told wrong things:", *found, sep="\n  ")
    result = {
        "action": values["ACTION"],
        "run_id": values["RUN_ID"],
        "ok": False,
        "class": "CONFIG",
        "message": "; ".join(found),
        "remaining": [],
    }
    Path("result.json").write_text(json.dumps(result))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))

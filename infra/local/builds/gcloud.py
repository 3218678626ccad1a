"""Stands in for gcloud: the commands that the build's scripts use, with the error texts of the
real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from infra.local.builds import objects
from infra.local.builds.rest import Refused, call


class Failed(Exception):
    """The command ends with this text and exit code 1."""


def split(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return positional words and flags; a flag's value is joined by ``=`` or follows it."""
    bare = {"--quiet", "--async", "--recursive", "--no-user-output-enabled"}
    places: list[str] = []
    flags: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            places.append(word)
        elif "=" in word:
            name, _, value = word.partition("=")
            flags[name] = value
        elif word in bare:
            flags[word] = "true"
        else:
            flags[word] = next(rest, "")
    return places, flags


def _copy(places: list[str], flags: dict[str, str]) -> str:
    source, target = places
    generation = flags.get("--if-generation-match")
    if target.startswith("gs://"):
        content = objects.read(source) if source.startswith("gs://") else Path(source).read_bytes()
        objects.write(target, content, generation)
    else:
        Path(target).write_bytes(_read(source))
    return ""


def _read(url: str) -> bytes:
    try:
        return objects.read(url)
    except Refused as error:
        if error.status == 404:
            raise Failed(f"The following URLs matched no objects or files:\n-{url}") from None
        raise


def _cat(places: list[str], flags: dict[str, str]) -> str:
    content = b"".join(_read(url) for url in places)
    sys.stdout.buffer.write(content)
    return ""


def _list(places: list[str], flags: dict[str, str]) -> str:
    found = objects.matching(places[0])
    if not found:
        raise Failed("One or more URLs matched no objects.")
    return "\n".join(found)


def _remove(places: list[str], flags: dict[str, str]) -> str:
    found = objects.matching(places[0])
    if not found:
        raise Failed(f"The following URLs matched no objects or files:\n-{places[0]}")
    for url in found:
        objects.delete(url)
    return ""


def _describe_object(places: list[str], flags: dict[str, str]) -> str:
    try:
        return objects.generation(places[0])
    except Refused as error:
        if error.status == 404:
            raise Failed(f"{places[0]} not found: 404.") from None
        raise


def _build_path(places: list[str], flags: dict[str, str]) -> str:
    where = f"/locations/{flags['--region']}" if "--region" in flags else ""
    return f"/v1/projects/{flags['--project']}{where}/builds/{places[0]}"


def _describe_build(places: list[str], flags: dict[str, str]) -> str:
    return str(call("cloudbuild", "GET", _build_path(places, flags))["status"])


def _cancel_build(places: list[str], flags: dict[str, str]) -> str:
    call("cloudbuild", "POST", _build_path(places, flags) + ":cancel", {})
    return ""


def _cluster(method: str) -> Callable[[list[str], dict[str, str]], str]:
    def run(places: list[str], flags: dict[str, str]) -> str:
        where = f"projects/{flags['--project']}/locations/{flags['--region']}"
        try:
            found = call("container_rest", method, f"/v1/{where}/clusters/{places[0]}")
        except Refused as error:
            raise Failed(f"ResponseError: code={error.status}, message={error.text}") from None
        return str(found.get("status", "")) if method == "GET" else ""

    return run


def _instance(method: str) -> Callable[[list[str], dict[str, str]], str]:
    def run(places: list[str], flags: dict[str, str]) -> str:
        where = f"projects/{flags['--project']}/locations/{flags['--location']}"
        found = call("lustre", method, f"/v1/{where}/instances/{places[0]}")
        return str(found.get("state", "")) if method == "GET" else ""

    return run


COMMANDS: dict[tuple[str, ...], Callable[[list[str], dict[str, str]], str]] = {
    ("storage", "cp"): _copy,
    ("storage", "cat"): _cat,
    ("storage", "ls"): _list,
    ("storage", "rm"): _remove,
    ("storage", "objects", "describe"): _describe_object,
    ("builds", "describe"): _describe_build,
    ("builds", "cancel"): _cancel_build,
    ("container", "clusters", "describe"): _cluster("GET"),
    ("container", "clusters", "delete"): _cluster("DELETE"),
    ("lustre", "instances", "describe"): _instance("GET"),
    ("lustre", "instances", "delete"): _instance("DELETE"),
}


def main(argv: list[str]) -> int:
    """Run one command; return the exit code."""
    places, flags = split(argv)
    for length in (3, 2):
        name = tuple(places[:length])
        if name in COMMANDS:
            break
    else:
        print(f"ERROR: (gcloud) the stand-in does not know: {' '.join(argv)}", file=sys.stderr)
        return 2
    try:
        said = COMMANDS[name](places[len(name) :], flags)
    except Failed as error:
        print(f"ERROR: (gcloud.{'.'.join(name)}) {error}", file=sys.stderr)
        return 1
    except Refused as error:
        status = f"HTTPError {error.status}: {error.text}" if name[0] == "storage" else str(error)
        print(f"ERROR: (gcloud.{'.'.join(name)}) {status}", file=sys.stderr)
        return 1
    if said:
        print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

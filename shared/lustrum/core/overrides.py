"""Overrides of the training's configuration: what may be given, and how Hydra is told. Pure.

A key is dotted names, with `+` (add), `++` (add or change) or `~` (remove) before it, as in Hydra.
A value is any JSON value. What arrives in the training's configuration equals what was sent:
Hydra's override grammar is quoted for, and what its configuration would not keep as it is (an
interpolation `${...}`, the mark `???` of a missing value, a map key that reads as a number) is
refused. Source: hydra-core 1.3 (`OverrideLexer.g4`, `QuotedString`), omegaconf 2.3.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

MAX_KEYS = 100
MAX_KEY = 256  # characters of one key
MAX_TEXT = 4096  # characters of one string
MAX_ITEMS = 1000  # values, lists and maps of one override
MAX_DEPTH = 8
MAX_WRITTEN = 16 * 1024  # bytes of all overrides: Linux gives one argument of `sh -c` 128 KiB
MAX_INTEGER = 2**63 - 1

KEY = r"^(\+{1,2}|~)?[A-Za-z_][A-Za-z0-9_-]*(\.([A-Za-z_][A-Za-z0-9_-]*|[0-9]{1,6}))+$"
ROOTS = ("/lustre/", "/opt/nemo-rl/")
_KEY = re.compile(KEY)
_MAP_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./@+%*?|-]*")
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = ("null", "true", "false", "nan", "inf")
_NAME = re.compile(r"[A-Za-z0-9_ .,:/@+=%-]{0,512}")  # of what is shown to people: logger.*


def split_key(key: str) -> tuple[str, str]:
    """Return the mark before a key (``""``, ``+``, ``++`` or ``~``) and the key itself."""
    name = key.lstrip("+~")
    return key[: len(key) - len(name)], name


def check_key(key: str) -> None:
    """Check the form of a key.

    Raises:
        ValueError: it is not dotted names with at most one mark before them.
    """
    if len(key) > MAX_KEY or not _KEY.match(key) or key.endswith("\n"):
        raise ValueError(
            "must be dotted names such as grpo.max_num_steps, with +, ++ or ~ before them or not"
        )


def check_value(key: str, value: JsonValue) -> None:
    """Check that a value can be told to Hydra and arrives as it is, in bounds.

    Raises:
        ValueError: it cannot be used; says what can.
    """
    mark, name = split_key(key)
    if mark == "~" and value is not None:
        raise ValueError("must be null: ~ removes the key, whatever it holds")
    for count, (depth, item) in enumerate(_parts(value, 1), 1):
        if count > MAX_ITEMS or depth > MAX_DEPTH:
            raise ValueError(
                f"must hold at most {MAX_ITEMS} values, at most {MAX_DEPTH} lists or maps deep"
            )
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, Mapping):
            for part in item:
                _check_map_key(part)
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError("must be a finite number")
        elif isinstance(item, int) and abs(item) > MAX_INTEGER:
            raise ValueError(f"must be a whole number of at most {MAX_INTEGER}")
        elif item is not None and not isinstance(item, bool | int | float | list):
            raise ValueError("must be a string, number, boolean, null, list or map")
    if not isinstance(value, str):
        return
    if "\n" in value:  # in a list of stop strings it has a meaning
        raise ValueError("must be one line; lists and maps may hold strings of more")
    if name.startswith("logger.") and not _NAME.fullmatch(value):  # shown to people
        raise ValueError("must be one line of at most 512 letters, digits, space and _.,:/@+=%-")


def check_together(overrides: Mapping[str, JsonValue]) -> None:
    """Check what no single override shows: none twice (``x`` and ``++x``), not too long in all.

    Raises:
        ValueError: begins with the key at fault, if there is one.
    """
    seen: dict[str, str] = {}
    for key in overrides:
        name = split_key(key)[1]
        if name in seen:
            raise ValueError(f"{key}: is given twice, as {seen[name]} too")
        seen[name] = key
    size = sum(len(written(key, value).encode()) for key, value in overrides.items())
    if size > MAX_WRITTEN:
        raise ValueError(f"are {size} bytes on the command line, at most {MAX_WRITTEN} are taken")


def written(key: str, value: JsonValue) -> str:
    """Return one override as Hydra reads it."""
    return key if key.startswith("~") else f"{key}={hydra(value)}"


def hydra(value: JsonValue) -> str:
    """Write a value in Hydra's override grammar so that it is read back as the same value."""
    if isinstance(value, list):
        return "[" + ",".join(hydra(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra(item)}" for key, item in value.items()) + "}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if _PLAIN.fullmatch(value) and not _reads_as_other(value):
        return value
    # A backslash is itself, except in a row of them that ends at a quote: there each is doubled.
    return "'" + re.sub(r"(\\*)('|\Z)", _before_quote, value) + "'"


def merged(first: Mapping[str, JsonValue], then: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return both, the second's replacing the first's of the same name, whatever their marks."""
    replaced = {split_key(key)[1] for key in then}
    return {
        **{key: value for key, value in first.items() if split_key(key)[1] not in replaced},
        **then,
    }


def by_name(overrides: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return name -> value of what is set, without the marks; what is removed is not in it."""
    return {
        split_key(key)[1]: value for key, value in overrides.items() if not key.startswith("~")
    }


def _before_quote(found: re.Match[str]) -> str:
    slashes, quote = found.groups()
    return slashes * 2 + ("\\'" if quote else "")


def _parts(value: JsonValue, depth: int) -> Iterator[tuple[int, JsonValue]]:
    yield depth, value
    if depth > MAX_DEPTH:
        return
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from _parts(item, depth + 1)


def _check_text(value: str) -> None:
    if len(value) > MAX_TEXT:
        raise ValueError(f"must hold strings of at most {MAX_TEXT} characters")
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t" for char in value):
        raise ValueError("must hold no control character but newline and tab")
    if (
        "${" in value or "$(" in value
    ):  # ${oc.env:...} would write the environment into config.yaml
        raise ValueError(
            "must not hold '${' or '$(': nothing is interpolated, and no shell reads it"
        )
    if value == "???":
        raise ValueError("must not be '???': the configuration takes it for a missing value")
    if ".." in re.split(r"[/\\]", value):
        raise ValueError("must not hold '..' as a folder")
    scheme, separator, rest = value.partition("://")
    path = rest if separator and scheme.strip().lower() == "file" else value
    plain = path.lstrip().startswith("/") and re.sub("/+", "/", path.lstrip())
    if plain and not plain.startswith(ROOTS):
        raise ValueError("must be a path below /lustre/ or /opt/nemo-rl/, or relative")


def _check_map_key(key: object) -> None:
    if not isinstance(key, str) or len(key) > MAX_KEY or not _MAP_KEY.fullmatch(key):
        raise ValueError("must hold maps whose keys are letters, digits and _./@+%*?|-")
    if key.lower() in _WORDS:
        raise ValueError(f"must not hold the map key {key}: Hydra reads it as no string")


def _reads_as_other(text: str) -> bool:
    return text.lower() in _WORDS

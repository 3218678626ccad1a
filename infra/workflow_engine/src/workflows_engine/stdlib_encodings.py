"""The ``json``, ``base64`` and ``hash`` modules of the standard library."""

from __future__ import annotations

import base64 as _base64
import binascii
import hashlib
import hmac
import re
from typing import Any

from workflows_engine import limits
from workflows_engine.errors import WorkflowError, resource_limit, value_error
from workflows_engine.registry import need, register
from workflows_engine.values import from_json, to_json


@register("json.decode", "data")
def json_decode(data: Any) -> Any:
    """The value of a JSON text or its bytes. Raises TypeError, ValueError."""
    text = need("json.decode", "data", data, str, bytes)
    # Bytes are text in UTF-8, as if by text.decode (Google's page).
    return from_json(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


def _indentation(function: str, value: Any) -> tuple[str, str] | None:
    """The prefix and the indent of each line; None: everything in one line.

    ``indent`` is a boolean, or a map with the optional strings ``prefix`` (default: none) and
    ``indent`` (default: four spaces). Raises WorkflowError (TypeError, ValueError) for others.
    """
    if value is None or value is False:
        return None
    if value is True:
        value = {}
    need(function, "indent", value, dict)
    unknown = value.keys() - {"prefix", "indent"}
    if unknown:
        raise value_error(
            f"{function}: indent has no key {min(unknown)!r}, only prefix and indent"
        )
    prefix = need(function, "indent.prefix", value.get("prefix", ""), str)
    return prefix, need(function, "indent.indent", value.get("indent", "    "), str)


def _encode(function: str, data: Any, indent: Any) -> str:
    lines = _indentation(function, indent)
    try:
        if lines is None:
            return to_json(data, separators=(",", ":"))
        # A control character cannot stand in JSON, so that all there are of it are indents.
        text = to_json(data, indent="\x01")
    except WorkflowError as exc:
        raise value_error(f"{function}: {exc.value['message']}") from None
    prefix, step = lines
    size = len(text) + text.count("\n") * len(prefix) + text.count("\x01") * (len(step) - 1)
    if size > limits.MEMORY_BYTES:
        raise resource_limit(
            f"{function}: {size} characters are more than the {limits.MEMORY_BYTES} bytes allowed"
        )
    return text.replace("\n", "\n" + prefix).replace("\x01", step)


@register("json.encode_to_string", "data", "indent", indent=None)
def json_encode_to_string(data: Any, indent: Any) -> str:
    """JSON text, in one line without spaces unless ``indent``. Raises TypeError."""
    return _encode("json.encode_to_string", data, indent)


@register("json.encode", "data", "indent", indent=None)
def json_encode(data: Any, indent: Any) -> bytes:
    """The bytes of json.encode_to_string. Raises TypeError."""
    return _encode("json.encode", data, indent).encode("utf-8", "replace")


@register("base64.encode", "data", "padding", padding=True)
def base64_encode(data: Any, padding: Any) -> str:
    """Base64 text of bytes. Raises TypeError."""
    need("base64.encode", "padding", padding, bool)
    text = _base64.b64encode(need("base64.encode", "data", data, bytes)).decode()
    return text if padding else text.rstrip("=")


_BASE64 = re.compile(r"[A-Za-z0-9+/]*(={0,2})")


@register("base64.decode", "data", "padding", padding=True)
def base64_decode(data: Any, padding: Any) -> bytes:
    """The bytes of a Base64 text; carriage returns and newlines in it are ignored.

    Raises WorkflowError (ValueError) for a character outside the alphabet, and for a length
    that does not fit: with ``padding`` a multiple of 4, without it no padding characters.
    """
    need("base64.decode", "padding", padding, bool)
    text: str = need("base64.decode", "data", data, str)
    text = text.replace("\r", "").replace("\n", "")
    match = _BASE64.fullmatch(text)
    if match is None:
        raise value_error("base64.decode: data has a character outside the Base64 alphabet")
    if padding and len(text) % 4:
        raise value_error(
            f"base64.decode: {len(text)} characters are no multiple of 4; write padding: false "
            "for text without padding"
        )
    if not padding:
        if match[1]:
            raise value_error("base64.decode: data has padding though padding is false")
        text += "=" * (-len(text) % 4)
    try:
        return bytes(_base64.b64decode(text, validate=True))
    except binascii.Error as exc:
        raise value_error(f"base64.decode: {exc}") from None


_HASHES = ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512")


def _hash_name(function: str, algorithm: Any) -> str:
    name: str = need(function, "algorithm", algorithm, str)
    if name not in _HASHES:
        raise value_error(f"{function}: unknown algorithm {name!r}, not one of {_HASHES}")
    return name.lower()


@register("hash.compute_checksum", "data", "algorithm")
def compute_checksum(data: Any, algorithm: Any) -> bytes:
    """A digest as bytes. Raises TypeError, ValueError (unknown algorithm)."""
    name = _hash_name("hash.compute_checksum", algorithm)
    raw: bytes = need("hash.compute_checksum", "data", data, bytes)
    return hashlib.new(name, raw, usedforsecurity=False).digest()


@register("hash.compute_hmac", "key", "data", "algorithm")
def compute_hmac(key: Any, data: Any, algorithm: Any) -> bytes:
    """A keyed digest as bytes. Raises TypeError, ValueError (unknown algorithm)."""
    name = _hash_name("hash.compute_hmac", algorithm)
    secret: bytes = need("hash.compute_hmac", "key", key, bytes)
    return hmac.new(secret, need("hash.compute_hmac", "data", data, bytes), name).digest()

"""The signature of a job event: an HMAC with a key that only its own run has."""

from __future__ import annotations

import hashlib
import hmac

ATTRIBUTE = "signature"  # of the Pub/Sub message


def sign(key: str, data: bytes) -> str:
    """Return the signature of a message's data, hex."""
    return hmac.new(key.encode(), data, hashlib.sha256).hexdigest()


def is_signed(key: str, data: bytes, signature: str) -> bool:
    """Say whether a signature is right, in a time that tells nothing about it."""
    return hmac.compare_digest(sign(key, data).encode(), signature.encode(errors="replace"))


def read_key(path: str | None) -> str:
    """Return the key in a file, "" when there is none: then events are not signed."""
    if path is None:
        return ""
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""

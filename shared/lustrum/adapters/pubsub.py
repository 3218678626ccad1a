"""Publishing: notifications, dead letters, and requests of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lustrum.core.settings import Settings

TIMEOUT = 20.0  # seconds


class Publisher:
    """Publishes through google-cloud-pubsub; the emulator is found by PUBSUB_EMULATOR_HOST."""

    def __init__(self, settings: Settings) -> None:
        from google.cloud import pubsub_v1  # type: ignore[attr-defined]

        self._settings = settings
        self._client = pubsub_v1.PublisherClient()

    def notify(self, message: Mapping[str, Any]) -> None:
        """Tell people: one JSON message on ``lustrum-notifications``."""
        self.publish(
            self._settings.notifications_topic,
            json.dumps(message).encode(),
            {
                "kind": str(message.get("kind", "")),
                "run_id": str(message.get("run_id") or ""),
                "needs_person": "true" if message.get("needs_person") else "false",
            },
        )

    def bury(self, data: bytes, why: Mapping[str, str]) -> None:
        """Keep a message that cannot be used, with the reason as attributes."""
        self.publish(
            self._settings.dead_letter_topic,
            data[:1_000_000] or b"(empty)",
            {key: _attribute(value) for key, value in why.items()},
        )

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> str:
        """Publish one message and return its id."""
        future = self._client.publish(self._settings.topic(topic), data, **attributes)
        return str(future.result(timeout=TIMEOUT))


def _attribute(text: str) -> str:
    """Return a text as an attribute may hold it: valid UTF-8, at most 1024 bytes."""
    return text.encode(errors="replace")[:1000].decode(errors="ignore")

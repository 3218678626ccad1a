"""A publisher that keeps what it is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lustrum.adapters.pubsub import Publisher


class FakePublisher(Publisher):
    """Keeps messages by topic; refuses what Pub/Sub cannot carry. ``broken`` raises."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self.broken: Exception | None = None
        self.sent: list[tuple[str, bytes, dict[str, str]]] = []

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> str:
        if self.broken is not None:
            raise self.broken
        for key, value in attributes.items():
            if not isinstance(value, str) or len(value.encode()) > 1024:  # strict UTF-8, as proto
                raise ValueError(f"attribute {key} cannot be sent: {value!r}")
        if not data and not attributes:
            raise ValueError("an empty message is refused")
        self.sent.append((topic, data, dict(attributes)))
        return str(len(self.sent))

    @property
    def notifications(self) -> list[dict[str, Any]]:
        """Everything people were told, oldest first."""
        topic = self._settings.notifications_topic
        return [json.loads(data) for name, data, _ in self.sent if name == topic]

    @property
    def dead_letters(self) -> list[tuple[bytes, dict[str, str]]]:
        """Everything that was buried."""
        topic = self._settings.dead_letter_topic
        return [(data, attributes) for name, data, attributes in self.sent if name == topic]

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        """Return the notifications of a kind."""
        return [one for one in self.notifications if one["kind"] == kind]

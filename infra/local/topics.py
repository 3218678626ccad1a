"""Topics and subscriptions of the local control plane, as infra/terraform makes them in the cloud.

Differences, each a limit of the emulator: no OIDC on a push, no filters, and no retry policy
(with it the emulator stops delivering for good as soon as two messages are outstanding).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import httpx

PUSHED = {  # topic -> function that its push subscription feeds
    "lustrum-requests": "start-run",
    "lustrum-events": "react-to-event",
    "cloud-builds": "react-to-event",
    "lustrum-alerts": "react-to-event",
}
PULLED = ("lustrum-notifications", "lustrum-dead-letters")
ACK_DEADLINE = 60  # seconds
ATTEMPTS = 5


class LocalPubSub:
    """The Pub/Sub emulator, by REST."""

    def __init__(self, port: int, project: str) -> None:
        self._base = f"http://127.0.0.1:{port}/v1/projects/{project}"
        self._prefix = f"projects/{project}"
        self._client = httpx.Client(timeout=30.0, trust_env=False)

    def create(self, functions_url: str) -> None:
        """Create every topic, its push or pull subscription, and its dead letters."""
        for topic in (*PUSHED, *PULLED):
            self._put(f"topics/{topic}", {})
        for topic, function in PUSHED.items():
            dead = f"{topic}-dead-letters"
            self._put(f"topics/{dead}", {})
            self._put(f"subscriptions/{dead}", {"topic": f"{self._prefix}/topics/{dead}"})
            self._put(
                f"subscriptions/{topic}-push",
                {
                    "topic": f"{self._prefix}/topics/{topic}",
                    "ackDeadlineSeconds": ACK_DEADLINE,
                    "pushConfig": {"pushEndpoint": f"{functions_url}/{function}"},
                    "deadLetterPolicy": {
                        "deadLetterTopic": f"{self._prefix}/topics/{dead}",
                        "maxDeliveryAttempts": ATTEMPTS,
                    },
                },
            )
        for topic in PULLED:
            self._put(
                f"subscriptions/{topic}-pull",
                {"topic": f"{self._prefix}/topics/{topic}", "ackDeadlineSeconds": ACK_DEADLINE},
            )

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> str:
        """Publish one message and return its id."""
        answer = self._client.post(
            f"{self._base}/topics/{topic}:publish",
            json={
                "messages": [
                    {"data": base64.b64encode(data).decode(), "attributes": dict(attributes)}
                ]
            },
        )
        answer.raise_for_status()
        return str(answer.json()["messageIds"][0])

    def pull(self, subscription: str, limit: int = 100) -> list[tuple[bytes, dict[str, str]]]:
        """Return and acknowledge the messages that wait, without waiting for more."""
        answer = self._client.post(
            f"{self._base}/subscriptions/{subscription}:pull",
            json={"maxMessages": limit, "returnImmediately": True},
        )
        answer.raise_for_status()
        received = answer.json().get("receivedMessages", [])
        if received:
            self._client.post(
                f"{self._base}/subscriptions/{subscription}:acknowledge",
                json={"ackIds": [one["ackId"] for one in received]},
            ).raise_for_status()
        return [
            (
                base64.b64decode(one["message"].get("data", "")),
                one["message"].get("attributes", {}),
            )
            for one in received
        ]

    def notifications(self) -> list[dict[str, Any]]:
        """Return the notifications since the last call."""
        return [json.loads(data) for data, _ in self.pull("lustrum-notifications-pull")]

    def _put(self, path: str, body: Mapping[str, Any]) -> None:
        self._client.put(f"{self._base}/{path}", json=body).raise_for_status()

"""The network: access tokens, and events to Pub/Sub."""

from __future__ import annotations

import base64
import collections
import json
import threading
import time
import urllib.parse
import urllib.request
from typing import Any

from lustrum.head.output import Event, Voice
from lustrum.head.signature import ATTRIBUTE, read_key, sign
from lustrum.head.spec import Spec


def ask(request: urllib.request.Request, timeout: float) -> Any:
    """Open a request; loopback and the metadata server never go through a proxy."""
    host = urllib.parse.urlsplit(request.full_url).hostname or ""
    direct = host in ("127.0.0.1", "localhost", "::1", "metadata.google.internal")
    handlers = [urllib.request.ProxyHandler({})] if direct else []
    return urllib.request.build_opener(*handlers).open(request, timeout=timeout)


class AccessToken:
    """A token of the pod's account from the metadata server, refreshed a minute before its end."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._header: dict[str, str] = {}
        self._until = 0.0
        self._wait_until = time.monotonic() + spec.metadata_wait_seconds

    def header(self) -> dict[str, str]:
        """The Authorization header, empty when the spec asks for no token.

        Raises OSError when the metadata server does not answer in time.
        """
        if not self._spec.token:
            return {}
        with self._lock:
            while time.monotonic() >= self._until:
                try:
                    self._refresh()
                except (OSError, ValueError, KeyError) as error:
                    if time.monotonic() > self._wait_until:
                        raise OSError(f"no access token: {type(error).__name__}") from None
                    time.sleep(1)
            return self._header

    def forget(self) -> None:
        """Fetch a new token before the next request."""
        self._until = 0.0

    def _refresh(self) -> None:
        base = self._spec.metadata_endpoint
        url = f"{base}/computeMetadata/v1/instance/service-accounts/default/token"
        request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
        with ask(request, 5) as answer:
            token = json.load(answer)
        self._header = {"Authorization": "Bearer " + token["access_token"]}
        self._until = time.monotonic() + float(token["expires_in"]) - 60


class Publisher(threading.Thread):
    """Sends events to Pub/Sub in the background; bounded; a failure never stops the job."""

    LIMIT = 200  # events waiting; progress goes first when there is no room

    def __init__(self, spec: Spec, token: AccessToken, voice: Voice) -> None:
        super().__init__(daemon=True, name="publisher")
        self._spec, self._token, self._voice = spec, token, voice
        self._waiting: collections.deque[Event] = collections.deque()
        self._change = threading.Condition()
        self._busy = self._closing = False
        self._failures = 0
        self._key = read_key(spec.event_key)

    def offer(self, event: Event) -> None:
        """Queue an event; a progress event still waiting is merged into the newer one."""
        with self._change:
            old = [item for item in self._waiting if item["type"] == "job.progress"]
            if event["type"] == "job.progress" and old:
                event = {**event, "steps": (old[0]["steps"] + event["steps"])[-100:]}
                self._waiting.remove(old[0])
            elif len(self._waiting) >= self.LIMIT:
                self._waiting.remove(old[0] if old else self._waiting[0])
            self._waiting.append(event)
            self._change.notify_all()

    def close(self, seconds: float) -> None:
        """Wait until all is sent, at most this long."""
        with self._change:
            self._closing = True
            self._change.notify_all()
            self._change.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def run(self) -> None:
        """Send what waits, in order, for ever."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting)
                event, self._busy = self._waiting.popleft(), True
            self._send(event)
            with self._change:
                self._busy = False
                self._change.notify_all()

    def _send(self, event: Event) -> None:
        attributes = {key: str(event[key]) for key in ("type", "run_id", "attempt", "event_id")}
        said = json.dumps(event).encode()
        if self._key:
            attributes[ATTRIBUTE] = sign(self._key, said)
        data = base64.b64encode(said).decode()
        body = json.dumps({"messages": [{"data": data, "attributes": attributes}]}).encode()
        url = (
            f"{self._spec.pubsub_endpoint}/v1/projects/{self._spec.project}"
            f"/topics/{self._spec.topic}:publish"
        )
        tries = 1 if event["type"] == "job.progress" else 6
        for attempt in range(tries):
            try:
                headers = {"Content-Type": "application/json", **self._token.header()}
                with ask(urllib.request.Request(url, body, headers), 10) as answer:
                    answer.read()
                return
            except Exception as error:  # whatever it is, the job goes on
                reason = getattr(error, "code", None) or f"{type(error).__name__}: {error}"
                if reason == 401:
                    self._token.forget()
                elif reason in (400, 403, 404):
                    break
            with self._change:
                self._change.wait_for(lambda: self._closing, min(2**attempt, 30) / 2)
            if self._closing:
                time.sleep(0.2)
        self._failures += 1
        if self._failures in (1, 10, 100):
            self._voice.say(f"lustrum: event {event['event_id']} was not published: {reason}")

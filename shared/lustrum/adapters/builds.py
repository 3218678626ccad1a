"""Cloud Build: find, cancel and start the builds of a run. No function ever waits for a build."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lustrum.adapters.google import Rest
from lustrum.core.settings import Settings

LIVE = frozenset({"PENDING", "QUEUED", "WORKING"})


@dataclass(frozen=True)
class Build:
    """One build: id, status, tags, and the JSON its last step left as output, {} if none."""

    build_id: str
    status: str
    tags: tuple[str, ...]
    output: Mapping[str, Any]
    detail: str
    created_at: float

    @property
    def is_duplicate(self) -> bool:
        """Say whether the build ended at once because another one does its work."""
        return bool(self.output.get("duplicate"))

    @property
    def creates(self) -> bool:
        """Say whether it is a deploy build; the tag of one names its action."""
        return any("-deploy-" in tag for tag in self.tags)

    @property
    def is_live(self) -> bool:
        """Say whether it may still create something."""
        return self.status in LIVE


class Builds:
    """The builds of one project, in the trigger's region."""

    def __init__(self, rest: Rest, settings: Settings) -> None:
        self._rest = rest
        # projects/P/locations/R/triggers/NAME -> projects/P/locations/R
        self._parent = settings.build_trigger.rsplit("/triggers/", 1)[0]
        self._trigger = settings.build_trigger

    def tagged(self, tag: str) -> list[Build]:
        """Return the builds that carry a tag, newest first."""
        found = self._rest.call(
            "cloudbuild",
            "GET",
            f"/v1/{self._parent}/builds",
            params={"filter": f'tags="{tag}"', "pageSize": "50"},
        )
        return [_build(item) for item in found.get("builds", [])]

    def get(self, build_id: str) -> Build:
        """Return one build. Raises NotFound."""
        return _build(
            self._rest.call("cloudbuild", "GET", f"/v1/{self._parent}/builds/{build_id}")
        )

    def cancel(self, build_id: str) -> None:
        """Cancel a build; what it was creating is awaited by the teardown, then deleted."""
        self._rest.call(
            "cloudbuild", "POST", f"/v1/{self._parent}/builds/{build_id}:cancel", body={}
        )


def _build(item: Mapping[str, Any]) -> Build:
    outputs = (item.get("results") or {}).get("buildStepOutputs") or []
    output: dict[str, Any] = {}
    for text in outputs:
        try:
            found = json.loads(base64.b64decode(text))
        except ValueError:
            continue
        if isinstance(found, dict):
            output = found
    detail = (item.get("failureInfo") or {}).get("detail") or item.get("statusDetail") or ""
    return Build(
        build_id=item["id"],
        status=item.get("status", "STATUS_UNKNOWN"),
        tags=tuple(item.get("tags", ())),
        output=output,
        detail=detail,
        created_at=_epoch(item.get("createTime")),
    )


def _epoch(text: str | None) -> float:
    # RFC 3339 with nanoseconds, which fromisoformat of Python 3.11 reads but for the digits
    # past six
    if not text:
        return 0.0
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()

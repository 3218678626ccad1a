"""What a project answers about itself: the probes of `lustrum.doctor.checks`, as plain REST calls.

Read only. ``ask(method, url, body)`` sends one authorized request and returns the decoded answer;
it raises ServiceError, NotFound for 404.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

from lustrum.adapters.google import Rest
from lustrum.doctor.project_questions import Bindings, Quota, ServiceQuota

Ask = Callable[[str, str, Mapping[str, Any] | None], dict[str, Any]]


def asker(rest: Rest) -> Ask:
    """Return an ``ask`` over authorized REST calls with timeouts."""

    def ask(method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        data = rest.raw("", method, url, content=content, content_type="application/json")
        found: dict[str, Any] = json.loads(data or b"{}")
        return found

    return ask


class Project:
    """One project; what several checks need is asked once."""

    def __init__(self, project: str, ask: Ask) -> None:
        self._project = project
        self._ask = ask

    def number(self) -> str:
        """Return the project's number, which its service agents are named by."""
        return self._number

    def enabled_services(self) -> set[str]:
        """Return the enabled services, ``compute.googleapis.com``."""
        pages = self._pages(
            f"https://serviceusage.googleapis.com/v1/projects/{self._project}/services",
            {"filter": "state:ENABLED", "pageSize": "200"},
        )
        return {s["config"]["name"] for page in pages for s in page.get("services", [])}

    def functions(self, region: str) -> dict[str, str]:
        """Return function -> state."""
        return self._states("cloudfunctions.googleapis.com/v2", region, "functions")

    def workflows(self, region: str) -> dict[str, str]:
        """Return workflow -> state."""
        return self._states("workflows.googleapis.com/v1", region, "workflows")

    def triggers(self, region: str) -> set[str]:
        """Return the names of the region's build triggers."""
        pages = self._pages(
            f"https://cloudbuild.googleapis.com/v1/projects/{self._project}/locations/{region}/triggers"
        )
        return {t["name"] for page in pages for t in page.get("triggers", [])}

    def machine_zones(self, machine: str) -> set[str]:
        """Return the zones that offer a machine type."""
        pages = self._pages(
            self._compute("aggregated/machineTypes"),
            {"filter": f"name={machine}", "returnPartialSuccess": "true"},
        )
        return {
            scope.removeprefix("zones/")
            for page in pages
            for scope, found in page.get("items", {}).items()
            if found.get("machineTypes")
        }

    def lustre_zones(self) -> set[str]:
        """Return the zones where Managed Lustre can be made."""
        pages = self._pages(f"https://lustre.googleapis.com/v1/projects/{self._project}/locations")
        return {one["locationId"] for page in pages for one in page.get("locations", [])}

    def region_quotas(self, region: str) -> dict[str, Quota]:
        """Return Compute Engine's quotas of a region by metric."""
        found = self._ask("GET", self._compute(f"regions/{region}"), None)
        return {
            one["metric"]: Quota(float(one["limit"]), float(one.get("usage", 0)))
            for one in found.get("quotas", [])
        }

    def service_quotas(self, service: str) -> list[ServiceQuota]:
        """Return every value of a service's quotas (Cloud Quotas API)."""
        pages = self._pages(
            f"https://cloudquotas.googleapis.com/v1/projects/{self._project}"
            f"/locations/global/services/{service}/quotaInfos",
            {"pageSize": "100"},
        )
        return [
            ServiceQuota(
                f"{info.get('metric', '')} {info.get('quotaId', '')}".strip(),
                value.get("dimensions", {}),
                frozenset(value.get("applicableLocations", [])),
                float(value.get("details", {}).get("value", 0)),
            )
            for page in pages
            for info in page.get("quotaInfos", [])
            for value in info.get("dimensionsInfos", [])
        ]

    def peerings(self, network: str) -> dict[str, str]:
        """Return peering -> state of a network."""
        found = self._ask("GET", self._compute(f"global/networks/{network}"), None)
        return {one["name"]: one["state"] for one in found.get("peerings", [])}

    def project_bindings(self) -> Bindings:
        """Return who holds which role on the project."""
        url = (
            f"https://cloudresourcemanager.googleapis.com/v1/projects/{self._project}:getIamPolicy"
        )
        # version 3, or conditional bindings are withheld
        body = {"options": {"requestedPolicyVersion": 3}}
        return _bindings(self._ask("POST", url, body))

    def account_bindings(self, email: str) -> Bindings:
        """Return who holds which role on a service account."""
        url = f"https://iam.googleapis.com/v1/projects/{self._project}/serviceAccounts/{email}"
        return _bindings(self._ask("POST", f"{url}:getIamPolicy", {}))

    def bucket_bindings(self, bucket: str) -> Bindings:
        """Return who holds which role on a bucket."""
        url = f"https://storage.googleapis.com/storage/v1/b/{quote(bucket, safe='')}/iam"
        return _bindings(self._ask("GET", f"{url}?optionsRequestedPolicyVersion=3", None))

    def bucket_owner(self, bucket: str) -> str:
        """Return the number of the project that a bucket belongs to."""
        url = f"https://storage.googleapis.com/storage/v1/b/{quote(bucket, safe='')}"
        return str(self._ask("GET", f"{url}?fields=projectNumber", None).get("projectNumber", ""))

    def topic_bindings(self, topic: str) -> Bindings:
        """Return who holds which role on a topic."""
        return _bindings(self._ask("GET", f"{self._topic(topic)}:getIamPolicy", None))

    def invoker_bindings(self, region: str, function: str) -> Bindings:
        """Return who holds which role on a function's Cloud Run service."""
        url = f"https://run.googleapis.com/v2/projects/{self._project}/locations/{region}"
        return _bindings(self._ask("GET", f"{url}/services/{function}:getIamPolicy", None))

    def secret_state(self, secret: str) -> str:
        """Return the state of a secret's latest version. Its value is not read."""
        url = f"https://secretmanager.googleapis.com/v1/projects/{self._project}/secrets/{secret}"
        return str(self._ask("GET", f"{url}/versions/latest", None).get("state", "UNKNOWN"))

    def held_permissions(self, wanted: Sequence[str]) -> set[str]:
        """Return which permissions the caller holds on the project, however they came."""
        url = f"https://cloudresourcemanager.googleapis.com/v1/projects/{self._project}"
        found = self._ask("POST", f"{url}:testIamPermissions", {"permissions": list(wanted)})
        return set(found.get("permissions", []))

    def may_publish(self, topic: str) -> bool:
        """Say whether the caller may publish to a topic."""
        wanted = ["pubsub.topics.publish"]
        found = self._ask(
            "POST", f"{self._topic(topic)}:testIamPermissions", {"permissions": wanted}
        )
        return found.get("permissions") == wanted

    @cached_property
    def _number(self) -> str:
        url = f"https://cloudresourcemanager.googleapis.com/v1/projects/{self._project}"
        return str(self._ask("GET", url, None)["projectNumber"])

    def _compute(self, path: str) -> str:
        return f"https://compute.googleapis.com/compute/v1/projects/{self._project}/{path}"

    def _topic(self, topic: str) -> str:
        return f"https://pubsub.googleapis.com/v1/projects/{self._project}/topics/{topic}"

    def _states(self, api: str, region: str, kind: str) -> dict[str, str]:
        pages = self._pages(f"https://{api}/projects/{self._project}/locations/{region}/{kind}")
        return {
            one["name"].rsplit("/", 1)[-1]: one.get("state", "UNKNOWN")
            for page in pages
            for one in page.get(kind, [])
        }

    def _pages(
        self, url: str, params: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            query = {**(params or {}), **({"pageToken": token} if token else {})}
            page = self._ask("GET", f"{url}?{urlencode(query)}" if query else url, None)
            yield page
            token = page.get("nextPageToken", "")
            if not token:
                return


def _bindings(policy: Mapping[str, Any]) -> Bindings:
    return {
        (binding["role"], member)
        for binding in policy.get("bindings", [])
        for member in binding.get("members", [])
    }

"""A project in which `lustrum doctor` finds nothing wrong, for its tests."""

from __future__ import annotations

from typing import Any

from lustrum.core.errors import NotFound
from lustrum.core.plan import make_plan
from lustrum.core.request import StartRequest
from lustrum.core.run_plan import RunPlan
from lustrum.doctor.checks import examine
from lustrum.doctor.expected_setup import INVOKERS, ROLES, SERVICES
from lustrum.doctor.findings import Finding, Level, Options
from lustrum.doctor.project_questions import Bindings, Quota, ServiceQuota

PROJECT, NUMBER = "my-project", "123456789012"


AGENT = f"serviceAccount:service-{NUMBER}@gcp-sa-lustre.iam.gserviceaccount.com"


def email(account: str) -> str:
    return f"serviceAccount:lustrum-{account}@{PROJECT}.iam.gserviceaccount.com"


class Ready:
    """A project in which everything is as it should be; a test spoils one thing."""

    def __init__(self) -> None:
        self.services = set(SERVICES)
        self.function_states = {name.replace("_", "-"): "ACTIVE" for name in INVOKERS}
        self.workflow_states = {"rl-run": "ACTIVE", "teardown": "ACTIVE"}
        self.trigger_names = {"lustrum-build"}
        self.zones_a4 = {"us-east1-b", "us-central1-b"}
        self.zones_lustre = {"us-east1-b", "us-east1-c", "us-central1-b"}
        self.compute = {
            "PREEMPTIBLE_NVIDIA_B200_GPUS": Quota(64),
            "NVIDIA_B200_GPUS": Quota(0),
            "N2D_CPUS": Quota(24, 8),
            "SSD_TOTAL_GB": Quota(500),
            "IN_USE_ADDRESSES": Quota(8),
            "HDB_TOTAL_GB": Quota(500),
        }
        self.lustre = [
            ServiceQuota(
                "lustre.googleapis.com/StorageFor500MBpsThroughputPerTiB-per-zone",
                {"zone": "us-east1-b"},
                frozenset(),
                100_000,
            )
        ]
        self.peering_states = {"servicenetworking-googleapis-com": "ACTIVE"}
        self.project = {
            (role.format(project=PROJECT), email(account))
            for account, roles in ROLES.items()
            for role in roles
        }
        self.bucket: Bindings = {("roles/storage.objectUser", AGENT)}
        self.topics: dict[str, Bindings] = {
            "lustrum-alerts": {
                (
                    "roles/pubsub.publisher",
                    f"serviceAccount:service-{NUMBER}"
                    "@gcp-sa-monitoring-notification.iam.gserviceaccount.com",
                )
            },
            "lustrum-events": {
                ("roles/pubsub.publisher", "principal://x/subject/ns/default/sa/lustrum-job")
            },
        }
        self.invokers = {
            name.replace("_", "-"): {("roles/run.invoker", email(a)) for a in accounts}
            for name, accounts in INVOKERS.items()
        }
        self.accounts: dict[str, Bindings] = {
            "node": {("roles/iam.serviceAccountUser", email("build"))},
            "build": {
                ("roles/iam.serviceAccountUser", email(name)) for name in ("rl-run", "teardown")
            },
        }
        self.secrets = {"lustrum-hf-token": "ENABLED", "lustrum-wandb-api-key": "ENABLED"}
        self.publish = True
        self.asked_bucket = ""

    def number(self) -> str:
        return NUMBER

    def enabled_services(self) -> set[str]:
        return self.services

    def functions(self, region: str) -> dict[str, str]:
        return self.function_states

    def workflows(self, region: str) -> dict[str, str]:
        return self.workflow_states

    def triggers(self, region: str) -> set[str]:
        return self.trigger_names

    def machine_zones(self, machine: str) -> set[str]:
        return self.zones_a4 if machine == "a4-highgpu-8g" else set()

    def lustre_zones(self) -> set[str]:
        return self.zones_lustre

    def region_quotas(self, region: str) -> dict[str, Quota]:
        return self.compute if region == "us-east1" else {}

    def service_quotas(self, service: str) -> list[ServiceQuota]:
        return self.lustre

    def peerings(self, network: str) -> dict[str, str]:
        return self.peering_states

    def project_bindings(self) -> Bindings:
        return self.project

    def bucket_bindings(self, bucket: str) -> Bindings:
        self.asked_bucket = bucket
        return self.bucket

    def account_bindings(self, email: str) -> Bindings:
        return self.accounts[email.split("@")[0].removeprefix("lustrum-")]

    def topic_bindings(self, topic: str) -> Bindings:
        return self.topics[topic]

    def invoker_bindings(self, region: str, function: str) -> Bindings:
        return self.invokers[function]

    def secret_state(self, secret: str) -> str:
        if secret not in self.secrets:
            raise NotFound("no version")
        return self.secrets[secret]

    def may_publish(self, topic: str) -> bool:
        return self.publish


def plan(**request: Any) -> RunPlan:
    return make_plan(
        StartRequest.model_validate({"action": "start", **request}),
        "rl-0123456789",
        f"{PROJECT}-lustrum-exports",
    )


def options(probes: Ready, **request: Any) -> Options:
    return Options(PROJECT, "us-east1", plan(**request), probes)


def bad(probes: Ready, **request: Any) -> list[Finding]:
    return [f for f in examine(options(probes, **request)) if f.level is not Level.OK]

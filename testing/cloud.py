"""The cloud of one project: clusters, Lustre, builds, machines and objects, over virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lustrum.adapters.builds import Build
from lustrum.adapters.compute import Machine
from lustrum.core import names
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure

from testing.agenda import Agenda
from testing.dashboard import Dashboard, Script
from testing.fake_cluster import FakeKubernetes
from testing.files import LustreFiles
from testing.ray_job import Job

Hook = Callable[[str, str], None]


@dataclass
class Cluster:
    """A GKE cluster with its two pools."""

    name: str
    location: str
    labels: dict[str, str]
    kubernetes: FakeKubernetes
    status: str = "PROVISIONING"
    pools: list[str] = field(default_factory=lambda: ["system", names.GPU_POOL])


@dataclass
class LustreInstance:
    """A Managed Lustre instance and what is on it."""

    name: str
    zone: str
    labels: dict[str, str]
    files: LustreFiles = field(default_factory=LustreFiles)
    state: str = "CREATING"
    transfer: str | None = None


@dataclass
class Deploy:
    """How a deploy build goes: its class when it fails, and whether it made things before."""

    failure: str | None = None
    message: str = ""
    makes: bool = True
    seconds: float = 900.0
    status: str | None = None  # of the build, when it is neither SUCCESS nor FAILURE
    output: bool = True  # whether its result can be read
    late: bool = False  # what it asked for is made although it was cancelled
    stubborn: bool = False  # a cancel does not end it
    locks: bool = False  # it dies with the lock of its state: every destroy build fails


@dataclass
class Operation:
    """An import or export."""

    name: str
    instance: LustreInstance
    finish: Callable[[], None]
    done: bool = False
    problem: str = ""
    bytes: int = 0


class Cloud:
    """Everything that costs money, and the hook that lets calls fail.

    ``hooks`` are called with service and method before each call; they may raise.
    """

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.clusters: list[Cluster] = []
        self.instances: list[LustreInstance] = []
        self.builds: list[Build] = []
        self.objects: dict[str, bytes | int] = {}
        self.operations: dict[str, Operation] = {}
        self.machines: list[Machine] = []  # besides those of the clusters
        self.hooks: list[Hook] = []
        self.calls: list[tuple[str, str]] = []
        self.deploys: list[Deploy] = []  # how the next ones go; then all is well
        self.destroys: list[str] = []  # "ok", "fails", "lies": how the next ones go
        self.exports: list[str] = []  # "ok", "partial" or an error's message
        self.scripts: dict[int, Script] = {}  # by attempt
        self.deployments = 0
        self.most_alive = 0  # clusters of one run at once
        self.delete_seconds = 240.0
        self.export_seconds = 120.0
        self.missing_zones: list[str] = []
        self.published: Callable[[dict[str, Any]], None] = lambda event: None
        self.build_changed: Callable[[Build, Mapping[str, str]], None] = lambda build, subs: None
        self.created: Callable[[str, str, Mapping[str, str]], None] = lambda *thing: None
        self.losing: Callable[[LustreInstance], None] = lambda one: None  # before it is deleted
        self.linger = 0.0  # seconds that a machine outlives its cluster
        self.remains: list[Machine] = []
        self.locked: set[str] = set()
        self.stubborn: set[str] = set()  # builds that no cancel ends
        self.on_cluster: Callable[[FakeKubernetes], None] = lambda kubernetes: None
        self.buckets: set[str] | None = None  # None: every bucket exists
        self.submissions: list[dict[str, Any]] = []
        self.jobs: list[Job] = []  # every Ray job that was ever accepted
        self._serial = 0

    # What a build does.

    def run_trigger(self, subs: Mapping[str, str]) -> str:
        """Start a build; return its id."""
        self.call("cloudbuild", "run")
        self._serial += 1
        identity = f"build-{self._serial}"
        run, action, number = subs["_RUN_ID"], subs["_ACTION"], subs["_ZONE_ATTEMPT"]
        build = Build(
            identity,
            "WORKING",
            ("lustrum", run, names.build_tag(run, action, int(number))),
            {},
            "",
            self.agenda.now(),
        )
        self.builds.insert(0, build)
        (self._deploy if action == "deploy" else self._destroy)(identity, dict(subs))
        return identity

    def build(self, identity: str) -> Build:
        """Return a build by id."""
        return next(one for one in self.builds if one.build_id == identity)

    def _deploy(self, identity: str, subs: dict[str, str]) -> None:
        plan = self.deploys.pop(0) if self.deploys else Deploy()
        if plan.stubborn:
            self.stubborn.add(identity)
        run_id, zone = subs["_RUN_ID"], subs["_ZONE"]
        labels = names.labels(run_id, float(subs["_EXPIRES"]))
        self.deployments += 1

        def create() -> None:
            if not self.build(identity).is_live and not plan.late:
                return  # cancelled before it asked
            if not any(one.name == run_id for one in self.clusters):
                self._new_cluster(run_id, zone, labels)
            if not any(one.name == run_id for one in self.instances):
                self._new_instance(run_id, zone, labels)

        def end() -> None:
            if plan.locks:
                self.locked.add(run_id)
            if plan.failure is None and plan.status is None:
                cluster = next((one for one in self.clusters if one.name == run_id), None)
                if cluster is not None:
                    cluster.kubernetes.ready_claim()
                self._end_build(identity, "SUCCESS", subs, {"ok": True, "class": None})
                return
            output = {"ok": False, "class": plan.failure, "message": plan.message}
            self._end_build(
                identity,
                plan.status or "FAILURE",
                subs,
                output if plan.output else {},
                plan.message,
            )

        if plan.makes:
            self.agenda.after(60, create)
        self.agenda.after(plan.seconds, end)

    def _destroy(self, identity: str, subs: dict[str, str]) -> None:
        how = self.destroys.pop(0) if self.destroys else "ok"
        run_id = subs["_RUN_ID"]
        if run_id in self.locked:
            how = "Error acquiring the state lock"

        def begin() -> None:
            if how == "ok":
                self.delete_cluster(run_id)
                self.delete_instance(run_id)

        def end() -> None:
            fine = how in ("ok", "lies")
            self._end_build(
                identity,
                "SUCCESS" if fine else "FAILURE",
                subs,
                {"ok": fine, "class": None if fine else "UNKNOWN", "message": how},
            )

        self.agenda.after(30, begin)
        self.agenda.after(60 + self.delete_seconds, end)

    def _end_build(
        self,
        identity: str,
        status: str,
        subs: Mapping[str, str],
        output: Mapping[str, Any],
        detail: str = "",
    ) -> None:
        build = self.build(identity)
        if build.is_live:
            ended = Build(identity, status, build.tags, output, detail, build.created_at)
            self.builds[self.builds.index(build)] = ended
            self.build_changed(ended, subs)

    # What exists.

    def _new_cluster(self, run_id: str, zone: str, labels: dict[str, str]) -> None:
        def files() -> LustreFiles:
            found = next((one for one in self.instances if one.name == run_id), None)
            return found.files if found else LustreFiles()

        def new_head(session: str) -> Dashboard:
            head = Dashboard(
                self.agenda,
                files(),
                "",
                f"{session}_{run_id}_{self.deployments}",
                lambda attempt: self.scripts.get(attempt, Script()),
                lambda event: self.published(event),
            )
            head.submissions = self.submissions
            head.all_jobs = self.jobs
            return head

        kubernetes = FakeKubernetes(self.agenda, run_id, new_head)
        self.on_cluster(kubernetes)
        cluster = Cluster(run_id, zone, dict(labels), kubernetes)
        self.clusters.append(cluster)
        self.created("cluster", run_id, cluster.labels)
        alive = [one for one in self.clusters if one.name == run_id]
        self.most_alive = max(self.most_alive, len(alive))

        def run() -> None:
            if cluster.status == "PROVISIONING":
                cluster.status = "RUNNING"

        self.agenda.after(300, run)

    def _new_instance(self, run_id: str, zone: str, labels: dict[str, str]) -> None:
        instance = LustreInstance(run_id, zone, dict(labels))
        self.instances.append(instance)
        self.created("Lustre", run_id, instance.labels)

        def ready() -> None:
            if instance.state == "CREATING":
                instance.state = "ACTIVE"

        self.agenda.after(600, ready)

    def delete_cluster(self, name: str) -> None:
        """Begin to delete a cluster; nothing happens while it is being made."""
        for cluster in [one for one in self.clusters if one.name == name]:
            if cluster.status == "RUNNING":
                cluster.status = "STOPPING"
                self.agenda.after(
                    self.delete_seconds,
                    lambda gone=cluster: self._cluster_is_gone(gone),  # type: ignore[misc]
                )

    def _cluster_is_gone(self, cluster: Cluster) -> None:
        self.clusters.remove(cluster)
        if self.linger:
            left = Machine(f"{cluster.name}-left", cluster.location, "STOPPING", cluster.name, 0)
            self.remains.append(left)
            self.agenda.after(self.linger, lambda: self.remains.remove(left))

    def delete_instance(self, name: str) -> None:
        """Begin to delete an instance; nothing happens while it is being made."""
        for instance in [one for one in self.instances if one.name == name]:
            if instance.state == "ACTIVE":
                self.losing(instance)
                instance.state = "DELETING"
                self.agenda.after(
                    self.delete_seconds,
                    lambda gone=instance: self.instances.remove(gone),  # type: ignore[misc]
                )

    def left(self) -> list[str]:
        """Return everything that costs money now."""
        return [
            *(f"cluster {one.name}" for one in self.clusters),
            *(f"Lustre {one.name}" for one in self.instances),
            *(f"build {one.build_id}" for one in self.builds if one.is_live),
            *(f"VM {one.name}" for one in self.remains),
        ]

    def cluster(self, run_id: str) -> Cluster:
        """Return a run's cluster."""
        return next(one for one in self.clusters if one.name == run_id)

    def instance(self, run_id: str) -> LustreInstance:
        """Return a run's Lustre instance."""
        return next(one for one in self.instances if one.name == run_id)

    def kubernetes(self, run_id: str) -> FakeKubernetes:
        """Return a run's Kubernetes, as the test may treat it."""
        return self.cluster(run_id).kubernetes

    def call(self, service: str, method: str) -> None:
        """Note a call; a hook may let it fail."""
        self.calls.append((service, method))
        for hook in list(self.hooks):
            hook(service, method)


def denied(what: str) -> ServiceError:
    """Return a refusal for want of a role."""
    return ServiceError(Failure.ACCESS, f"{what}: PERMISSION_DENIED", status=403)


def unavailable(what: str) -> ServiceError:
    """Return an outage."""
    return ServiceError(
        Failure.INFRA_TRANSIENT, f"{what} answered 503", retryable=True, status=503
    )

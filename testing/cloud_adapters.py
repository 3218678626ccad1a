"""The adapters of the fake cloud: they inherit from the real ones and replace what speaks to
Google, so that the adapters' own rules (find, ensure, adopt) stay in play.
"""

from __future__ import annotations

from collections.abc import Callable

from lustrum.adapters.builds import Build, Builds
from lustrum.adapters.compute import Compute, Machine
from lustrum.adapters.gke import ClusterInfo, Gke
from lustrum.adapters.google import CloudList
from lustrum.adapters.lustre import Instance, Lustre, Transfer
from lustrum.adapters.project import Project
from lustrum.adapters.storage import Storage, StoredObject
from lustrum.core import names
from lustrum.core.errors import NotFound
from lustrum.doctor.expected_setup import lustre_agent
from lustrum.head.checkpoint_rule import LAYOUTS

from testing.cloud import Cloud, LustreInstance, Operation
from testing.files import MANIFEST, Folder


class FakeGke(Gke):
    """GKE over a `Cloud`."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def list(self) -> CloudList[ClusterInfo]:
        self._cloud.call("gke", "list")
        return CloudList(
            [
                ClusterInfo(
                    one.name,
                    one.location,
                    one.status,
                    f"{one.name}.gke.test",
                    dict(one.labels),
                    tuple(one.pools),
                )
                for one in self._cloud.clusters
            ],
            list(self._cloud.missing_zones),
        )

    def delete(self, cluster: ClusterInfo) -> None:
        self._cloud.call("gke", "delete")
        self._cloud.delete_cluster(cluster.name)

    def delete_pool(self, cluster: ClusterInfo, pool: str) -> None:
        self._cloud.call("gke", "delete_pool")
        found = self._cloud.cluster(cluster.name)
        if found.status != "RUNNING" or pool not in found.pools:
            return

        def gone() -> None:
            if pool in found.pools:
                found.pools.remove(pool)
            found.kubernetes.room = 0
            found.kubernetes.remove_nodes(len(found.kubernetes.nodes))

        self._cloud.agenda.after(60, gone)

    def relabel(self, cluster: ClusterInfo, expires: float) -> None:
        self._cloud.call("gke", "relabel")
        self._cloud.cluster(cluster.name).labels[names.LABEL_EXPIRES] = str(int(expires))


def _step(folder: str) -> int:
    """The step of a path that ends with a step's folder, of whatever layout; -1 of another."""
    name = folder.rsplit("/", 1)[-1]
    steps = (layout.step_of(name) for layout in LAYOUTS.values())
    return next((step for step in steps if step is not None), -1)


class FakeLustre(Lustre):
    """Managed Lustre over a `Cloud`."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def list(self) -> CloudList[Instance]:
        self._cloud.call("lustre", "list")
        return CloudList(
            [
                Instance(one.name, one.zone, one.state, dict(one.labels))
                for one in self._cloud.instances
            ],
            list(self._cloud.missing_zones),
        )

    def delete(self, zone: str, name: str) -> None:
        self._cloud.call("lustre", "delete")
        self._cloud.delete_instance(name)

    def relabel(self, zone: str, name: str, expires: float) -> None:
        self._cloud.call("lustre", "relabel")
        self._cloud.instance(name).labels[names.LABEL_EXPIRES] = str(int(expires))

    def export(self, zone: str, name: str, folder: str, uri: str) -> str:
        self._cloud.call("lustre", "export")
        instance = self._find(zone, name)
        how = self._cloud.exports.pop(0) if self._cloud.exports else "ok"
        step = _step(folder)
        whole = folder.endswith("/checkpoints")

        def finish() -> None:
            kept = instance.files.checkpoints
            sources = (
                {f"step_{number}/": found for number, found in kept.items()}
                if whole
                else {"": kept[step]}
                if step in kept
                else {}
            )
            if how not in ("ok", "partial"):
                operation.problem = how
            elif not sources:
                operation.problem = f"no such folder {folder}"
            for prefix, source in sources.items() if not operation.problem else ():
                paths = sorted(source.files)
                for path in paths[1:] if how == "partial" else paths:
                    content = source.files[path]
                    self._cloud.objects[uri + prefix + path] = (
                        content if isinstance(content, int) else content.encode()
                    )

        operation = self._begin(instance, finish)
        return operation.name

    def import_(self, zone: str, name: str, uri: str, folder: str) -> str:
        self._cloud.call("lustre", "import")
        instance = self._find(zone, name)
        target = folder.rsplit("/", 1)[-1]

        def finish() -> None:
            found = Folder()
            for key, content in self._cloud.objects.items():
                if key.startswith(uri):
                    path = key.removeprefix(uri)
                    found.files[path] = content if isinstance(content, int) else content.decode()
            if MANIFEST in found.files:
                found.tracked = _step(target)
            instance.files.imported[target] = found

        return self._begin(instance, finish).name

    def transfer(self, operation: str) -> Transfer:
        self._cloud.call("lustre", "transfer")
        found = self._cloud.operations.get(operation)
        if found is None:
            raise NotFound(f"there is no operation {operation}")
        return Transfer(operation, found.done, found.problem, bytes=found.bytes)

    def _find(self, zone: str, name: str) -> LustreInstance:
        for one in self._cloud.instances:
            if one.name == name and one.zone == zone and one.state == "ACTIVE":
                return one
        raise NotFound(f"there is no instance {name} in {zone}")

    def _begin(self, instance: LustreInstance, finish: Callable[[], None]) -> Operation:
        if instance.transfer is not None:  # one at a time: the adapter finds the running one
            return self._cloud.operations[instance.transfer]
        name = f"projects/p/locations/{instance.zone}/operations/{len(self._cloud.operations)}"
        operation = Operation(name, instance, finish)
        self._cloud.operations[name] = operation
        instance.transfer = name

        def done() -> None:
            instance.transfer = None
            operation.done = True
            operation.finish()

        self._cloud.agenda.after(self._cloud.export_seconds, done)
        return operation


class FakeBuilds(Builds):
    """Cloud Build over a `Cloud`."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def tagged(self, tag: str) -> list[Build]:
        self._cloud.call("builds", "list")
        return [one for one in self._cloud.builds if tag in one.tags]

    def get(self, build_id: str) -> Build:
        self._cloud.call("builds", "get")
        return self._cloud.build(build_id)

    def cancel(self, build_id: str) -> None:
        self._cloud.call("builds", "cancel")
        build = self._cloud.build(build_id)
        if build.is_live and build_id not in self._cloud.stubborn:
            self._cloud.agenda.after(
                10, lambda: self._cloud._end_build(build_id, "CANCELLED", {}, {})
            )


class FakeCompute(Compute):
    """Compute Engine over a `Cloud`."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def machines(self, cluster: str | None = None) -> CloudList[Machine]:
        self._cloud.call("compute", "machines")
        found = [*self._cloud.machines, *self._cloud.remains]
        for one in self._cloud.clusters:
            if one.status in ("RUNNING", "STOPPING"):
                found.append(Machine(f"{one.name}-system", one.location, "RUNNING", one.name, 0))
            for node in one.kubernetes.nodes:
                found.append(Machine(node, one.location, "RUNNING", one.name, 8))
        return CloudList(
            [one for one in found if cluster in (None, one.cluster)],
            list(self._cloud.missing_zones),
        )


class FakeProject(Project):
    """What a project says of itself: all is well, unless a test says otherwise."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.machines: set[str] = set()  # zones that offer any machine; none said: unknown
        self.lustre: set[str] = set()
        self.on_bucket = {("roles/storage.objectUser", lustre_agent("1"))}
        self.on_project: set[tuple[str, str]] = set()
        self.owner = "1"

    def number(self) -> str:
        return "1"

    def machine_zones(self, machine: str) -> set[str]:
        self._cloud.call("project", "machine_zones")
        return self.machines

    def lustre_zones(self) -> set[str]:
        self._cloud.call("project", "lustre_zones")
        return self.lustre

    def bucket_bindings(self, bucket: str) -> set[tuple[str, str]]:
        self._cloud.call("project", "bucket_bindings")
        return self.on_bucket

    def bucket_owner(self, bucket: str) -> str:
        return self.owner

    def project_bindings(self) -> set[tuple[str, str]]:
        self._cloud.call("project", "project_bindings")
        return self.on_project


class FakeStorage(Storage):
    """Cloud Storage over a `Cloud`."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def list(self, uri: str) -> list[StoredObject]:
        self._cloud.call("storage", "list")
        self._bucket(uri)
        return [
            StoredObject(key, content if isinstance(content, int) else len(content))
            for key, content in sorted(self._cloud.objects.items())
            if key.startswith(uri)
        ]

    def read(self, uri: str) -> bytes:
        self._cloud.call("storage", "read")
        content = self._cloud.objects.get(uri)
        if content is None:
            raise NotFound(f"storage answered 404: {uri}")
        return bytes(content) if isinstance(content, int) else content

    def write(self, uri: str, content: bytes, content_type: str) -> None:
        self._cloud.call("storage", "write")
        self._bucket(uri)
        self._cloud.objects[uri] = content

    def delete(self, uri: str) -> None:
        self._cloud.call("storage", "delete")
        self._cloud.objects.pop(uri, None)

    def _bucket(self, uri: str) -> None:
        bucket = uri.removeprefix("gs://").split("/")[0]
        if self._cloud.buckets is not None and bucket not in self._cloud.buckets:
            raise NotFound(f"storage answered 404: bucket {bucket} does not exist")

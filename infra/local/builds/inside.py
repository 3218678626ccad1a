"""What the blueprint installs inside the cluster: volume, claim, roles. Through the Kubernetes
API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from infra.local.builds.blueprint import module
from infra.local.builds.rest import Refused, call, raw

_PLURAL = {
    "PersistentVolume": "api/v1/persistentvolumes",
    "PersistentVolumeClaim": "api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}
# As the gke-persistent-volume module writes it: labels unquoted.
_VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata:
  name: {volume}
  labels:
{labels}
spec:
  storageClassName: ""
  capacity: {{storage: {capacity}Gi}}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  volumeMode: Filesystem
  claimRef: {{namespace: default, name: {claim}}}
  csi:
    driver: lustre.csi.storage.gke.io
    volumeHandle: "{project}/{zone}/{instance}/default-pool/default-container"
    volumeAttributes: {{ip: {ip}, filesystem: {filesystem}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {claim}
  namespace: default
  labels:
{labels}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: {volume}
  resources: {{requests: {{storage: {capacity}Gi}}}}
"""


def manifests(expanded: dict[str, Any], mount_point: str) -> list[dict[str, Any]]:
    """Return the objects; ``mount_point`` is the instance's, ``IP@tcp:/FILESYSTEM``."""
    known = expanded["vars"]
    volume = module(expanded, "modules/file-system/gke-persistent-volume")
    lustre = module(expanded, "modules/file-system/managed-lustre")
    labels = {**known["labels"], **volume.get("labels", {})}
    text = _VOLUME.format(
        volume=volume["pv_name"],
        claim=volume["pvc_name"],
        capacity=volume["capacity_gib"],
        labels="\n".join(f"    {key}: {value}" for key, value in labels.items()),
        project=known["project_id"],
        zone=known["zone"],
        instance=lustre["name"],
        ip=mount_point.split("@")[0],
        filesystem=lustre["remote_mount"],
    )
    for one in module(expanded, "modules/management/kubectl-apply")["apply_manifests"]:
        filled = str(one["source"]["staged"])
        for key, value in one.get("template_vars", {}).items():
            filled = filled.replace(f"${{{key}}}", str(value))
        text += "\n---\n" + filled
    return [dict(one) for one in yaml.safe_load_all(text) if one]


def paths(expanded: Mapping[str, Any]) -> dict[str, str]:
    """Return part -> REST path of the things that a blueprint describes."""
    known = expanded["vars"]
    project, name = known["project_id"], known["deployment_name"]
    cluster = f"/v1/projects/{project}/locations/{known['region']}/clusters/{name}"
    pool = module(dict(expanded), "modules/compute/gke-node-pool")["name"]
    instance = module(dict(expanded), "modules/file-system/managed-lustre")["name"]
    return {
        "cluster": cluster,
        "pool": f"{cluster}/nodePools/{pool}",
        "lustre": f"/v1/projects/{project}/locations/{known['zone']}/instances/{instance}",
    }


def apply_inside(expanded: dict[str, Any]) -> dict[str, Any]:
    """Create the objects in the run's cluster. Raises Refused."""
    where = paths(expanded)
    mount = str(call("lustre", "GET", where["lustre"])["mountPoint"])
    host = _host(where["cluster"])
    for manifest in manifests(expanded, mount):
        collection = _collection(manifest)
        raw("POST", f"{host}/{collection}", json.dumps(manifest).encode())
    return {}


def delete_inside(expanded: dict[str, Any]) -> dict[str, Any]:
    """Delete the objects again. Raises Refused, also when the cluster is gone."""
    host = _host(paths(expanded)["cluster"])
    for manifest in reversed(manifests(expanded, "0.0.0.0@tcp:/gone")):
        try:
            raw("DELETE", f"{host}/{_collection(manifest)}/{manifest['metadata']['name']}")
        except Refused as error:
            if error.status != 404:
                raise
    return {}


def _host(cluster: str) -> str:
    found = call("container_rest", "GET", cluster)
    endpoint = str(found["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"])
    return endpoint if "://" in endpoint else f"http://{endpoint}"


def _collection(manifest: dict[str, Any]) -> str:
    return _PLURAL[manifest["kind"]].format(namespace="default")

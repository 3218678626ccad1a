"""REST bodies of what the blueprint's modules create, from their settings."""

from __future__ import annotations

from typing import Any

from infra.local.builds.blueprint import module


def of(expanded: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the body of the create call of a part: cluster, pool or lustre."""
    return {"cluster": _cluster, "pool": _pool, "lustre": _lustre}[part](expanded)


def _labels(expanded: dict[str, Any], name: str, role: str) -> dict[str, str]:
    return {**expanded["vars"]["labels"], "ghpc_module": name, "ghpc_role": role}


def _cluster(expanded: dict[str, Any]) -> dict[str, Any]:
    known = expanded["vars"]
    its = module(expanded, "modules/scheduler/gke-cluster")
    network = module(expanded, "modules/network/pre-existing-vpc")
    labels = _labels(expanded, "gke-cluster", "scheduler")
    range_ = its["system_node_pool_node_count"]
    least, most = range_["total_min_nodes"], range_["total_max_nodes"]
    return {
        "cluster": {
            "name": known["deployment_name"],
            "resourceLabels": labels,
            "network": f"projects/{known['project_id']}/global/networks/{network['network_name']}",
            "subnetwork": network["subnetwork_name"],
            "locations": its["system_node_pool_zones"],
            "ipAllocationPolicy": {
                "useIpAliases": True,
                "clusterSecondaryRangeName": its["pods_ip_range_name"],
                "servicesSecondaryRangeName": its["services_ip_range_name"],
            },
            "privateClusterConfig": {
                "enablePrivateNodes": its["enable_private_nodes"],
                "enablePrivateEndpoint": its["enable_private_endpoint"],
                "masterIpv4CidrBlock": its["master_ipv4_cidr_block"],
            },
            "controlPlaneEndpointsConfig": {
                "dnsEndpointConfig": {"allowExternalTraffic": its["enable_external_dns_endpoint"]}
            },
            "masterAuthorizedNetworksConfig": {
                "enabled": True,
                "gcpPublicCidrsAccessEnabled": its["gcp_public_cidrs_access_enabled"],
            },
            "addonsConfig": {
                "rayOperatorConfig": {"enabled": its["enable_ray_operator"]},
                "lustreCsiDriverConfig": {"enabled": its["enable_managed_lustre_csi"]},
            },
            "releaseChannel": {"channel": its["release_channel"]},
            "workloadIdentityConfig": {"workloadPool": f"{known['project_id']}.svc.id.goog"},
            # The pool that every cluster begins with and Terraform removes: its account alone
            # counts here, the stand-in makes no node of it.
            "nodeConfig": {"serviceAccount": expanded["bootstrap_account"]},
            "nodePools": [
                {
                    "name": its["system_node_pool_name"],
                    "initialNodeCount": least,
                    "locations": its["system_node_pool_zones"],
                    "autoscaling": _autoscaling(least, most),
                    "config": {
                        "machineType": its["system_node_pool_machine_type"],
                        "diskSizeGb": its["system_node_pool_disk_size_gb"],
                        "diskType": its["system_node_pool_disk_type"],
                        "serviceAccount": its["service_account_email"],
                        "resourceLabels": labels,
                    },
                }
            ],
        }
    }


def _pool(expanded: dict[str, Any]) -> dict[str, Any]:
    its = module(expanded, "modules/compute/gke-node-pool")
    affinity = its["reservation_affinity"]
    config = {
        "machineType": its["machine_type"],
        "diskSizeGb": its["disk_size_gb"],
        "spot": its["spot"],
        "serviceAccount": its["service_account_email"],
        "resourceLabels": _labels(expanded, "gke-node-pool", "compute"),
        "accelerators": [
            {"acceleratorType": one["type"], "acceleratorCount": str(one["count"])}
            for one in its["guest_accelerator"]
        ],
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
        "reservationAffinity": {
            "consumeReservationType": affinity["consume_reservation_type"],
            "values": [one["name"] for one in affinity["specific_reservations"]],
        },
    }
    return {
        "nodePool": {
            "name": its["name"],
            "initialNodeCount": 0,
            "locations": its["zones"],
            "autoscaling": _autoscaling(
                its["autoscaling_total_min_nodes"], its["autoscaling_total_max_nodes"]
            ),
            "config": config,
        }
    }


def _lustre(expanded: dict[str, Any]) -> dict[str, Any]:
    its = module(expanded, "modules/file-system/managed-lustre")
    known = expanded["vars"]
    return {
        "filesystem": its["remote_mount"],
        "capacityGib": str(its["size_gib"]),
        "perUnitStorageThroughput": str(its["per_unit_storage_throughput"]),
        "network": f"projects/{known['project_id']}/global/networks/{known['network']}",
        "description": its["description"],
        "labels": _labels(expanded, "managed-lustre", "file-system"),
    }


def _autoscaling(least: int, most: int) -> dict[str, Any]:
    return {
        "enabled": True,
        "totalMinNodeCount": least,
        "totalMaxNodeCount": most,
        "locationPolicy": "ANY",
    }

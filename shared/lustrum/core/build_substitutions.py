"""What a build is told: the substitutions of cloudbuild.yaml. Pure."""

from __future__ import annotations

from lustrum.core import names
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Run
from lustrum.core.run_plan import RunPlan
from lustrum.core.settings import Settings, Slot
from lustrum.core.transport import RDMA, TCP


def substitutions(run: Run, settings: Settings, action: str) -> dict[str, str]:
    """Return the substitutions of a deploy or destroy build of the run's present zone attempt.

    Raises:
        ServiceError: CONFIG, the run has no zone, or its slot is no longer configured.
    """
    placement = run.placement
    if placement is None:
        raise ServiceError(Failure.CONFIG, f"{run.run_id} has no zone yet")
    slot = next((slot for slot in settings.slots if slot.name == placement.slot), None)
    if slot is None:
        raise ServiceError(
            Failure.CONFIG, f"slot {placement.slot} is not in LUSTRUM_SLOTS any more"
        )
    # A zone attempt is destroyed by what deployed it: an upgrade in between must not hand the
    # saved folder to other scripts, nor these the digest of another toolkit.
    kept = bool(placement.scripts)
    scripts = placement.scripts if kept else settings.scripts
    digest = placement.gcluster_sha256 if kept else settings.gcluster_sha256
    return {
        "_ACTION": action,
        "_ZONE_ATTEMPT": str(placement.zone_attempt),
        "_PROJECT": settings.project,
        "_STATE_BUCKET": settings.state_bucket,
        "_NODE_ACCOUNT": settings.node_account,
        "_SCRIPTS": scripts,
        **({"_GCLUSTER_SHA256": digest} if digest else {}),  # else the trigger's own
        "_EXPIRES": str(int(run.hard_deadline_at)),
        **blueprint_variables(run.plan, placement.zone),
        **slot_variables(slot),
        "_RDMA_NETWORK": placement.rdma_network,
    }


def blueprint_variables(plan: RunPlan, zone: str) -> dict[str, str]:
    """Return what the plan says of the infrastructure in a zone."""
    reservation = "" if plan.capacity == "spot" else plan.capacity
    return {
        "_RUN_ID": plan.run_id,
        "_ZONE": zone,
        "_NODES": str(plan.nodes),
        "_CAPACITY": "reservation" if reservation else "spot",
        "_RESERVATION": reservation,
        "_LUSTRE_CAPACITY_GIB": str(plan.lustre_capacity_gib),
        "_LUSTRE_THROUGHPUT": str(plan.lustre_throughput),
    }


def slot_variables(slot: Slot) -> dict[str, str]:
    """Return what the leased network slot says."""
    return {
        "_NETWORK": slot.network,
        "_SUBNETWORK": slot.subnetwork,
        "_PODS_RANGE": slot.pods_range,
        "_SERVICES_RANGE": slot.services_range,
        "_CONTROL_PLANE_CIDR": slot.control_plane_cidr,
    }


def rdma_network(plan: RunPlan, zone: str, settings: Settings) -> str:
    """Return the RDMA network of a run's GPU nodes in a zone; empty: they talk over TCP."""
    return "" if plan.network == TCP else settings.rdma.get(zone, "")


def next_zone(run: Run, settings: Settings) -> str | None:
    """Return the next zone to try: not tried, fit, its region not closed, and with the networks
    the run needs; None if none is left.
    """
    regions = {slot.region for slot in settings.slots}
    return next(
        (
            zone
            for zone in run.plan.zones
            if zone not in run.zones_tried
            and zone not in (run.unfit or {})
            and names.region_of(zone) in regions
            and names.region_of(zone) not in run.regions_closed
            and (run.plan.network != RDMA or zone in settings.rdma)
        ),
        None,
    )

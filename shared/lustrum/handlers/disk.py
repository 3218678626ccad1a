"""Ask the file system itself what is on it, through a listing job on the Ray head."""

from __future__ import annotations

from lustrum.core import names, supervisor_jobs
from lustrum.core.checkpoints import Listing
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Run
from lustrum.wiring.services import Services

LISTINGS = 3  # tries, when a listing job fails


def list_disk(services: Services, run: Run, name: str) -> Listing | None:
    """Return what a listing saw; None when several of them failed.

    Args:
        services: the services.
        run: whose folder.
        name: of this look; the same name is the same listing, however often it is asked for.

    Raises:
        NotFound: no cluster, no head.
        ServiceError: retryable while the listing still runs.
    """
    ray = services.ray(services.kubernetes(run.run_id), run.run_id)
    for number in range(1, LISTINGS + 1):
        identity = names.list_id(run.run_id, f"{name}-{number}")
        spec = supervisor_jobs.list_spec(run)
        job = ray.submit(identity, *supervisor_jobs.submission(run, "list", spec))
        if not job.is_over:
            raise ServiceError(
                Failure.INFRA_TRANSIENT, f"listing {identity} is {job.status}", retryable=True
            )
        listed = supervisor_jobs.read_listing(ray.logs(identity), run.run_id)
        if listed is not None:
            return listed
    return None

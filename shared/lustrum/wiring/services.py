"""The services a step works with, each made when first asked for: a cold start loads only what
it needs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from lustrum.core import names
from lustrum.core.settings import Settings
from lustrum.wiring.settings import settings

if TYPE_CHECKING:
    from lustrum.adapters.builds import Builds
    from lustrum.adapters.compute import Compute
    from lustrum.adapters.gke import Gke
    from lustrum.adapters.google import Rest, Tokens
    from lustrum.adapters.kubernetes import Kubernetes
    from lustrum.adapters.ledger import Ledger
    from lustrum.adapters.lustre import Lustre
    from lustrum.adapters.monitoring import Monitoring
    from lustrum.adapters.project import Project
    from lustrum.adapters.pubsub import Publisher
    from lustrum.adapters.ray_jobs import RayJobs
    from lustrum.adapters.storage import Storage
    from lustrum.adapters.workflows import Workflows


@dataclass
class Pages:
    """What this process wrote of the pages, run -> (state, epoch seconds), and told of runs."""

    written: dict[str, tuple[str, float]] = field(default_factory=dict)
    index_at: float = 0.0
    rests_until: float = 0.0
    told: set[str] = field(default_factory=set)
    silent_until: float = 0.0


class Services:
    """Lazily made adapters. Tests and the simulation hand in their own by assigning to an
    attribute.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pages = Pages()

    def now(self) -> float:
        """Return the time, epoch seconds."""
        return time.time()

    @cached_property
    def tokens(self) -> Tokens:
        """Access tokens of this account."""
        from lustrum.adapters.google import Tokens

        return Tokens(self.settings)

    @cached_property
    def rest(self) -> Rest:
        """Google's REST APIs."""
        from lustrum.adapters.google import Rest

        return Rest(self.settings, self.tokens)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger."""
        from google.cloud import firestore

        from lustrum.adapters.ledger import FirestoreLedger

        return FirestoreLedger(
            firestore.Client(project=self.settings.project, database=self.settings.database)
        )

    @cached_property
    def publisher(self) -> Publisher:
        """Notifications and dead letters."""
        from lustrum.adapters.pubsub import Publisher

        return Publisher(self.settings)

    @cached_property
    def workflows(self) -> Workflows:
        """Workflow executions."""
        from lustrum.adapters.workflows import Workflows

        return Workflows(self.settings, self.rest)

    @cached_property
    def builds(self) -> Builds:
        """Cloud Build."""
        from lustrum.adapters.builds import Builds

        return Builds(self.rest, self.settings)

    @cached_property
    def gke(self) -> Gke:
        """GKE."""
        from lustrum.adapters.gke import Gke

        return Gke(self.settings, self.tokens)

    @cached_property
    def lustre(self) -> Lustre:
        """Managed Lustre."""
        from lustrum.adapters.lustre import Lustre

        return Lustre(self.rest, self.settings)

    @cached_property
    def compute(self) -> Compute:
        """Compute Engine."""
        from lustrum.adapters.compute import Compute

        return Compute(self.rest, self.settings)

    @cached_property
    def storage(self) -> Storage:
        """Cloud Storage."""
        from lustrum.adapters.storage import Storage

        return Storage(self.rest)

    @cached_property
    def monitoring(self) -> Monitoring:
        """Monitoring."""
        from lustrum.adapters.monitoring import Monitoring

        return Monitoring(self.settings)

    @cached_property
    def project(self) -> Project:
        """What the project says of itself."""
        from lustrum.adapters.project import Project, asker

        return Project(self.settings.project, asker(self.rest))

    def kubernetes(self, run_id: str) -> Kubernetes:
        """Return the Kubernetes API of a run's cluster. Raises NotFound when there is no
        cluster.
        """
        from lustrum.adapters.kubernetes import Kubernetes

        endpoint = "" if self.settings.kubeconfig else self.gke.find(run_id).endpoint
        return Kubernetes.connect(self.settings, self.tokens, endpoint)

    def ray(self, kubernetes: Kubernetes, run_id: str) -> RayJobs:
        """Return the dashboard of a run's Ray head, through the service proxy."""
        from lustrum.adapters.ray_jobs import RayJobs, RayReply

        service = names.head_service(run_id)

        def send(method: str, path: str, body: bytes | None = None) -> RayReply:
            proxied = kubernetes.proxy(service, names.DASHBOARD_PORT, path)
            return kubernetes.request(method, proxied, body=body)

        return RayJobs(send)


@cache
def services() -> Services:
    """Return the services of this process."""
    return Services(settings())

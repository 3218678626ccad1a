"""What one run will be: every number of it decided, and kept with its record. Pure."""

from __future__ import annotations

from pydantic import BaseModel, JsonValue

from lustrum.core import names
from lustrum.core.cost import Extras, prices
from lustrum.core.profiles import Resources, Timing
from lustrum.core.trainer import TrainerRequest, layout_of
from lustrum.core.training_command import DATASET
from lustrum.head.checkpoint_rule import Layout

# The tiers of Managed Lustre: MB/s per TiB -> (smallest GiB, step GiB, largest GiB).
# Source: Managed Lustre, "performance tiers"; the API's own text is older and wrong.
LUSTRE_TIERS = {
    1000: (9_000, 9_000, 1_530_000),
    500: (18_000, 18_000, 3_060_000),
    250: (36_000, 36_000, 6_120_000),
    125: (72_000, 72_000, 12_240_000),
}


class RunPlan(BaseModel):
    """Everything a run will do, decided before the first create. Hours, GiB, US dollars as
    named.
    """

    run_id: str
    name: str
    profile: str
    image: str
    ray_version: str
    script: str
    config: str | None = None  # null: the image's own training
    algorithm: str = "grpo"
    recipe_settings: dict[str, JsonValue] = {}  # of the recipe: what a rule looks at
    settings: dict[str, JsonValue] | None = None  # null: the original recipe's
    dataset: str | None = DATASET
    parallel: str = ""  # how the policy is cut, for people
    model_gib: float | None = None  # on Lustre, the Megatron conversion among it
    fetched_gib: float | None = None  # of it, what comes from the hub
    checkpoint_gib: float | None = None
    model: str
    fetch_model: bool
    nodes: int
    gpus_per_node: int
    machine: str
    accelerator: str
    zones: list[str]
    capacity: str
    network: str = "tcp"  # between GPU nodes: rdma, tcp, or auto (RDMA where the zone has it)
    gib: str = ""  # version of the NCCL plugin for RDMA
    head: Resources
    worker: Resources
    lustre_capacity_gib: int
    lustre_throughput: int
    max_num_steps: int
    save_period: int
    keep: int
    at_deadline: str = "destroy_anyway"
    extend_hours: float = 0.0
    extend_cost: float = 0.0
    overrides: dict[str, JsonValue]
    environment: dict[str, str]
    code: str | None
    trainer: TrainerRequest | None = None  # instead of the recipe
    export_to: str
    export_required: bool
    resume_from: str | None
    hours: float
    hard_hours: float
    attempts: int
    capacity_wait_minutes: float
    gpus_idle_minutes: float | None = None  # None: idle GPUs are told and the run goes on
    cost_limit: float
    worst_cost: float
    hourly_cost: float
    prices_dated: str
    extras: Extras | None = None  # null: a record from before they were counted
    timing: Timing

    @property
    def gpus(self) -> int:
        """Accelerators of the whole run."""
        return self.nodes * self.gpus_per_node

    @property
    def downloaded_gib(self) -> float:
        """What staging fetches from the hub, GiB; all of the model for a plan of older code."""
        if not self.fetch_model:
            return 0.0
        return (self.model_gib if self.fetched_gib is None else self.fetched_gib) or 0.0

    @property
    def export_bucket(self) -> str:
        """The bucket of ``export_to``."""
        return self.export_to.removeprefix("gs://").split("/", 1)[0]

    @property
    def checkpoint_dir(self) -> str:
        """Where the training writes ``step_N``: it holds the run id, so no other run's is
        resumed.
        """
        return names.run_folder(self.run_id) + "/checkpoints"

    @property
    def layout(self) -> Layout:
        """How its trainer leaves its checkpoints."""
        return layout_of(self.trainer)

    @property
    def log_dir(self) -> str:
        """Where the training writes its logs: on Lustre, or they would die with the head pod."""
        return names.run_folder(self.run_id) + "/logs"

    def rates(self) -> dict[str, tuple[float, float]]:
        """Return resource -> (pieces, dollars per hour each) while all of the run is up."""
        table = prices()
        if self.machine == "local":  # a folder and a few processes: nobody is billed
            return dict.fromkeys(("accelerators", "lustre", "system"), (1.0, 0.0))
        return {
            "accelerators": (self.nodes, table.node(self.machine, self.capacity)),
            "lustre": (1, table.lustre(self.lustre_capacity_gib, self.lustre_throughput)),
            "system": (1, table.node(self.head.machine, "on-demand") + table.cluster_hour),
        }

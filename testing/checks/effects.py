"""Every call that changes the cloud: in what order, by whom, with which labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lustrum.core.failures import Failure
from lustrum.core.record import Run

from testing.checks.trial import Trial
from testing.cloud import LustreInstance
from testing.ray_job import Job
from testing.seam import Effect

RACE = 8.0  # seconds between an answer and what a workflow does about it
PATIENCE = 1800.0  # seconds after the hard deadline before the reaper deletes by itself


class Effects:
    """Judges what is done."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.expires: dict[str, str] = {}  # run -> what its last deploy build was told
        self.submitted: list[Job] = []
        self._see: dict[tuple[str, str], Callable[[Effect], None]] = {
            ("lustre", "export"): self._export,
            ("gke", "delete"): self._delete,
            ("gke", "delete_pool"): self._delete,
            ("lustre", "delete"): self._delete,
            ("gke", "relabel"): self._relabel,
            ("lustre", "relabel"): self._relabel,
            ("kubernetes", "apply"): self._apply,
            ("kubernetes", "request"): self._request,
            ("workflows", "create"): self._create,
        }

    def see(self, effect: Effect) -> None:
        """Judge one call."""
        judge = self._see.get((effect.service, effect.method))
        if judge is not None:
            judge(effect)

    def triggered(self, subs: Mapping[str, str]) -> None:
        """A build is about to be started."""
        trial, run = self.trial, self.trial.record()
        if run is None:
            return
        action, expires = subs["_ACTION"], subs["_EXPIRES"]
        trial.expect(
            "label: a build is told the expiry",
            expires == str(int(run.hard_deadline_at)) or self._extended_lately(run),
            expires,
        )
        if action == "deploy":
            self.expires[subs["_RUN_ID"]] = expires
            trial.expect("who: a build for a run that ends", self._may_create(run), run.state)
            tag = f"{run.run_id}-deploy-z{subs['_ZONE_ATTEMPT']}"
            live = [one for one in trial.life.cloud.builds if tag in one.tags and one.is_live]
            trial.expect(
                "doubled: a deploy build",
                not live or trial.went_wrong(frozenset({"stale", "hide"})) > 0,
                live,
            )
        else:
            trial.expect("who: a destroy build without a teardown", run.teardown is not None)

    def created(self, kind: str, name: str, labels: Mapping[str, str]) -> None:
        """A resource was made: the three labels are on it."""
        told = self.expires.get(name)
        wanted = {"lustrum-run": name, "managed-by": "lustrum", "lustrum-expires": told}
        self.trial.expect(f"label: on a {kind}", dict(labels) == wanted, dict(labels))

    def losing(self, instance: LustreInstance) -> None:
        """A file system is about to be deleted: is its newest checkpoint safe?"""
        trial, run = self.trial, self.trial.record()
        newest = instance.files.newest
        if newest == 0 or instance.name != trial.run_id:
            return
        if run is not None:
            if trial.now >= run.hard_deadline_at:
                return
            if run.cancel is not None and not run.cancel.export:
                return
            if not run.plan.export_required and run.export is not None and run.export.tries >= 5:
                return
        trial.expect(
            "order: exported before it is destroyed",
            trial.is_whole(instance, newest),
            f"step {newest} was not in the bucket",
        )

    def _may_create(self, run: Run) -> bool:
        """Say whether the run did not end before who acts now began to."""
        who, now = self.trial.seam.who, self.trial.now
        began = min(who.at or now, now) - RACE + self.trial.schedule.world.skew
        if run.is_over or began > run.deadline_at + 61:
            return False
        if run.teardown is not None and began > run.teardown.claimed_at:
            return False
        return run.cancel is None or began <= run.cancel.at

    def _extended_lately(self, run: Run) -> bool:
        """Say whether the run was given hours since this deploy was placed."""
        return bool(run.extended_by)

    def _export(self, effect: Effect) -> None:
        trial, run = self.trial, self.trial.record()
        if effect.who.function != "export_checkpoints" or run is None:
            return
        began = next((one.at for one in run.history if one.state == "RELEASING"), trial.now)
        if not (trial.is_smooth and trial.now - began < 2600):
            return
        clusters = [one for one in trial.life.cloud.clusters if one.name == run.run_id]
        pools = [one for one in clusters if "a4" in one.pools or one.kubernetes.nodes]
        trial.expect("order: accelerators go before the export", not pools)
        heads = [one.kubernetes.head for one in clusters if one.kubernetes.head is not None]
        running = [
            job.identity
            for head in heads
            for job in head.jobs.values()
            if job.mode == "train" and job.status == "RUNNING" and not head.down
        ]
        trial.expect("order: the job is stopped before the export", not running, running)

    def _delete(self, effect: Effect) -> None:
        trial, run = self.trial, self.trial.record()
        thing = effect.args[0]
        name = effect.args[1] if effect.service == "lustre" else thing.name
        strange = {one.name for one in trial.schedule.world.strangers}
        trial.expect("who: a stranger's is touched", name not in strange, name)
        if name != trial.run_id or run is None or effect.who.function != "reap_runs":
            return
        due = run.is_over or trial.now >= run.hard_deadline_at + PATIENCE - 61
        away = trial.went_wrong(frozenset({"away"})) and trial.now >= run.hard_deadline_at - 61
        trial.expect("who: the reaper deletes in time", due or bool(away), run.state)

    def _relabel(self, effect: Effect) -> None:
        trial, run = self.trial, self.trial.record()
        if run is None or effect.args[-1] != run.hard_deadline_at:
            return
        if effect.who.function == "reap_runs":
            created = any(
                trial.now - one.at < 7200 for one in run.history if one.state == "PROVISIONING"
            )
            trial.expect(
                "who: the reaper labels",
                not trial.is_smooth
                or (bool(run.extended_by) and created)
                or run.extended_at_deadline,  # the export cannot relabel: the reaper does
                run.state,
            )

    def _apply(self, effect: Effect) -> None:
        trial, run = self.trial, self.trial.record()
        manifest = effect.args[0]
        if run is None:
            return
        labels = manifest["metadata"].get("labels") or {}
        mine = labels.get("lustrum-run") == run.run_id and labels.get("managed-by") == "lustrum"
        kind = manifest["kind"]
        trial.expect(f"label: on a {kind}", mine, labels)
        trial.expect(
            f"label: the expiry of a {kind}",
            labels.get("lustrum-expires") == str(int(run.hard_deadline_at)),
            labels,
        )
        if kind != "RayCluster":
            return
        workers = manifest["spec"]["workerGroupSpecs"][0]["replicas"]
        if workers:
            trial.expect("order: accelerators after the staging", self._is_staged(run), run.state)
            trial.expect("who: accelerators for a run that ends", self._may_create(run))
            trial.expect("money: as many nodes as planned", workers <= run.plan.nodes, workers)
        elif effect.who.function == "apply_ray_cluster":
            trial.expect("who: a head for a run that ends", self._may_create(run))

    def _is_staged(self, run: Run) -> bool:
        since = run.placement.since if run.placement else 0.0
        return any(
            job.mode == "stage"
            and job.status == "SUCCEEDED"
            and job.began >= since
            and not job.spec.get("folders")
            for job in self.trial.life.cloud.jobs
        ) and str(run.state) in ("WAITING_FOR_GPUS", "TRAINING", "RECOVERING")

    def _request(self, effect: Effect) -> None:
        trial = self.trial
        if effect.args[0] != "POST":
            return
        new = [job for job in trial.life.cloud.jobs if job not in self.submitted]
        for job in new:
            self.submitted.append(job)
            if job.mode == "train":
                self._training(job)

    def _training(self, job: Job) -> None:
        trial, run = self.trial, self.trial.record()
        if run is None:
            return
        trial.expect("who: a training for a run that ends", self._may_create(run), run.state)
        before = [one for one in self.submitted if one.mode == "train" and one is not job]
        running = [one.identity for one in before if one.status == "RUNNING" and not one.cause]
        trial.expect("doubled: a training beside another", not running, running)
        trial.expect(
            "limit: attempts",
            job.spec["attempt"] - run.times(Failure.TIME_LIMIT) <= run.plan.attempts,
            job.identity,
        )
        trial.expect("who: the attempt of the record", job.spec["attempt"] == run.attempt)
        files = [one.files for one in trial.life.cloud.instances if one.name == run.run_id]
        if not files:
            return
        newest = max(one.newest for one in files)
        safe = run.safe_export.step if run.safe_export else 0
        trial.expect("resume: from what is safe", newest >= safe, f"{newest} < {safe}")
        last = before[-2:]
        if len(last) == 2 and all(one.cause == "program" for one in last):
            began = min(one.spec.get("began", 0) for one in last)
            trial.expect("limit: a crash loop", newest > began, f"still at step {newest}")
        job.spec["began"] = newest

    def _create(self, effect: Effect) -> None:
        trial = self.trial
        workflow, run_id, argument = effect.args
        trial.expect(
            "secret: a workflow's argument", set(argument) <= {"run_id", "final"}, sorted(argument)
        )
        blind = trial.went_wrong(frozenset({"stale", "hide", "second teardown"}))
        live = [
            one.name
            for one in trial.life.executions
            if one.deployment.id == workflow
            and one.labels.get("lustrum-run") == run_id
            and one.state in ("ACTIVE", "QUEUED")
        ]
        trial.expect(f"doubled: {workflow}", len(live) <= 1 or blind > 0, live)
        if effect.who.function == "reap_runs":
            run = trial.record()
            due = run is not None and trial.is_due(run)
            trial.expect(f"who: the reaper starts {workflow}", due or not trial.is_smooth)

"""Job finished -> teardown begins: Lustrum beside a KubeRay RayJob, on one real control plane.

Both train the same small GRPO on the same real Ray head, behind the same real API server and
KubeRay operator, one after the other, 20 times each. "Finished" is the time that the training
command writes as its last act. "Teardown begins" is when the first deletion is seen by a watch of
RayClusters: the RayCluster's deletion (RayJob, HTTPMode, shutdownAfterJobFinishes, ttl 0), or its
workers set to none (Lustrum). Lustrum's figures hold the supervisor, its event, `react_to_event`,
`check_ray_job`, the claim, `stop_ray_job` and `release_accelerators`; not the delivery by Pub/Sub
and the steps of Workflows, which only Google Cloud has. The RayJob's hold all of its path.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from bench import Unavailable

REPETITIONS = 20
KUBERAY = "v1.6"
TIMEOUT_S = 1800
ROOT = Path(__file__).resolve().parents[1]
STEPS = 4
RAYJOB_POLL_S = 3.0  # KubeRay's RayJobDefaultRequeueDuration


def run() -> dict[str, float | str]:
    """Return medians and worst cases in seconds, and the ratio of the medians.

    Runs as a process of its own: it moves into a network namespace and must not take the other
    benchmarks along.

    Raises:
        Unavailable: the programs are not built, or this process may not make a namespace.
    """
    from testing.cluster.tools.build import TOOLS, is_ready

    if not all(is_ready(tool) for tool in TOOLS.values()):
        raise Unavailable("run `python -m testing.cluster.tools.build` first (minutes, once)")
    done = subprocess.run(
        [sys.executable, "-m", "bench.cluster"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        if "NoNamespaceError" in last:
            raise Unavailable(last)
        raise RuntimeError(last)
    figures: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return figures


class Watch:
    """Watches RayClusters: when was each first seen to lose something?"""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._seen: dict[str, float] = {}
        self._workers: dict[str, int] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def when(self, name: str, seconds: float = 60.0) -> float:
        """Wait for the beginning of a cluster's end; epoch seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._seen, seconds):
                raise RuntimeError(f"no teardown of {name} in {seconds:.0f} s")
            return self._seen[name]

    def _lines(self, answer: Any) -> Iterator[str]:
        with suppress(httpx.HTTPError):  # the API server is stopped at the end
            yield from answer.iter_lines()

    def _read(self) -> None:
        query = {"watch": "1"}
        path = self._api.path("RayCluster")
        with self._api.http.stream("GET", path, params=query, timeout=None) as answer:
            for line in self._lines(answer):
                now = time.time()
                event = json.loads(line)
                cluster = event["object"]
                name = cluster["metadata"]["name"]
                workers = sum(g["replicas"] for g in cluster["spec"].get("workerGroupSpecs", []))
                # Without finalizers an object is gone at once, unmarked.
                gone = event["type"] == "DELETED" or "deletionTimestamp" in cluster["metadata"]
                with self._changed:
                    if gone or workers < self._workers.get(name, 0):
                        self._seen.setdefault(name, now)
                        self._changed.notify_all()
                    self._workers[name] = workers


class Bench:
    """One control plane with one real Ray head, which answers for the heads of all clusters."""

    def __init__(self, plane: Any, nodes: Any, pubsub: Any, folder: Path) -> None:
        self.plane, self.nodes, self.pubsub, self.lustre = plane, nodes, pubsub, folder
        self.api = plane.api()
        self.watch = Watch(plane.api())
        self._number = itertools.count(1)

    def begin(self) -> None:
        """Start the real head and its workers, which every training finds."""
        functions = self._functions()
        self.nodes.behaviour.real = lambda pod: True
        self._up(functions, 0)
        self._up(functions, functions.plan.nodes)
        status = self.api.get("RayCluster", functions.run_id)["status"]
        address = status["head"]["podIP"]
        self.nodes.behaviour.real = lambda pod: False
        self.nodes.behaviour.answered_by = lambda pod: (
            address if pod["metadata"]["labels"]["ray.io/node-type"] == "head" else None
        )

    def lustrum(self, pause: float) -> dict[str, float]:
        """One training by Lustrum's functions; seconds from its end."""
        from lustrum.core import supervisor_jobs
        from lustrum.core.events import JobEvent
        from lustrum.core.record import State
        from lustrum.core.record_parts import Job
        from lustrum.core.training_command import entrypoint, supervisor_spec
        from lustrum.handlers import reactions, teardown, training

        from testing.cluster.functions import EXECUTION, TEARDOWN

        functions = self._functions()
        run_id = functions.run_id
        self._up(functions, functions.plan.nodes)
        functions.advance(State.TRAINING)
        command, end = self._training(run_id, pause)
        identity = f"{run_id}-a1"
        submit = functions.services("submit-ray-job")
        functions.ledger.change(run_id, lambda one: _submitted(one, Job, identity))
        spec = supervisor_spec(
            run_id,
            1,
            command=command,
            max_steps=STEPS,
            project="example",
            topic="lustrum-events",
            token=False,
            pubsub_endpoint=self.pubsub.url,
            metadata_wait_seconds=0.0,
        )
        react, check = (functions.services(one) for one in ("react-to-event", "check-ray-job"))
        rung, looks = threading.Event(), [0]

        def deliver(event: dict[str, Any]) -> None:
            answer = reactions.react(react, JobEvent.model_validate(event))
            if event["type"] == "job.completed" and answer["rung"]:
                rung.set()

        self.pubsub.listener = deliver
        submit.ray(submit.kubernetes(run_id), run_id).submit(
            identity,
            entrypoint("train", spec),
            supervisor_jobs.job_environment(functions.plan),
            {"run_id": run_id, "attempt": "1"},
        )
        if not rung.wait(120):
            raise RuntimeError(f"{run_id}: no job.completed")
        while True:  # as rl_run does: look, and wait as long as the answer says
            looks[0] += 1
            answer = training.check_ray_job(check, run_id, EXECUTION)
            if answer["next"] != "wait":
                break
            time.sleep(answer["wait"])
        functions.claim_teardown()
        claimed = time.time()
        teardown.stop_ray_job(functions.services("stop-ray-job"), run_id, TEARDOWN)
        teardown.release_accelerators(functions.services("release-accelerators"), run_id, TEARDOWN)
        began = self.watch.when(run_id)
        ended = float(end.read_text())
        self._away("RayCluster", run_id)
        return {"claimed": claimed - ended, "began": began - ended, "looks": looks[0]}

    def ray_job(self, pause: float) -> float:
        """One training by a RayJob; seconds from its end until its RayCluster is deleted."""
        functions = self._functions()
        name = functions.run_id
        self._prepare(functions)
        command, end = self._training(name, pause)
        spec = self._ray_cluster(functions, functions.plan.nodes)["spec"]
        self.api.create(
            "RayJob",
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayJob",
                "metadata": {"name": name},
                "spec": {
                    "entrypoint": f"/bin/bash -c '{command[-1]}'",
                    "submissionMode": "HTTPMode",
                    "shutdownAfterJobFinishes": True,
                    "ttlSecondsAfterFinished": 0,
                    "rayClusterSpec": spec,
                },
            },
        )
        deadline = time.monotonic() + 120
        while not end.exists() or not end.read_text():
            if time.monotonic() > deadline:
                raise RuntimeError(f"RayJob {name}: {self.api.get('RayJob', name)['status']}")
            time.sleep(0.2)
        cluster = self.api.get("RayJob", name)["status"]["rayClusterName"]
        try:
            began = self.watch.when(cluster)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {self.api.get('RayJob', name)['status']}") from None
        self._away("RayJob", name)
        return began - float(end.read_text())

    def _functions(self) -> Any:
        from testing.cluster.functions import Functions, install_roles
        from testing.cluster.plans import fresh_plan

        plan = fresh_plan(
            profile="tiny-grpo",
            nodes=2,
            overrides={"grpo.max_num_steps": STEPS},
            checkpoints={"save_period": 2, "keep": 2},
        )
        install_roles(self.api, plan.run_id)
        return Functions(self.plane, self.nodes, plan)

    def _training(self, name: str, pause: float) -> tuple[list[str], Path]:
        """The command, and the file in which it leaves the time of its end.

        It begins with a pause (seconds), so that ends fall anywhere between two polls.
        """
        folder = self.lustre / "bench"
        folder.mkdir(exist_ok=True)
        train = (
            f"sleep {pause:.2f} && python3 examples/grpo_numpy/train.py local.ray=false"
            f" grpo.max_num_steps={STEPS}"
            f" checkpointing.save_period=2 checkpointing.keep_top_k=2"
            f" checkpointing.checkpoint_dir=/lustre/runs/{name}/checkpoints"
            f" logger.log_dir=/lustre/runs/{name}/logs"
        )
        return (
            ["/bin/bash", "-c", f"{train} && date +%s.%N > /lustre/bench/{name}"],
            folder / name,
        )

    def _ray_cluster(self, functions: Any, workers: int) -> dict[str, Any]:
        from lustrum.core import kubernetes_objects

        found: dict[str, Any] = kubernetes_objects.ray_cluster(functions.plan, 2e9, workers)
        return found

    def _prepare(self, functions: Any) -> None:
        from testing.cluster.plans import companions

        for one in companions(functions.plan):
            self.api.apply(one)

    def _up(self, functions: Any, workers: int) -> None:
        """Bring a RayCluster up by its function, Ray's own count of nodes included."""
        from lustrum.core.readiness import cluster_is_ready
        from lustrum.core.record import State
        from lustrum.handlers.ray_cluster import apply_ray_cluster

        from testing.cluster.functions import EXECUTION

        if workers and functions.run.state is State.STARTING_HEAD:
            functions.advance(State.STAGING, State.WAITING_FOR_GPUS)
        services = functions.services("apply-ray-cluster")
        deadline = time.monotonic() + 180
        while True:
            answer = apply_ray_cluster(services, functions.run_id, EXECUTION, ("hf", "wandb"))
            found = self.api.find("RayCluster", functions.run_id)
            if found and cluster_is_ready(found, workers) and answer["ready"]:
                return
            if answer["failure"] or time.monotonic() > deadline:
                raise RuntimeError(f"the RayCluster does not come up: {answer}")
            time.sleep(0.5)

    def _away(self, kind: str, name: str) -> None:
        self.api.delete(kind, name)
        deadline = time.monotonic() + 60
        while any(
            pod["metadata"]["labels"].get("ray.io/cluster", "").startswith(name)
            for pod in self.api.list("Pod")
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"pods of {name} stay")
            time.sleep(0.2)


def _submitted(run: Any, job: Any, identity: str) -> None:
    run.attempt = 1
    run.job = job(submission_id=identity, attempt=1, submitted_at=time.time())


def main(repetitions: int) -> None:
    """Measure and print the figures as one line of JSON."""
    from testing.cluster import harness
    from testing.cluster.functions import PubSub, accounts, served
    from testing.cluster.harness import lustre_volume
    from testing.cluster.nodes import SYSTEM_POOL, NodePool, Nodes, a4_pool
    from testing.cluster.ray_pods import RayPods

    with harness.working_folder() as folder, harness.ControlPlane(folder, accounts()) as plane:
        for manifest in lustre_volume():
            plane.api().apply(manifest)
        harness.start_operator(plane, KUBERAY)
        pods = RayPods(plane.api(), folder)
        system = NodePool("system", 8, SYSTEM_POOL.labels, SYSTEM_POOL.allocatable)
        nodes = Nodes(plane.api(), [system, a4_pool(8, gpus=1)], ray=pods)
        nodes.start()
        try:
            with served(PubSub()) as pubsub:
                bench = Bench(plane, nodes, pubsub, pods.lustre)
                bench.begin()
                ours, theirs = [], []
                chance = random.Random(5)
                for number in range(repetitions):
                    pause = chance.uniform(0.0, RAYJOB_POLL_S)
                    ours.append(bench.lustrum(pause))
                    theirs.append(bench.ray_job(pause))
                    print(
                        f"{number + 1}: Lustrum {ours[-1]}, RayJob {theirs[-1]:.2f}",
                        file=sys.stderr,
                        flush=True,
                    )
        finally:
            nodes.stop()
    print(json.dumps(_figures(ours, theirs)))


def _figures(ours: list[dict[str, float]], theirs: list[float]) -> dict[str, float | str]:
    began = [one["began"] for one in ours]
    claimed = [one["claimed"] for one in ours]
    return {
        "lustrum_claim_median_seconds": round(statistics.median(claimed), 3),
        "lustrum_median_seconds": round(statistics.median(began), 3),
        "lustrum_worst_seconds": round(max(began), 3),
        "lustrum_looks_worst": max(one["looks"] for one in ours),
        "rayjob_median_seconds": round(statistics.median(theirs), 3),
        "rayjob_worst_seconds": round(max(theirs), 3),
        "rayjob_over_lustrum": round(statistics.median(theirs) / statistics.median(began), 2),
        "repetitions": float(len(ours)),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REPETITIONS)

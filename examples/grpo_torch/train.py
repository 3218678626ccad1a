"""GRPO in PyTorch: a small causal transformer learns to add, from scratch, on GPU or CPU.

As one process for each GPU seen (DistributedDataParallel over NCCL, gloo without GPUs), or as two
Ray actors that share a GPU (`local.mode=ray`). NeMo-RL's log lines, checkpoint layout and exits.

    python -m examples.grpo_torch.train checkpointing.checkpoint_dir=/lustre/runs/R/checkpoints
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import torch

from examples.grpo_numpy.train import least, report, seconds_of
from examples.grpo_torch import checkpoint
from examples.grpo_torch.config import read_config
from examples.grpo_torch.learner import Learner, Rollout
from examples.grpo_torch.task import ANSWER


class Training(Protocol):
    """What the loop needs of a training, wherever it computes."""

    rank: int

    def step(self, step: int) -> dict[str, Any]:
        """One step; loss, reward and timing."""

    def save(self, config: dict[str, Any], info: dict[str, Any]) -> None:
        """Commit a checkpoint."""

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint."""


class Process:
    """Rollouts and updates in this process, one of `world`."""

    def __init__(self, config: dict[str, Any], rank: int, world: int) -> None:
        self.rank, self._world = rank, world
        self._learner = Learner(config, rank, world)

    def step(self, step: int) -> dict[str, Any]:
        """One step; loss, reward and timing."""
        return self._learner.step(step)

    def save(self, config: dict[str, Any], info: dict[str, Any]) -> None:
        """Commit a checkpoint: rank 0 makes and renames the folder, all write into it."""
        folder = Path(config["checkpointing"]["checkpoint_dir"])
        folder = folder / f"tmp_step_{info['total_steps']}" / checkpoint.WEIGHTS
        with least(config["local"]["save_seconds"]):
            if self.rank == 0:
                checkpoint.begin(config, info)
            self._meet()
            if config["local"]["sharded"]:
                self._learner.write_shards(folder)
            else:
                checkpoint.write_policy(folder, self._learner.state(), self.rank)
        self._meet()
        if self.rank == 0:
            checkpoint.commit(config, info["total_steps"])

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        if checkpoint.is_sharded(folder):
            self._learner.read_shards(folder)
        else:
            self._learner.load(checkpoint.read_policy(folder, self.rank))

    def _meet(self) -> None:
        if self._world > 1:
            torch.distributed.barrier()


class Actors:
    """A rollout and a learner as Ray actors; one that dies ends the training, as in NeMo-RL."""

    rank = 0

    def __init__(self, config: dict[str, Any]) -> None:
        import ray

        # The code's folder is on Lustre, which all nodes see; their Python is told where.
        code = {"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}}
        ray.init(address="auto", log_to_driver=False, runtime_env=code)
        gpus = ray.cluster_resources().get("GPU", 0)  # this process is on the head, without any
        share: dict[str, float] = {"num_cpus": 1}
        if gpus >= 1:
            share = {"num_cpus": 0, "num_gpus": 1 if gpus >= 2 else 0.5}
        actor = ray.remote(max_restarts=0, **share)
        self._ray = ray
        self._rollout = actor(Rollout).remote(config)
        self._learner = actor(Learner).remote(config)

    def step(self, step: int) -> dict[str, Any]:
        """One step; loss, reward and timing. The weights go through Ray's object store."""
        get, began = self._ray.get, time.monotonic()
        get(self._rollout.take_weights.remote(self._learner.weights.remote()))
        batch = self._rollout.rollout.remote(step)
        self._ray.wait([batch])
        generated = time.monotonic()
        result: dict[str, Any] = get(self._learner.update.remote(batch))
        result["timing"] = {
            "generation": generated - began,
            "policy_training": time.monotonic() - generated,
        }
        return result

    def save(self, config: dict[str, Any], info: dict[str, Any]) -> None:
        """Commit a checkpoint: the learner's weights and optimizer, the rollout's random state."""
        state = self._ray.get(self._learner.state.remote())
        state["random"] = self._ray.get(self._rollout.state.remote())["random"]
        checkpoint.save(config, info, lambda folder: checkpoint.write_policy(folder, state))

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        state = checkpoint.read_policy(folder)
        self._ray.get([self._learner.load.remote(state), self._rollout.load.remote(state)])


def loop(config: dict[str, Any], training: Training) -> None:
    """Train to `grpo.max_num_steps`, or until `checkpoint_must_save_by` is near."""
    grpo, saving = config["grpo"], config["checkpointing"]
    folder, info = checkpoint.newest(config)
    if folder is not None:
        training.load(folder)
    log = Path(config["logger"]["log_dir"])
    log.mkdir(parents=True, exist_ok=True)
    say("=" * 60 + "\n" + " " * 18 + "SETUP COMPLETE\n" + "=" * 60)
    samples = config["policy"]["train_global_batch_size"]
    last, first, began = grpo["max_num_steps"], info["total_steps"], time.monotonic()
    while info["total_steps"] < last:
        started, step = time.monotonic(), info["total_steps"] + 1
        say(f"\n{'=' * 25} Step {step}/{last} {'=' * 25}")
        result = training.step(step)
        info.update(
            total_steps=step,
            current_step=step,
            consumed_samples=info["consumed_samples"] + samples,
            total_valid_tokens=info["total_valid_tokens"] + samples * ANSWER,
        )
        elapsed = time.monotonic() - began
        mean = elapsed / (step - first)
        out_of_time = elapsed + mean >= seconds_of(saving["checkpoint_must_save_by"])
        due = step % saving["save_period"] == 0 or step == last or out_of_time
        if saving["enabled"] and due:
            since = time.monotonic()
            training.save(config, info)
            result["timing"]["checkpointing"] = time.monotonic() - since
        if training.rank == 0:
            with (log / "train_data.jsonl").open("a") as lines:
                lines.write(json.dumps({"step": step, **result}) + "\n")
            report(result, time.monotonic() - started, ANSWER)
        if out_of_time and step < last:
            say("Timeout has been reached, stopping training early")
            return
    say("Max number of steps has been reached, stopping training early")


def say(text: str) -> None:
    """Print on rank 0 alone."""
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        print(text, flush=True)


def share_a_gpu(rank: int) -> None:
    """Let NCCL take this rank for one of another host: two ranks of one host on one GPU it
    refuses ("Duplicate GPU detected"). For trying several ranks where there is one GPU; slow.
    """
    os.environ.update(NCCL_HOSTID=f"rank-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")


def run_rank(rank: int, world: int, port: int, config: dict[str, Any]) -> None:
    """One of `world` processes, each with its own GPU if there are GPUs."""
    gpus = torch.cuda.device_count()
    backend = "nccl" if gpus else "gloo"
    if gpus:
        torch.cuda.set_device(rank % gpus)
    if 0 < gpus < world:
        share_a_gpu(rank)
    where = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group(backend, where, rank=rank, world_size=world)
    try:
        loop(config, Process(config, rank, world))
    finally:
        torch.distributed.destroy_process_group()


def main(arguments: list[str]) -> int:
    """Read the overrides and train; the exit code."""
    config = read_config(arguments)
    world = config["local"]["processes"] or max(1, torch.cuda.device_count())
    if config["local"]["mode"] == "ray":
        loop(config, Actors(config))
    elif world == 1:
        loop(config, Process(config, 0, 1))
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # CUDA does not survive a fork; without it a fork spares each rank the import of torch.
        method = "spawn" if torch.cuda.is_available() else "fork"
        torch.multiprocessing.start_processes(
            run_rank, (world, port, config), nprocs=world, start_method=method
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

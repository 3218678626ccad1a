"""Rollouts and updates on one device."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS is not deterministic

import torch
from torch import Tensor
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from examples.grpo_torch.model import Transformer
from examples.grpo_torch.task import ANSWER, PROMPT, group_advantages, new_prompts, rewards

State = dict[str, Any]
WRITERS = 8  # threads that write a sharded save, of each rank


class Learner:
    """The policy, its optimizer and its random numbers on one device.

    Deterministic: from the same state the same steps follow, bit for bit, on the same machine.
    """

    def __init__(self, config: Mapping[str, Any], rank: int = 0, world: int = 1) -> None:
        policy, grpo = config["policy"], config["grpo"]
        self._config, self._rank, self._world = config, rank, world
        gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", rank % torch.cuda.device_count()) if gpu else "cpu"
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(grpo["seed"])
        self.model = Transformer(
            policy["hidden_size"], policy["num_layers"], policy["num_heads"]
        ).to(self.device)
        self._trained: torch.nn.Module = self.model
        if world > 1:
            self._trained = torch.nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=policy["optimizer"]["lr"])
        self.random = torch.Generator(self.device)
        self.random.manual_seed(1000 * grpo["seed"] + rank)

    def _logits(self, model: torch.nn.Module, tokens: Tensor) -> Tensor:
        lower = self._config["policy"]["precision"] == "bfloat16"
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        with torch.autocast(kind, torch.bfloat16, enabled=lower):
            logits: Tensor = model(tokens)
        return logits.float()

    @torch.no_grad()
    def rollout(self, step: int) -> dict[str, Any]:
        """Sample a group of answers to each prompt of this rank's share, and score them."""
        grpo, operands = self._config["grpo"], self._config["data"]["max_operand"]
        count = grpo["num_prompts_per_step"] // self._world
        prompts = new_prompts(count, operands, (grpo["seed"], step, self._rank))
        prompts = prompts.repeat(grpo["num_generations_per_prompt"], axis=0)
        tokens, chosen = torch.from_numpy(prompts).to(self.device), []
        for _ in range(ANSWER):
            logp = self._logits(self.model, tokens)[:, -1].log_softmax(-1)
            token = torch.multinomial(logp.exp(), 1, generator=self.random)
            chosen.append(logp.gather(1, token))
            tokens = torch.cat([tokens, token], dim=1)
        scores = rewards(prompts, tokens[:, PROMPT:].cpu().numpy())
        return {
            "tokens": tokens.cpu(),
            "logprobs": torch.cat(chosen, dim=1).cpu(),
            "scores": scores,
        }

    def update(self, batch: Mapping[str, Any]) -> dict[str, float]:
        """`inner_epochs` clipped policy-gradient steps over the whole batch; mean loss."""
        generations = self._config["grpo"]["num_generations_per_prompt"]
        low = 1 - self._config["loss_fn"]["ratio_clip_min"]
        high = 1 + self._config["loss_fn"]["ratio_clip_max"]
        scores = batch["scores"]
        advantages = torch.from_numpy(group_advantages(scores, generations)).to(self.device)
        tokens, old = batch["tokens"].to(self.device), batch["logprobs"].to(self.device)
        losses = []
        for _ in range(self._config["grpo"]["inner_epochs"]):
            logits = self._logits(self._trained, tokens[:, :-1])[:, PROMPT - 1 :]
            # One-hot, not gather: the gradient of gather adds in an order that changes.
            hot = torch.nn.functional.one_hot(tokens[:, PROMPT:], logits.shape[-1])
            ratio = ((logits.log_softmax(-1) * hot).sum(-1) - old).exp()
            surrogate = torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
            loss = -surrogate.mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            losses.append(loss.detach())
        return {"loss": float(torch.stack(losses).mean()), "reward": float(scores.mean())}

    def step(self, step: int) -> dict[str, Any]:
        """One rollout and its updates, with the seconds each took."""
        began = time.monotonic()
        batch = self.rollout(step)
        generated = time.monotonic()
        result: dict[str, Any] = self.update(batch)
        result["timing"] = {
            "generation": generated - began,
            "policy_training": time.monotonic() - generated,
        }
        return self.across_ranks(result)

    def across_ranks(self, result: dict[str, Any]) -> dict[str, Any]:
        """The mean of reward and loss over all ranks."""
        if self._world > 1:
            means = torch.tensor([result["loss"], result["reward"]], device=self.device)
            torch.distributed.all_reduce(means)
            result["loss"], result["reward"] = (means / self._world).tolist()
        return result

    def weights(self) -> dict[str, Tensor]:
        """The weights, on the CPU."""
        return {name: value.cpu() for name, value in self.model.state_dict().items()}

    def take_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Train or sample with these weights from now on."""
        self.model.load_state_dict(weights)

    def state(self) -> State:
        """All that the next step depends on."""
        return {
            "model": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "random": self.random.get_state(),
        }

    def write_shards(self, folder: Path) -> None:
        """Write this rank's share of weights and optimizer, called by all ranks at once.

        torch.distributed.checkpoint: what all ranks hold is written by one of them, and they
        share the work; WRITERS threads each.
        """
        model, optimizer = get_state_dict(self.model, self.optimizer)
        writer = checkpoint.FileSystemWriter(folder, thread_count=WRITERS)
        checkpoint.save({"model": model, "optimizer": optimizer}, storage_writer=writer)
        torch.save(self.random.get_state(), folder / f"random-{self._rank}.pt")

    def read_shards(self, folder: Path) -> None:
        """Go on from what `write_shards` wrote, whatever number of ranks wrote it."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer}
        checkpoint.load(state, storage_reader=checkpoint.FileSystemReader(folder))
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.random.set_state(torch.load(folder / f"random-{self._rank}.pt", weights_only=True))

    def load(self, state: State) -> None:
        """Go on from a state; of the random numbers only those of this rank."""
        self.take_weights(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.random.set_state(state["random"])


class Rollout(Learner):
    """The same policy where it only samples: Ray names an actor's process by its class."""

"""A small, real GRPO training: numpy on two cores, rollouts as Ray tasks, NeMo-RL's contracts.

Task: "a+b=" with a, b below `data.max_operand`; the completion is two digit tokens, sampled one
after the other from a one-hidden-layer policy; the reward is verifiable: the share of the digits
that are right. Group-relative advantages (GRPO), per-token clipped ratio, Adam.

What NeMo-RL v0.4.0 promises to those around it holds here too: OmegaConf-style overrides as
arguments, `tmp_step_N` renamed to `step_N` as the commit, keep_top_k, resume from the newest step,
the log lines, exit 0 at the last step and also when `checkpoint_must_save_by` runs out.

    python train.py grpo.max_num_steps=20 checkpointing.checkpoint_dir=/lustre/runs/R/checkpoints
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Params = dict[str, np.ndarray]
DIGITS = 10
TOKENS = 2  # tens, then ones

DEFAULTS: dict[str, Any] = {
    "policy": {
        "model_name": "local/arithmetic",
        "hidden_size": 64,
        "train_global_batch_size": 256,  # = prompts x generations, as NeMo-RL demands
        "optimizer": {"lr": 0.01},
    },
    "data": {"dataset_name": "addition", "max_operand": 5},
    "grpo": {
        "num_prompts_per_step": 32,
        "num_generations_per_prompt": 8,
        "max_num_steps": 20,
        "seed": 42,
        "inner_epochs": 8,
    },
    "loss_fn": {"ratio_clip_min": 0.2, "ratio_clip_max": 0.2},
    "checkpointing": {
        "enabled": True,
        "checkpoint_dir": "results/grpo",
        "metric_name": None,
        "keep_top_k": 3,
        "save_period": 10,
        "checkpoint_must_save_by": None,
    },
    "cluster": {"num_nodes": 1, "gpus_per_node": 0},
    "logger": {"log_dir": "logs", "wandb_enabled": False, "wandb": {"name": None}},
    # Not NeMo-RL's. ray: false computes the rollouts in this process; the two times (seconds) are
    # the least a step and a save may take, so that a fault can be placed inside them.
    "local": {"ray": True, "step_seconds": 0.0, "save_seconds": 0.0},
}


def apply_override(config: dict[str, Any], text: str) -> None:
    """Set one `a.b.c=value`; a key the configuration does not have is refused, as by NeMo-RL."""
    key, separator, raw = text.partition("=")
    *groups, name = key.lstrip("+").split(".")
    node: Any = config
    for group in groups:
        node = node.get(group) if isinstance(node, dict) else None
    if not separator or not isinstance(node, dict) or name not in node:
        raise SystemExit(f"Could not override '{key}'. Key '{name}' is not in struct")
    lowered = raw.lower()
    if lowered in ("null", "none", "true", "false"):
        node[name] = {"true": True, "false": False}.get(lowered)
        return
    try:
        node[name] = json.loads(raw)
    except ValueError:
        node[name] = raw.strip("'\"")


def to_yaml(node: Mapping[str, Any], indent: int = 0) -> str:
    """Block-style YAML of nested mappings; JSON scalars are YAML scalars."""
    lines = []
    for key, value in node.items():
        pad = " " * indent
        if isinstance(value, Mapping):
            lines += [f"{pad}{key}:", to_yaml(value, indent + 2)]
        else:
            lines.append(f"{pad}{key}: {json.dumps(value)}")
    return "\n".join(lines)


# --- the policy ---------------------------------------------------------------------------------


def new_params(config: Mapping[str, Any]) -> Params:
    """Fresh weights; the features are one-hot a, one-hot b, one-hot previous token, position."""
    rng = np.random.default_rng(config["grpo"]["seed"])
    features = 2 * config["data"]["max_operand"] + DIGITS + TOKENS
    hidden = config["policy"]["hidden_size"]
    return {
        "w1": rng.normal(0, 0.5, (features, hidden)),
        "b1": np.zeros(hidden),
        "w2": rng.normal(0, 0.1, (hidden, DIGITS)),
        "b2": np.zeros(DIGITS),
    }


def featurise(
    prompts: np.ndarray, previous: np.ndarray, position: int, operands: int
) -> np.ndarray:
    """(n, 2) operands and (n,) previous tokens -> (n, features)."""
    rows = np.arange(len(prompts))
    x = np.zeros((len(prompts), 2 * operands + DIGITS + TOKENS))
    x[rows, prompts[:, 0]] = 1
    x[rows, operands + prompts[:, 1]] = 1
    if position > 0:
        x[rows, 2 * operands + previous] = 1
    x[:, 2 * operands + DIGITS + position] = 1
    return x


def forward(params: Params, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-> hidden activations (n, h) and log-probabilities (n, DIGITS)."""
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    logits = hidden @ params["w2"] + params["b2"]
    logits -= logits.max(axis=1, keepdims=True)
    return hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def reward_of(prompts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """(n, 2), (n, TOKENS) -> (n,): the share of the answer's digits that are right."""
    total = prompts.sum(axis=1)
    answer = np.stack([total // 10, total % 10], axis=1)
    share: np.ndarray = (tokens == answer).mean(axis=1)
    return share


def rollout(
    params: Params, prompts: np.ndarray, generations: int, operands: int, seed: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Sample `generations` completions of each prompt and score them."""
    rng = np.random.default_rng(seed)
    repeated = np.repeat(prompts, generations, axis=0)
    tokens = np.zeros((len(repeated), TOKENS), dtype=np.int64)
    logprobs = np.zeros((len(repeated), TOKENS))
    for position in range(TOKENS):
        previous = tokens[:, max(position - 1, 0)]
        _, logp = forward(params, featurise(repeated, previous, position, operands))
        chosen = np.argmax(logp + rng.gumbel(size=logp.shape), axis=1)  # a softmax sample
        tokens[:, position] = chosen
        logprobs[:, position] = logp[np.arange(len(chosen)), chosen]
    return {
        "prompts": repeated,
        "tokens": tokens,
        "logprobs": logprobs,
        "rewards": reward_of(repeated, tokens),
    }


def group_advantages(rewards: np.ndarray, generations: int) -> np.ndarray:
    """Reward relative to its own group, in standard deviations of that group."""
    groups = rewards.reshape(-1, generations)
    centred = groups - groups.mean(axis=1, keepdims=True)
    advantages: np.ndarray = centred / (groups.std(axis=1, keepdims=True) + 1e-6)
    return advantages.reshape(-1)


def loss_and_gradient(
    params: Params,
    batch: Mapping[str, np.ndarray],
    advantages: np.ndarray,
    config: Mapping[str, Any],
) -> tuple[float, Params]:
    """The clipped policy-gradient loss over all tokens, and its gradient by hand."""
    low = 1 - config["loss_fn"]["ratio_clip_min"]
    high = 1 + config["loss_fn"]["ratio_clip_max"]
    gradient = {name: np.zeros_like(value) for name, value in params.items()}
    loss, count = 0.0, batch["tokens"].size
    rows = np.arange(len(batch["tokens"]))
    for position in range(TOKENS):
        previous = batch["tokens"][:, max(position - 1, 0)]
        x = featurise(batch["prompts"], previous, position, config["data"]["max_operand"])
        hidden, logp = forward(params, x)
        chosen = batch["tokens"][:, position]
        ratio = np.exp(logp[rows, chosen] - batch["logprobs"][:, position])
        surrogate = np.minimum(ratio * advantages, np.clip(ratio, low, high) * advantages)
        loss -= float(surrogate.sum()) / count
        # Where the clip binds the surrogate is constant: no gradient flows.
        flows = np.where(advantages >= 0, ratio <= high, ratio >= low)
        weight = -(flows * ratio * advantages) / count
        d_logits = -np.exp(logp) * weight[:, None]
        d_logits[rows, chosen] += weight
        d_hidden = (d_logits @ params["w2"].T) * (1 - hidden**2)
        gradient["w2"] += hidden.T @ d_logits
        gradient["b2"] += d_logits.sum(axis=0)
        gradient["w1"] += x.T @ d_hidden
        gradient["b1"] += d_hidden.sum(axis=0)
    return loss, gradient


def adam(params: Params, gradient: Params, state: Params, rate: float) -> None:
    """One Adam update in place; `state` holds m_*, v_* and the count t."""
    state["t"] = state.get("t", np.zeros(())) + 1
    t = float(state["t"])
    for name, g in gradient.items():
        m = state[f"m_{name}"] = 0.9 * state.get(f"m_{name}", 0.0) + 0.1 * g
        v = state[f"v_{name}"] = 0.999 * state.get(f"v_{name}", 0.0) + 0.001 * g * g
        params[name] = params[name] - rate * (m / (1 - 0.9**t)) / (
            np.sqrt(v / (1 - 0.999**t)) + 1e-8
        )


# --- where rollouts run -------------------------------------------------------------------------


class InProcess:
    """Rollouts in this process, for tests without Ray."""

    def run(self, jobs: list[tuple[Any, ...]]) -> list[dict[str, np.ndarray]]:
        return [rollout(*job) for job in jobs]


class OnRay:
    """Rollouts as Ray tasks, spread over the nodes; a lost node ends the training, as there."""

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        import ray

        ray.init(address="auto", log_to_driver=False)
        self._ray = ray
        self._wanted = wanted = nodes * gpus_per_node
        for attempt in range(6):  # NeMo-RL's own patience: 1 + 2 + 4 + ... = 63 seconds
            if self._gpus() >= wanted:
                break
            print(f"Waiting for {wanted} GPUs, attempt {attempt + 1}/6", flush=True)
            time.sleep(2**attempt)
        else:
            raise SystemExit(
                f"ResourceInsufficientError: the cluster has fewer than {wanted} GPUs"
            )
        # One GPU a task where there are GPUs keeps the rollouts off the head, as on the real pool.
        share = {"num_gpus": 1, "num_cpus": 0} if gpus_per_node else {"num_cpus": 1}
        self._task = ray.remote(max_retries=0, scheduling_strategy="SPREAD", **share)(rollout)

    def run(self, jobs: list[tuple[Any, ...]]) -> list[dict[str, np.ndarray]]:
        pieces = waiting = [self._task.remote(*job) for job in jobs]
        while waiting:
            # A task whose node is gone would wait for another one for ever; NeMo-RL's actors die.
            if self._gpus() < self._wanted:
                raise RuntimeError(f"a worker node is lost: fewer than {self._wanted} GPUs")
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=1.0)
        results: list[dict[str, np.ndarray]] = self._ray.get(pieces)
        return results

    def _gpus(self) -> float:
        return float(self._ray.cluster_resources().get("GPU", 0))


# --- checkpoints --------------------------------------------------------------------------------


def steps_in(folder: Path) -> list[int]:
    """The committed steps, oldest first."""
    if not folder.is_dir():
        return []
    found = (re.fullmatch(r"step_(\d+)", entry.name) for entry in folder.iterdir())
    return sorted(int(match.group(1)) for match in found if match)


def save(
    config: Mapping[str, Any], params: Params, adam_state: Params, info: Mapping[str, Any]
) -> None:
    """Write tmp_step_N, rename it to step_N (the commit), drop what keep_top_k does not keep."""
    step = info["total_steps"]
    print(f"Saving checkpoint for step {step}...", flush=True)
    root = Path(config["checkpointing"]["checkpoint_dir"])
    temporary, final = root / f"tmp_step_{step}", root / f"step_{step}"
    weights = temporary / "policy" / "weights" / "iter_0000000"
    weights.mkdir(parents=True, exist_ok=True)
    (temporary / "training_info.json").write_text(json.dumps(info))
    (temporary / "config.yaml").write_text(to_yaml(config) + "\n")
    (temporary / "train_dataloader.pt").write_bytes(json.dumps({"next_step": step}).encode())
    with least(config["local"]["save_seconds"]):
        np.savez(weights / "model.npz", **params)
    np.savez(weights / "optimizer.npz", **adam_state)
    (weights / "run_config.yaml").write_text(f"model_name: {config['policy']['model_name']}\n")
    (weights.parent / "latest_checkpointed_iteration.txt").write_text("0\n")
    (temporary / "policy" / "tokenizer").mkdir(exist_ok=True)
    (temporary / "policy" / "tokenizer" / "tokenizer.json").write_text('{"digits": 10}\n')
    print(f"Saved checkpoint to {weights.parent}", flush=True)
    if final.exists():
        shutil.rmtree(final)
    os.rename(temporary, final)
    keep = config["checkpointing"]["keep_top_k"] or len(steps_in(root))
    for old in steps_in(root)[:-keep]:
        print(
            f"Removing checkpoint {root / f'step_{old}'} due to being outside top-{keep}",
            flush=True,
        )
        shutil.rmtree(root / f"step_{old}")


def load(config: Mapping[str, Any]) -> tuple[Params, Params, dict[str, Any]]:
    """The newest step, or a fresh start."""
    root = Path(config["checkpointing"]["checkpoint_dir"])
    steps = steps_in(root)
    if not steps:
        return (
            new_params(config),
            {},
            {
                "consumed_samples": 0,
                "current_step": 0,
                "current_epoch": 0,
                "total_steps": 0,
                "total_valid_tokens": 0,
            },
        )
    newest = root / f"step_{steps[-1]}"
    weights = newest / "policy" / "weights" / "iter_0000000"
    with np.load(weights / "model.npz") as model, np.load(weights / "optimizer.npz") as optimizer:
        params, state = dict(model), dict(optimizer)
    print(f"Resuming from {newest}", flush=True)
    return params, state, json.loads((newest / "training_info.json").read_text())


# --- the loop -----------------------------------------------------------------------------------


@contextlib.contextmanager
def least(seconds: float) -> Iterator[None]:
    """Let the body take at least `seconds`."""
    end = time.monotonic() + seconds
    yield
    time.sleep(max(0.0, end - time.monotonic()))


def train_step(
    config: Mapping[str, Any],
    params: Params,
    adam_state: Params,
    step: int,
    where: InProcess | OnRay,
) -> dict[str, Any]:
    """One GRPO step, in place. Seeded by (seed, step), so that resuming changes nothing."""
    grpo, started = config["grpo"], time.monotonic()
    operands, generations = config["data"]["max_operand"], grpo["num_generations_per_prompt"]
    rng = np.random.default_rng((grpo["seed"], step))
    prompts = rng.integers(0, operands, (grpo["num_prompts_per_step"], 2))
    jobs = [
        (params, shard, generations, operands, (grpo["seed"], step, index))
        for index, shard in enumerate(np.array_split(prompts, config["cluster"]["num_nodes"]))
        if len(shard)
    ]
    parts = where.run(jobs)
    batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    generated = time.monotonic()
    advantages = group_advantages(batch["rewards"], generations)
    losses = []
    for _ in range(grpo["inner_epochs"]):
        loss, gradient = loss_and_gradient(params, batch, advantages, config)
        adam(params, gradient, adam_state, config["policy"]["optimizer"]["lr"])
        losses.append(loss)
    return {
        "loss": float(np.mean(losses)),
        "reward": float(batch["rewards"].mean()),
        "samples": len(advantages),
        "tokens": int(batch["tokens"].size),
        "timing": {
            "generation": generated - started,
            "policy_training": time.monotonic() - generated,
        },
    }


def report(result: Mapping[str, Any], seconds: float, length: int = TOKENS) -> None:
    """NeMo-RL's lines after a step."""
    print("\n📊 Training Results:")
    print(f"  • Loss: {result['loss']:.4f}")
    print(f"  • Avg Reward: {result['reward']:.4f}")
    print(f"  • Mean Generation Length: {length:.4f}")
    print("\n⏱️  Timing:")
    print(f"  • Total step time: {seconds:.2f}s")
    for name, value in sorted(result["timing"].items(), key=lambda item: -item[1]):
        print(f"  • {name}: {value:.2f}s ({100 * value / max(seconds, 1e-9):.1f}%)")
    sys.stdout.flush()


def seconds_of(text: str | None) -> float:
    """'DD:HH:MM:SS' -> seconds; null -> for ever."""
    if text is None:
        return float("inf")
    days, hours, minutes, seconds = (int(part) for part in text.split(":"))
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def main(arguments: list[str]) -> int:
    """Train to `grpo.max_num_steps`, or until `checkpoint_must_save_by` is near."""
    config: dict[str, Any] = json.loads(json.dumps(DEFAULTS))
    for argument in arguments:
        apply_override(config, argument)
    grpo, saving = config["grpo"], config["checkpointing"]
    batch = grpo["num_prompts_per_step"] * grpo["num_generations_per_prompt"]
    if config["policy"]["train_global_batch_size"] != batch:
        raise SystemExit(
            "policy.train_global_batch_size must be num_prompts_per_step * "
            f"num_generations_per_prompt = {batch}"
        )
    params, adam_state, info = load(config)
    cluster = config["cluster"]
    where: InProcess | OnRay = InProcess()
    if config["local"]["ray"]:
        where = OnRay(cluster["num_nodes"], cluster["gpus_per_node"])
    log = Path(config["logger"]["log_dir"])
    log.mkdir(parents=True, exist_ok=True)
    print("=" * 60 + "\n" + " " * 18 + "SETUP COMPLETE\n" + "=" * 60, flush=True)

    last, began = grpo["max_num_steps"], time.monotonic()
    first = info["total_steps"]
    while info["total_steps"] < last:
        started, step = time.monotonic(), info["total_steps"] + 1
        print(f"\n{'=' * 25} Step {step}/{last} {'=' * 25}", flush=True)
        with least(config["local"]["step_seconds"]):
            result = train_step(config, params, adam_state, step, where)
        info.update(
            total_steps=step,
            current_step=step,
            consumed_samples=info["consumed_samples"] + result["samples"],
            total_valid_tokens=info["total_valid_tokens"] + result["tokens"],
        )
        elapsed = time.monotonic() - began
        mean = elapsed / (step - first)
        out_of_time = elapsed + mean >= seconds_of(saving["checkpoint_must_save_by"])
        due = step % saving["save_period"] == 0 or step == last or out_of_time
        if saving["enabled"] and due:
            saving_since = time.monotonic()
            save(config, params, adam_state, info)
            result["timing"]["checkpointing"] = time.monotonic() - saving_since
        with (log / "train_data.jsonl").open("a") as lines:
            lines.write(json.dumps({"step": step, "reward": result["reward"]}) + "\n")
        report(result, time.monotonic() - started)
        if out_of_time and step < last:
            print("Timeout has been reached, stopping training early", flush=True)
            return 0
    print("Max number of steps has been reached, stopping training early", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The task, verifiable: "47+85=" -> "132". Needs numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

PLUS, EQUALS = 10, 11
VOCABULARY = 12  # the digits, plus, equals
PROMPT, ANSWER = 6, 3  # tokens

Array = np.ndarray[Any, Any]


def new_prompts(count: int, max_operand: int, seed: tuple[int, ...]) -> Array:
    """(count, PROMPT) tokens of sums with operands below `max_operand`."""
    a, b = np.random.default_rng(seed).integers(0, max_operand, (2, count))
    plus, equals = np.full(count, PLUS), np.full(count, EQUALS)
    return np.stack([a // 10, a % 10, plus, b // 10, b % 10, equals], axis=1)


def answers(prompts: Array) -> Array:
    """(n, PROMPT) -> (n, ANSWER): the digits of the sum, hundreds first."""
    total = 10 * (prompts[:, 0] + prompts[:, 3]) + prompts[:, 1] + prompts[:, 4]
    return np.stack([total // 100, total // 10 % 10, total % 10], axis=1)


def rewards(prompts: Array, completions: Array) -> Array:
    """(n, ANSWER): 1 for each digit that is right; the reward of a completion is their mean."""
    right: Array = (completions == answers(prompts)).astype(np.float32)
    return right


def group_advantages(scores: Array, generations: int) -> Array:
    """Each digit's score relative to the same digit in its group, in that group's deviations.

    GRPO with rewards of each step of the answer (DeepSeekMath, "process supervision"), not of
    its end alone.
    """
    groups = scores.reshape(-1, generations, scores.shape[1])
    centred = groups - groups.mean(axis=1, keepdims=True)
    scaled = centred / (groups.std(axis=1, keepdims=True) + 1e-6)
    advantages: Array = scaled.reshape(scores.shape).astype(np.float32)
    return advantages

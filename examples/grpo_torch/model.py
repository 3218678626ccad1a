"""A small causal transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.grpo_torch.task import ANSWER, PROMPT, VOCABULARY


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, t, width) -> (n, t, width)."""
        n, t, width = x.shape
        split = self.qkv(self.norm_attention(x)).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, width))
        return x + self.down(functional.gelu(self.up(self.norm_mlp(x))))


class Transformer(nn.Module):
    """Tokens (n, t) -> logits (n, t, VOCABULARY)."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(0.02 * torch.randn(PROMPT + ANSWER, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)
        nn.init.zeros_(self.head.weight)  # the first policy is uniform

    def forward(self, tokens: Tensor) -> Tensor:
        """(n, t) -> (n, t, VOCABULARY)."""
        x = self.tokens(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits

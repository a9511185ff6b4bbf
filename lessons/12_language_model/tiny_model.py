"""A small language model with random weights: its shapes and its speed are real."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LAYERS, WIDTH, HEADS, LONGEST, WORDS = 6, 512, 8, 256, 8192


class Layer(nn.Module):
    """One layer: attention with a cache, then two wide matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.join, up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.widen = nn.Sequential(nn.LayerNorm(WIDTH), up, nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, cache: Tensor, places: Tensor) -> Tensor:
        """Write keys and values into the cache, and hide entries that aren't written yet. So no
        shape changes, which a graph requires.
        """
        rows = self.mix(self.norm(x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = rows.permute(2, 0, 3, 1, 4)
        cache.index_copy_(3, places, torch.stack([key, value]))
        seen = torch.arange(LONGEST, device=x.device) <= places[:, None]
        mixed = nn.functional.scaled_dot_product_attention(query, *cache, attn_mask=seen)
        x = x + self.join(mixed.transpose(1, 2).flatten(2))
        return x + self.widen(x)


class TinyModel(nn.Module):
    """A table of words, the layers, and a matrix that scores each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, words: Tensor, places: Tensor, caches: Tensor) -> Tensor:
        """Return the scores of the next token after `words`, which are at `places` of the text."""
        x = self.words(words)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, places)
        return self.head(x[:, -1])


def empty_caches(batch: int, device: torch.device) -> Tensor:
    """Return empty caches of full length for all layers."""
    return torch.zeros(LAYERS, 2, batch, HEADS, LONGEST, WIDTH // HEADS, device=device)

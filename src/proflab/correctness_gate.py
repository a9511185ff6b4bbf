"""Comparison of the gradients, losses and image counts of two short trials.

A speedup counts only if the model still trains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REQUIRED = ("gradients", "loss", "images")
"""Parts of the comparison that must be present and must pass."""

TOLERANCE = 1e-6
"""Largest relative distance that counts as a rounding error.

The limit applies to float64 trials with the same weights and images. We measured it on a CPU
with the trainer's ResNet, 16 and 32 images, 4 steps, and learning rates 3e-5 and 1e-4.

- Harmless changes were the fused optimizer, channels last, both together, and every fault with
  the same arithmetic. These changes moved a gradient by at most 4.1e-13 and a loss by at most
  1.0e-12.
- A normalization layer without a backward pass omitted 9 of 161 gradients and moved a loss by
  2.7% to 38%.

In float32, the same harmless changes move gradients by 2.5%, because the many normalization
layers magnify rounding errors.
"""


@dataclass(frozen=True)
class Trial:
    """Short training run.

    - losses: one loss per step
    - gradients: a tensor or None for each parameter, after the first backward pass
    - images: total number of images in all steps
    """

    losses: Sequence[float]
    gradients: Sequence[Any]
    images: int


@dataclass(frozen=True)
class Part:
    """One part of the comparison, with its result and numbers."""

    name: str
    passed: bool
    figures: str

    def __str__(self) -> str:
        return f"{self.name}: {'passed' if self.passed else 'not passed'} ({self.figures})"


@dataclass(frozen=True)
class CorrectnessGate:
    """Comparison of a trial before a change with a trial after the change."""

    parts: tuple[Part, ...] = ()

    @property
    def green(self) -> bool:
        """True if every part in REQUIRED is present and no part failed."""
        return set(REQUIRED) <= {part.name for part in self.parts} and all(
            part.passed for part in self.parts
        )

    @classmethod
    def of(cls, before: Trial, after: Trial) -> CorrectnessGate:
        """Compare two float64 trials that start with the same weights and images."""
        images = Part(
            "images", before.images == after.images > 0, f"{before.images} and {after.images}"
        )
        return cls(
            (
                same_gradients(before.gradients, after.gradients),
                same_losses(before.losses, after.losses),
                images,
            )
        )

    def __str__(self) -> str:
        return f"{'green' if self.green else 'not green'}: {'; '.join(map(str, self.parts))}"


def same_gradients(before: Sequence[Any], after: Sequence[Any]) -> Part:
    """Compare the gradients of all parameters.

    The distance between two gradients is divided by the length of the first gradient. The
    divisor is at least a millionth of the largest gradient length.
    """
    if len(before) != len(after):
        return Part("gradients", False, f"{len(before)} parameters before, {len(after)} after")
    missing = sum(gradient is None for gradient in after)
    if missing:
        return Part("gradients", False, f"{missing} of {len(after)} parameters have no gradient")
    lengths = [float(old.norm()) for old in before]
    # A bias before a normalization layer has a gradient that consists only of rounding errors.
    least = 1e-6 * max(lengths, default=0.0) or 1.0
    pairs = zip(before, after, lengths, strict=True)
    worst = _largest([float((new - old).norm()) / max(length, least) for old, new, length in pairs])
    figures = f"at most {worst:.1g} apart" if worst else "equal"
    return Part("gradients", worst <= TOLERANCE, f"{len(after)} gradients {figures}")


def same_losses(before: Sequence[float], after: Sequence[float]) -> Part:
    """Compare the losses of all steps.

    The comparison fails if the loss doesn't fall before the change.
    """
    way = f"{_way(before)} before, {_way(after)} after"
    if not before or len(before) != len(after):
        return Part("loss", False, f"{len(before)} and {len(after)} steps")
    if not before[-1] < before[0]:
        return Part(
            "loss",
            False,
            f"{way}; the loss doesn't fall even before the change, so lower the learning rate",
        )
    worst = _largest([abs(new - old) / abs(old) for old, new in zip(before, after, strict=True)])
    return Part("loss", worst <= TOLERANCE, f"{way}, at most {100 * worst:.2g}% of the loss apart")


def _largest(gaps: Sequence[float]) -> float:
    """Return the largest gap, or infinity if there are no gaps or if a gap is NaN."""
    return max((math.inf if math.isnan(gap) else gap for gap in gaps), default=math.inf)


def _way(losses: Sequence[float]) -> str:
    return f"{losses[0]:.2f} to {losses[-1]:.2f}" if losses else "no step"

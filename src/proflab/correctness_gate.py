"""A speed-up counts only if the model still trains: compares gradients, loss and images of two
short trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REQUIRED = ("gradients", "loss", "images")
"""The parts that must all be there and have passed."""

TOLERANCE = 1e-6
"""Largest relative distance that counts as rounding, for trials in float64 from equal weights and
images. Measured with the trainer's ResNet on a processor, 16 and 32 images, 4 steps, learning rates
3e-5 and 1e-4: fused optimizer, channels last, both, and every fault that does no other arithmetic
moved a gradient by at most 4.1e-13 and a loss by 1.0e-12. A normalization without a backward pass
left 9 of 161 gradients out and moved a loss by 2.7 to 38 %. In float32 the same harmless changes
move gradients by 2.5 %, since the many normalizations magnify rounding.
"""


@dataclass(frozen=True)
class Trial:
    """A short training.

    losses    -- one for each step.
    gradients -- after the first step's backward pass, a tensor for each parameter, or None for one
                 without a gradient.
    images    -- number of images that it was trained on, all steps together.
    """

    losses: Sequence[float]
    gradients: Sequence[Any]
    images: int


@dataclass(frozen=True)
class Part:
    """One part of the comparison: whether it passed, and the figures that show it."""

    name: str
    passed: bool
    figures: str

    def __str__(self) -> str:
        return f"{self.name}: {'passed' if self.passed else 'not passed'} ({self.figures})"


@dataclass(frozen=True)
class CorrectnessGate:
    """The comparison of a trial before a change with one after it."""

    parts: tuple[Part, ...] = ()

    @property
    def green(self) -> bool:
        """Whether every part in REQUIRED is there, and no part failed."""
        return set(REQUIRED) <= {part.name for part in self.parts} and all(
            part.passed for part in self.parts
        )

    @classmethod
    def of(cls, before: Trial, after: Trial) -> CorrectnessGate:
        """Compare two trials that began with equal weights, saw equal images and computed in
        float64.
        """
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
    """Whether every parameter still gets its gradient: the distance of the two gradients, as a
    share of the length of the one before.

    A length counts as at least a millionth of the largest one.
    """
    if len(before) != len(after):
        return Part("gradients", False, f"{len(before)} parameters before, {len(after)} after")
    missing = sum(gradient is None for gradient in after)
    if missing:
        return Part("gradients", False, f"{missing} of {len(after)} parameters get none")
    lengths = [float(old.norm()) for old in before]
    # A bias before a normalization has no gradient but rounding: a share of that would mean
    # nothing.
    least = 1e-6 * max(lengths, default=0.0) or 1.0
    pairs = zip(before, after, lengths, strict=True)
    worst = _largest([float((new - old).norm()) / max(length, least) for old, new, length in pairs])
    figures = f"at most {worst:.1g} apart" if worst else "equal"
    return Part("gradients", worst <= TOLERANCE, f"{len(after)} gradients {figures}")


def same_losses(before: Sequence[float], after: Sequence[float]) -> Part:
    """Whether the loss falls, and takes the same values on its way. A training that diverges before
    the change proves nothing.
    """
    way = f"{_way(before)} before, {_way(after)} after"
    if not before or len(before) != len(after):
        return Part("loss", False, f"{len(before)} and {len(after)} steps")
    if not before[-1] < before[0]:
        return Part(
            "loss",
            False,
            f"{way}: it doesn't fall before the change either; take a lower learning rate",
        )
    worst = _largest([abs(new - old) / abs(old) for old, new in zip(before, after, strict=True)])
    return Part("loss", worst <= TOLERANCE, f"{way}, at most {100 * worst:.2g} % of the loss apart")


def _largest(gaps: Sequence[float]) -> float:
    """The largest gap; infinite if there is none, and if one is NaN, which no comparison would
    find.
    """
    return max((math.inf if math.isnan(gap) else gap for gap in gaps), default=math.inf)


def _way(losses: Sequence[float]) -> str:
    return f"{losses[0]:.2f} to {losses[-1]:.2f}" if losses else "no step"

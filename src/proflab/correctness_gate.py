"""A speed-up counts only if the model still trains: gradients, loss and images of two short trials,
compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REQUIRED = ("gradients", "loss", "images")
"""The parts that must all be there and passed."""

TOLERANCE = 1e-6
"""Largest relative distance that counts as rounding, for trials in 64 bits from equal weights and
images. Measured with the trainer's resnet on a processor, 16 and 32 images, 4 steps, learning rates
3e-5 and 1e-4: fused optimizer, channels last, both, and every fault that does no other arithmetic
moved a gradient by at most 4.1e-13 and a loss by 1.0e-12. A normalisation without a backward pass
left 9 of 161 gradients out and moved a loss by 2.7 to 38 %. In 32 bits the same harmless changes
move gradients by 2.5 %, since the many normalisations make rounding large.
"""


@dataclass(frozen=True)
class Trial:
    """A short training. losses -- of each step; gradients -- a tensor for each parameter after the
    first step's backward pass, or None; images -- how many it was trained on, all steps together.
    """

    losses: Sequence[float]
    gradients: Sequence[Any]
    images: int


@dataclass(frozen=True)
class Part:
    """One thing that was looked at: whether it passed, and the figures behind that."""

    name: str
    passed: bool
    figures: str

    def __str__(self) -> str:
        return f"{self.name}: {'passed' if self.passed else 'not passed'} ({self.figures})"


@dataclass(frozen=True)
class CorrectnessGate:
    """What was compared between a trial before and one after a change."""

    parts: tuple[Part, ...] = ()

    @property
    def green(self) -> bool:
        """Whether every part in REQUIRED is there, and no part failed."""
        return set(REQUIRED) <= {part.name for part in self.parts} and all(
            part.passed for part in self.parts
        )

    @classmethod
    def of(cls, before: Trial, after: Trial) -> CorrectnessGate:
        """Compare two trials that began with equal weights, saw equal images and computed in 64
        bits.
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
        missing = [
            f"{name}: not looked at"
            for name in REQUIRED
            if name not in {part.name for part in self.parts}
        ]
        return f"{'green' if self.green else 'not green'}: " + "; ".join(
            [*map(str, self.parts), *missing]
        )


def same_gradients(before: Sequence[Any], after: Sequence[Any]) -> Part:
    """Whether every parameter still gets its gradient: the distance of both, as a share of the
    length before.

    The length counts as a millionth of the largest one's at least.
    """
    if len(before) != len(after):
        return Part("gradients", False, f"{len(before)} parameters before, {len(after)} after")
    missing = sum(gradient is None for gradient in after)
    if missing:
        return Part("gradients", False, f"{missing} of {len(after)} parameters get none")
    lengths = [float(old.norm()) for old in before]
    # A bias before a normalisation has no gradient but rounding: a share of that says nothing.
    least = 1e-6 * max(lengths, default=0.0) or 1.0
    pairs = zip(before, after, lengths, strict=True)
    worst = _largest([float((new - old).norm()) / max(length, least) for old, new, length in pairs])
    figures = f"at most {worst:.1g} apart" if worst else "equal"
    return Part("gradients", worst <= TOLERANCE, f"{len(after)} gradients {figures}")


def same_losses(before: Sequence[float], after: Sequence[float]) -> Part:
    """Whether the loss falls, and by the same way. A training that diverges before the change
    proves nothing.
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
    """Also of what is no number, which no comparison would find."""
    return max((math.inf if math.isnan(gap) else gap for gap in gaps), default=math.inf)


def _way(losses: Sequence[float]) -> str:
    return f"{losses[0]:.2f} to {losses[-1]:.2f}" if losses else "no step"

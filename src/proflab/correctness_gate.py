"""A speed-up counts only if the model still trains: gradients, loss and samples of two runs, compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from proflab import journal

if TYPE_CHECKING:
    from proflab.training import TrainingRun

REQUIRED = ("finite gradients", "loss parity", "same samples")
"""The parts that must all be there and passed."""

LOSS_TOLERANCE = 0.05
"""Relative difference of losses that counts as equal. On a CPU, in 3 steps of 32 images with the trainer's resnet, the
harmless switches (memory layout, fused optimizer, other random transforms) moved the first loss by up to 0.7 % and the
last by up to 2.2 %, in float32 and bfloat16, with AVX2 and AVX-512. More steps tell less: the loss of this training
rises at first, and rounding grows with it, to 8 % after 12 steps of 8 images."""


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
    """What was compared between the run before and the run after a change."""

    parts: tuple[Part, ...]

    @property
    def green(self) -> bool:
        """Whether every part in REQUIRED is there, and no part failed."""
        return set(REQUIRED) <= {part.name for part in self.parts} and all(part.passed for part in self.parts)

    @classmethod
    def of_runs(
        cls,
        before: TrainingRun | str | PathLike[str],
        after: TrainingRun | str | PathLike[str],
        tolerance: float = LOSS_TOLERANCE,
    ) -> CorrectnessGate:
        """Compare two runs of `cifar_train` with equal seeds, made with --check-gradients, or their folders.

        Raises CourseError where a folder holds no finished run.
        """
        first, second = (_run(item) for item in (before, after))
        losses = [run.steps["loss"].tolist() for run in (first, second)]
        seeds = [run.config.get("seed") for run in (first, second)]
        return cls(
            (
                finite_gradients(_findings(second.folder)),
                loss_parity(*losses, seeds=seeds, tolerance=tolerance),
                same_samples(int(first.steps["images"].sum()), int(second.steps["images"].sum())),
            )
        )

    def __str__(self) -> str:
        missing = [f"{name}: not looked at" for name in REQUIRED if name not in {part.name for part in self.parts}]
        return f"{'green' if self.green else 'not green'}: " + "; ".join([*map(str, self.parts), *missing])


def finite_gradients(findings: Sequence[str]) -> Part:
    """Whether the trainer's own check passed after the changed run (`cifar_train.checks.check_gradients`).

    findings -- texts of the run's `check` records. The trainer stops with an error where a gradient is missing or
    not finite, so that a run without the finding was not checked or failed.
    """
    passed = [text for text in findings if text.startswith("gradient check passed")]
    figures = passed[-1] if passed else "no passed gradient check in the run; make it with --check-gradients"
    return Part("finite gradients", bool(passed), figures)


def loss_parity(
    before: Sequence[float],
    after: Sequence[float],
    seeds: Sequence[object] = (None, None),
    tolerance: float = LOSS_TOLERANCE,
) -> Part:
    """Whether the loss begins and ends where it did: first step, and mean over the last quarter of the steps.

    With one seed both runs begin with equal weights and images, so the first loss tells whether the model still
    computes the same; the last quarter tells whether it still learns. In a run of a few steps hardly anything is
    learnt, and a model without gradients passes this part: that is why the gradients are looked at too.
    """
    name = "loss parity"
    if not len(before) or not len(after):
        return Part(name, False, "a run has no steps")
    if seeds[0] != seeds[1]:
        return Part(name, False, f"the seeds differ, {seeds[0]} and {seeds[1]}: the losses can't be compared")
    diverged = sum(not math.isfinite(loss) for loss in (*before, *after))
    if diverged:
        return Part(name, False, f"{diverged} losses are not finite")
    pairs = {"first step": (before[0], after[0]), "last quarter": (_last_quarter(before), _last_quarter(after))}
    gaps = {where: _gap(*pair) for where, pair in pairs.items()}
    figures = ", ".join(
        f"{where} {pairs[where][0]:.4g} and {pairs[where][1]:.4g}, {gap:.2%} apart" for where, gap in gaps.items()
    )
    return Part(name, max(gaps.values()) <= tolerance, f"{figures}; at most {tolerance:.2%} is allowed")


def same_samples(before: int, after: int) -> Part:
    """Whether both runs trained on equally many images."""
    return Part("same samples", before == after and before > 0, f"{before} and {after} images")


def _gap(first: float, second: float) -> float:
    return 0.0 if first == second else abs(second - first) / max(abs(first), abs(second))


def _last_quarter(losses: Sequence[float]) -> float:
    last = losses[-max(1, len(losses) // 4) :]
    return sum(last) / len(last)


def _run(item: TrainingRun | str | PathLike[str]) -> TrainingRun:
    from proflab.training import TrainingRun, training_run

    return item if isinstance(item, TrainingRun) else training_run(item)


def _findings(folder: Path) -> list[str]:
    """What the trainer found after training, from the same file as the steps."""
    (path,) = folder.glob("metrics_rank0_of_*.jsonl")
    return [str(record.get("finding")) for record in journal.read(path) if record.get("record") == "check"]

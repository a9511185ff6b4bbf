"""Modelled repeats of the trainer with some options: the gain that a cure promises on an MI300X."""

from __future__ import annotations

import functools
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cifar_train.config import TrainConfig

MODEL_STEPS = 30
STEADY_STEPS = 16
"""The model is deterministic but for its host, so a few steps show a rate, once the batches that
the loaders prepared ahead are used up. A multiple of the number of loader processes, since they
take turns.
"""

REPEATS = 5


@dataclass(frozen=True)
class ModelledRepeats:
    """Repeats of one modelled training.

    seconds -- per image, one value for each seed
    origin  -- states the error of the model
    """

    seconds: tuple[float, ...]
    origin: object

    @property
    def images_per_second(self) -> float:
        """The median of the repeats as a rate, in images per second."""
        return 1 / sorted(self.seconds)[len(self.seconds) // 2]


def modelled(options: str = "", repeats: int = REPEATS, ranks: int = 1) -> ModelledRepeats:
    """Seconds per image of the trainer with these options on a modelled MI300X, once for each seed.

    Computed from the last STEADY_STEPS of MODEL_STEPS: their time over their images. The seeds vary
    the host's costs only, so the spread is not the model's error. Raises UserError for options that
    the trainer refuses.
    """
    from cifar_train.config import parse

    return _modelled(
        parse([*shlex.split(options), "--max-steps", str(MODEL_STEPS)]), repeats, ranks
    )


@functools.cache
def _modelled(config: TrainConfig, repeats: int, ranks: int) -> ModelledRepeats:
    """Cached: a lesson compares with the plain trainer again and again."""
    from gpumodel import Training, step_rates
    from gpumodel.devices import model_error
    from tidyprof.tables.contract import Origin

    runs = (step_rates(Training(config=config, ranks=ranks, seed=seed)) for seed in range(repeats))
    last = [rates[-STEADY_STEPS:] for rates in runs]
    # The steps have equal numbers of images, so the time of an image is the mean over steps of the
    # inverse rate.
    seconds = tuple(sum(1 / rate for rate in rates) / len(rates) for rates in last)
    return ModelledRepeats(seconds, Origin("modelled", f"MI300X, {model_error()}"))


@functools.cache
def plain_step(options: str = "") -> dict[str, float]:
    """The trainer's mean step with these options on a modelled MI300X, without a profiler, in ms:
    step_ms, and each part of `tidyprof.step_budget`, such as launch_bound_ms.

    Means over the last STEADY_STEPS of MODEL_STEPS: steps differ, since the loaders take turns.
    Raises UserError for options that the trainer refuses.
    """
    from cifar_train.config import parse
    from gpumodel import Training, simulate
    from gpumodel.truth import profile_of
    from tidyprof.analyses.budget import step_budget

    run = simulate(Training(config=parse([*shlex.split(options), "--max-steps", str(MODEL_STEPS)])))
    last = step_budget(profile_of(run)).tail(STEADY_STEPS)
    times = [name for name in last if name.endswith("_ns") and name != "start_ns"]
    means = last[times].mean().astype(float) / 1e6
    return {
        f"{name.removesuffix('_ns').replace('duration', 'step')}_ms": value
        for name, value in means.items()
    }

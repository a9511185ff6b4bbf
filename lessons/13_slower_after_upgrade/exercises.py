"""Exercises of lesson 13: intervals from steps, kernels to blame, an exchange, a clock, a refused file, a rate."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Steps = Mapping[str, np.ndarray]

LARGE_NS = 50_000
MUCH = 1.05
"""A kernel counts as longer from this factor on, if a step had at least LARGE_NS of it."""

CONVOLUTIONS = "conv|batched_transpose|transpose_"

COUNTED_IMAGES = 256
"""What AMD's script divides by the time, in every line: its --batch-size, by default 256 (train_cifar_100.py)."""

TRAINING_IMAGES, FITTING_RANKS = 40_000, 8
"""Images that the script trains on, and the ranks with which its parallel run ends after exactly its lines."""


# 13.1: steps as if they were repeats


def interval(new: np.ndarray, old: np.ndarray) -> tuple[float, float]:
    """95 % bootstrap interval of the ratio of medians, as the lesson makes it."""
    import numpy as np

    random = np.random.default_rng(1)
    medians = [np.median(random.choice(side, (10_000, len(side))), axis=1) for side in (new, old)]
    low, high = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    return float(low), float(high)


def different_percent(steps: Steps) -> float:
    """Percentage of the pairs of runs whose interval, from their steps, does not hold 1."""
    return 100 * different_pairs(steps) / len([*combinations(steps, 2)])


def different_pairs(steps: Steps) -> int:
    """How many of these pairs they are."""
    ends = [interval(one, two) for one, two in combinations(steps.values(), 2)]
    return sum(not low <= 1 <= high for low, high in ends)


# 13.2: what the kernel does not explain


def unexplained_ms(told: Mapping[str, Any]) -> float:
    """How far the slow-down of a step and the largest difference of a kernel are apart, in ms."""
    return abs(_slower_ms(told) - _kernel_ms(told))


def _slower_ms(told: Mapping[str, Any]) -> float:
    return (told["new_ns"] - told["base_ns"]) / 1e6


def _kernel_ms(told: Mapping[str, Any]) -> float:
    return max(kernel["difference_ns"] for kernel in told["kernels"]) / 1e6


# 13.3: an exchange


def exchange_ms(kernels: pd.DataFrame, names: str = CONVOLUTIONS, gains: bool = True, column: str = "kernel") -> float:
    """Difference of all kernels with these names, in ms of a step; without those that became less if not `gains`."""
    own = kernels.loc[kernels[column].str.contains(names, case=False), "difference_ns"]
    return float((own if gains else own.clip(lower=0)).sum() / 1e6)


# 13.4: one kernel, or many


def large_ones(kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels of at least LARGE_NS."""
    return kernels[kernels["base_ns"] >= LARGE_NS]


def suspects(kernels: pd.DataFrame) -> int:
    """How many of the large kernels take more than MUCH times as long."""
    large = large_ones(kernels)
    return int((large["new_ns"] > MUCH * large["base_ns"]).sum())


def suspects_problem(answer: Any, tables: Mapping[str, pd.DataFrame]) -> str | None:
    """What is wrong with a function that counts the suspects; None if it is right about every table."""
    if not callable(answer):
        return f"A function of a table of kernels is asked, this is a {type(answer).__name__}."
    for side, kernels in tables.items():
        given, right = answer(kernels), suspects(kernels)
        if given == right:
            continue
        if given == (kernels["new_ns"] > MUCH * kernels["base_ns"]).sum():
            return f"{side}: {given} counts small kernels too. Ask for at least {LARGE_NS:,} ns on the base side."
        if given == (kernels["new_ns"] > kernels["base_ns"]).sum():
            return f"{side}: {given} counts kernels that are longer by chance. Ask for more than 5 %."
        return f"{side}: {given} is not the number of kernels of 0.05 ms or more that are longer by more than 5 %."
    return None


# 13.5: validators


def read_validators(path: str | Path) -> dict[str, str]:
    """Name and value of each validator, of a file of TunableOp or of a table of name and value."""
    lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = list(csv.reader(lines))
    if rows[0] == ["name", "value"]:
        return dict(rows[1:])
    return {row[1]: row[2] for row in rows if row[0] == "Validator"}


def failing(files: Mapping[str, Path]) -> set[str]:
    """Names of the validators that differ or stand on one side only."""
    written, expected = (read_validators(files[name]) for name in ("tuned_llama", "expected_later"))
    return {name for name in {*written, *expected} if written.get(name) != expected.get(name)}


def validators_problem(answer: Any, files: Mapping[str, Path]) -> str | None:
    """What is wrong with a set of names; None if these are the ones that fail."""
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        return f"A set of names is asked, this is a {type(answer).__name__}."
    given, right = {str(name) for name in answer}, failing(files)
    if given == right:
        return None
    if alike := given - right:
        return f"{min(alike)} is the same in both files, character by character."
    return f"{len(right - given)} more differ: compare whole texts, behind the hyphen too."


# 13.6: images that were not there


def last_batch_rate(lines: pd.DataFrame, images: int | None = None) -> float:
    """The last line's rate if its batch held so many images, by default those that FITTING_RANKS ranks leave."""
    left = TRAINING_IMAGES // FITTING_RANKS - COUNTED_IMAGES * (len(lines) - 1) if images is None else images
    return float(lines["images_per_second"].iloc[-1] * left / COUNTED_IMAGES)


EXERCISES = (
    Exercise(
        id="13.1",
        answer=Number(different_percent, unit="%", absolute=0.5),
        mistakes=(
            Mistake(lambda steps: 100 - different_percent(steps), "These are the pairs that look equal."),
            Mistake(lambda steps: different_percent(steps) / 100, "As a percentage"),
            Mistake(
                different_pairs, "That is how many pairs look different. Divide by all pairs, and take it times 100."
            ),
        ),
        hints=(
            "`[interval(one, two) for one, two in combinations(same.values(), 2)]` are the intervals.",
            "A pair looks different if not `low <= 1 <= high`.",
            "`100 * np.mean([...])` of a list of True and False is a percentage.",
        ),
        insight="All of these runs are of one release. With an honest interval, five in a hundred would be the price.",
    ),
    Exercise(
        id="13.2",
        answer=Number(unexplained_ms, unit="ms", relative=0.02),
        mistakes=(
            Mistake(_slower_ms, "This is the whole slow-down of a step."),
            Mistake(_kernel_ms, "This is what the kernel explains. What is left?"),
        ),
        hints=(
            "The slow-down is `told['new_ns'] - told['base_ns']`, in ns.",
            "The kernel to blame has the largest `difference_ns`.",
        ),
        insight=lambda told: (
            f"The kernel changed by {_kernel_ms(told):.2f} ms, the step by {_slower_ms(told):.2f} ms. What is left is "
            "noise: the step's time is a median of runs, the kernel's a mean."
        ),
    ),
    Exercise(
        id="13.3",
        answer=Number(exchange_ms, unit="ms"),
        mistakes=(
            Mistake(lambda kernels: exchange_ms(kernels, gains=False), "What is gone or less counts too, as a gain."),
            Mistake(lambda kernels: exchange_ms(kernels, "conv"), "The transposes belong to the convolutions."),
            Mistake(
                lambda kernels: exchange_ms(kernels, column="full_name"),
                "You searched `full_name`. There MIOpen's `igemm_fwd...` has no `conv`; the column `kernel` says it.",
            ),
        ),
        hints=(
            "`kernels['kernel'].str.contains('a|b', case=False)` finds names with one or the other.",
            "Add up all differences, the negative ones as well.",
        ),
        insight=lambda kernels: (
            f"New and longer kernels cost {exchange_ms(kernels, gains=False):.1f} ms, what they replaced gave back "
            f"{exchange_ms(kernels, gains=False) - exchange_ms(kernels):.1f} ms: {exchange_ms(kernels):.1f} ms in all. "
            "The step itself grew by less: the GPU idled less between kernels, and the step's time is a median of "
            "runs, a kernel's a mean."
        ),
    ),
    Exercise(
        id="13.4",
        answer=Property(suspects_problem, lambda tables: suspects),
        mistakes=(
            Mistake(
                lambda tables: lambda kernels: (kernels["new_ns"] > MUCH * kernels["base_ns"]).sum(),
                "counts small kernels too",
            ),
            Mistake(lambda tables: lambda kernels: (kernels["new_ns"] > kernels["base_ns"]).sum(), "longer by chance"),
        ),
        hints=(
            "Keep the rows with `base_ns` of at least 50,000 first.",
            "Then count the rows with `new_ns` above 1.05 times `base_ns`: the sum of a comparison.",
        ),
        insight=lambda tables: (
            "; ".join(f"{side}: {suspects(kernels)} of {len(large_ones(kernels))}" for side, kernels in tables.items())
            + ". One is a library's fault, many at once are the machine's."
        ),
    ),
    Exercise(
        id="13.5",
        answer=Property(validators_problem, failing),
        mistakes=(
            Mistake(lambda files: set(read_validators(files["tuned_llama"])), "is the same in both files"),
            Mistake(lambda files: set(), "more differ"),
        ),
        hints=(
            "Read the first file as above, with the same `names`; the second one has a header.",
            "Two Series with `name` as index: compare `written.get(name)` with `expected.get(name)`.",
        ),
        insight="The same version number, and another revision behind the hyphen: the file is refused all the same.",
    ),
    Exercise(
        id="13.6",
        answer=Number(last_batch_rate, unit="images/s"),
        mistakes=(
            Mistake(
                lambda lines: lines["images_per_second"].iloc[-1], "This is the printed rate: it counts a full batch."
            ),
            Mistake(
                lambda lines: last_batch_rate(lines, TRAINING_IMAGES % COUNTED_IMAGES),
                "You let one GPU take all images. Eight share them, and each has its own last batch.",
            ),
        ),
        hints=(
            "Each GPU gets `40_000 // 8` images; all lines but the last took 256. How many are left?",
            "The last line printed 256 images divided by its time: put what is left in the place of 256.",
        ),
        insight=lambda lines: (
            f"The printed rate, {lines['images_per_second'].iloc[-1]:,.0f} images/s, is far below the others already; "
            "the true one is lower still. AMD does not say why. Perhaps the libraries tried out kernels for its size."
        ),
    ),
)

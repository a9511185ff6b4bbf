"""Exercises of lesson 13: intervals from steps, an exchange of kernels, and a clock."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Steps = Mapping[str, np.ndarray]

LARGE_NS = 50_000
LONGER_RATIO = 1.05
"""A kernel counts as longer from this factor on, if a step had at least LARGE_NS of it."""

CONVOLUTIONS = "conv|batched_transpose|transpose_"


# 13.1: steps as if they were repeats


def interval(new: np.ndarray, old: np.ndarray) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the ratio of means, as in the lesson."""
    import numpy as np

    random = np.random.default_rng(1)
    means = [random.choice(side, (10_000, len(side))).mean(axis=1) for side in (new, old)]
    low, high = np.quantile(means[0] / means[1], [0.025, 0.975])
    return float(low), float(high)


def different_percent(steps: Steps) -> float:
    """Percentage of the pairs of runs whose interval, from their steps, does not hold 1."""
    return 100 * different_pairs(steps) / len([*combinations(steps, 2)])


def different_pairs(steps: Steps) -> int:
    """How many of these pairs they are."""
    ends = [interval(one, two) for one, two in combinations(steps.values(), 2)]
    return sum(not low <= 1 <= high for low, high in ends)


# 13.2: an exchange


def exchange_ms(
    kernels: pd.DataFrame, names: str = CONVOLUTIONS, gains: bool = True, column: str = "kernel"
) -> float:
    """Difference of all kernels with these names, in ms of a step; without those that became less
    if not `gains`.
    """
    own = kernels.loc[kernels[column].str.contains(names, case=False), "difference_ns"]
    return float((own if gains else own.clip(lower=0)).sum() / 1e6)


# 13.3: one kernel, or many


def large_ones(kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels of at least LARGE_NS."""
    return kernels[kernels["base_ns"] >= LARGE_NS]


def suspects(kernels: pd.DataFrame) -> int:
    """How many of the large kernels take more than LONGER_RATIO times as long."""
    large = large_ones(kernels)
    return int((large["new_ns"] > LONGER_RATIO * large["base_ns"]).sum())


def suspects_problem(answer: Any, tables: Mapping[str, pd.DataFrame]) -> str | None:
    """What is wrong with a function that counts the suspects; None if it is right about every
    table.
    """
    if not callable(answer):
        return f"A function of a table of kernels is asked, this is a {type(answer).__name__}."
    for side, kernels in tables.items():
        given, right, large = answer(kernels), suspects(kernels), large_ones(kernels)
        if given == right:
            continue
        if given == (kernels["new_ns"] > LONGER_RATIO * kernels["base_ns"]).sum():
            return (
                f"{side}: {given} counts small kernels too. Ask for at least {LARGE_NS:,} ns on the"
                " base side."
            )
        if given in (
            (kernels["new_ns"] > kernels["base_ns"]).sum(),
            (large["new_ns"] > large["base_ns"]).sum(),
        ):
            return (
                f"{side}: {given} counts kernels that are longer by chance. Ask for more than 5 %."
            )
        if given == len(large):
            return (
                f"{side}: {given} are all of the large kernels. How many of them are longer by more"
                " than 5 %?"
            )
        return (
            f"{side}: {given} is not the number of kernels of 0.05 ms or more that are longer by"
            " more than 5 %."
        )
    return None


EXERCISES = (
    Exercise(
        id="13.1",
        answer=Number(different_percent, unit="%", absolute=0.5),
        mistakes=(
            Mistake(
                lambda steps: 100 - different_percent(steps), "These are the pairs that look equal."
            ),
            Mistake(lambda steps: different_percent(steps) / 100, "As a percentage"),
            Mistake(
                different_pairs,
                "That is how many pairs look different. Divide by all pairs, and take it times"
                " 100.",
            ),
        ),
        hints=(
            (
                "`[interval(one, two) for one, two in combinations(same.values(), 2)]` are the"
                " intervals."
            ),
            "A pair looks different if not `low <= 1 <= high`.",
            "`100 * np.mean([...])` of a list of True and False is a percentage.",
        ),
        insight=(
            "All of these runs are of one release. With an honest interval, five in a hundred would"
            " be the price."
        ),
    ),
    Exercise(
        id="13.2",
        answer=Number(exchange_ms, unit="ms"),
        mistakes=(
            Mistake(
                lambda kernels: exchange_ms(kernels, gains=False),
                "What is gone or less counts too, as a gain.",
            ),
            Mistake(
                lambda kernels: exchange_ms(kernels, "conv"),
                "The transposes belong to the convolutions.",
            ),
            Mistake(
                lambda kernels: exchange_ms(
                    kernels.assign(difference_ns=kernels["difference_ns"].abs())
                ),
                "You added up absolute values. What became less is negative, and counts so.",
            ),
            Mistake(
                lambda kernels: exchange_ms(kernels, names=""),
                "That is the difference of all kernels. Choose those that compute convolutions, or"
                " transpose for them.",
            ),
            Mistake(
                lambda kernels: exchange_ms(kernels, column="full_name"),
                "You searched `full_name`. There MIOpen's `igemm_fwd...` has no `conv`; the column"
                " `kernel` says it.",
            ),
        ),
        hints=(
            (
                "`kernels['kernel'].str.contains('a|b', case=False)` finds names with one or the"
                " other."
            ),
            "Add up all differences, the negative ones as well.",
        ),
        insight=lambda kernels: (
            f"New and longer kernels cost {exchange_ms(kernels, gains=False):.1f} ms, what they"
            f" replaced gave back {exchange_ms(kernels, gains=False) - exchange_ms(kernels):.1f}"
            f" ms: {exchange_ms(kernels):.1f} ms in all. The step itself grew by less, because"
            " the GPU idled less between kernels."
        ),
    ),
    Exercise(
        id="13.3",
        answer=Property(suspects_problem, lambda tables: suspects),
        mistakes=(
            Mistake(
                lambda tables: (
                    lambda kernels: (kernels["new_ns"] > LONGER_RATIO * kernels["base_ns"]).sum()
                ),
                "counts small kernels too",
            ),
            Mistake(
                lambda tables: lambda kernels: (kernels["new_ns"] > kernels["base_ns"]).sum(),
                "longer by chance",
            ),
            Mistake(
                lambda tables: lambda kernels: len(large_ones(kernels)), "all of the large kernels"
            ),
        ),
        hints=(
            "Keep the rows with `base_ns` of at least 50,000 first.",
            (
                "Then count the rows with `new_ns` above 1.05 times `base_ns`: the sum of a"
                " comparison."
            ),
        ),
        insight=lambda tables: (
            "; ".join(
                f"{side}: {suspects(kernels)} of {len(large_ones(kernels))}"
                for side, kernels in tables.items()
            )
            + ". One is a library's fault, many at once are the machine's."
        ),
    ),
)

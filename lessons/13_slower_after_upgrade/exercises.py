"""Exercises of lesson 13: intervals from steps, exchanged kernels, and a lower clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from numbers import Real
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.upgrades import interval

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Steps = Mapping[str, np.ndarray]

LARGE_NS = 50_000
LONGER_RATIO = 1.05
"""A kernel is longer if its time grew by more than this factor from at least LARGE_NS per step."""

CONVOLUTIONS = "conv|batched_transpose|transpose_"


# 13.1: steps as if they were repeats


def different_pairs(steps: Steps) -> int:
    """Return how many pairs of runs have an interval, from their steps, that doesn't contain 1."""
    ends = [interval(one, two) for one, two in combinations(steps.values(), 2)]
    return sum(not low <= 1 <= high for low, high in ends)


def different_percent(steps: Steps) -> float:
    """Return the percentage of these pairs."""
    return 100 * different_pairs(steps) / len([*combinations(steps, 2)])


# 13.2: exchanged kernels


def exchange_ms(
    kernels: pd.DataFrame, names: str = CONVOLUTIONS, gains: bool = True, column: str = "kernel"
) -> float:
    """Return the difference of all kernels with these names, in ms per step. Leave out kernels that
    gained time if `gains` is False.
    """
    own = kernels.loc[kernels[column].str.contains(names, case=False), "difference_ns"]
    return float((own if gains else own.clip(lower=0)).sum() / 1e6)


# 13.3: one kernel, or many


def large_ones(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels with at least LARGE_NS."""
    return kernels[kernels["base_ns"] >= LARGE_NS]


def longer(kernels: pd.DataFrame, ratio: float = LONGER_RATIO) -> int:
    """Return how many kernels take more than `ratio` times as long."""
    return int((kernels["new_ns"] > ratio * kernels["base_ns"]).sum())


def suspects(kernels: pd.DataFrame) -> int:
    """Return how many large kernels take more than LONGER_RATIO times as long."""
    return longer(large_ones(kernels))


def changed(kernels: pd.DataFrame) -> int:
    """Return how many large kernels changed by more than 5%, in either direction."""
    large = large_ones(kernels)
    change = (large["new_ns"] - large["base_ns"]).abs()
    return int((change > (LONGER_RATIO - 1) * large["base_ns"]).sum())


def by_new_time(kernels: pd.DataFrame) -> int:
    """Return the wrong count with LARGE_NS as the limit of the new time."""
    return longer(kernels[kernels["new_ns"] >= LARGE_NS])


def any_growth(kernels: pd.DataFrame) -> int:
    """Return how many large kernels take longer, by however little."""
    return longer(large_ones(kernels), 1.0)


WRONG_COUNTS: dict[Callable[[pd.DataFrame], int], str] = {
    by_new_time: f"You compared `new_ns` with {LARGE_NS:,} ns. Compare `base_ns`.",
    longer: f"Your count includes small kernels. Keep at least {LARGE_NS:,} ns.",
    any_growth: "Your count includes chance. Count kernels that grew by over 5%.",
    lambda kernels: longer(
        kernels, 1.0
    ): "Your count includes chance. Count kernels that grew by over 5%.",
    changed: "Your count includes kernels that got shorter. Keep the sign.",
    lambda kernels: len(
        large_ones(kernels)
    ): "You counted all large kernels. Count those that grew by over 5%.",
}
"""The reply to each wrong count."""


def suspects_problem(answer: Any, tables: Mapping[str, pd.DataFrame]) -> str | None:
    """Return the problem of a function that counts the suspects, None if all counts are right."""
    if not callable(answer):
        return "Your answer isn't a function. Assign the function itself, without calling it."
    swap = {"base_ns": "new_ns", "new_ns": "base_ns"}
    others = {f"{name}, in reverse": table.rename(columns=swap) for name, table in tables.items()}
    some = next(iter(tables.values())).head(2)
    others["small table"] = some.assign(base_ns=[40_000, 1_000], new_ns=[60_000, 4_000])
    for table in others.values():
        table["difference_ns"] = table["new_ns"] - table["base_ns"]
    everything = {**tables, **others}
    given = {name: answer(kernels) for name, kernels in everything.items()}
    for count in given.values():
        if not isinstance(count, Real):
            what = "nothing" if count is None else f"a {type(count).__name__}"
            return f"Your function returned {what}, not a number. Return the number of kernels."
    wrong = [name for name in given if given[name] != suspects(everything[name])]
    if not wrong:
        return None
    # Two mistakes can give the same count for one table, but rarely for all.
    same = (
        reply
        for count, reply in WRONG_COUNTS.items()
        if all(given[name] == count(kernels) for name, kernels in everything.items())
    )
    reply = next(same, "The count should be different.")
    return f"{wrong[0]}, {given[wrong[0]]} kernels: {reply}"


EXERCISES = (
    Exercise(
        id="13.1",
        answer=Number(different_percent, unit="percent", absolute=0.5),
        mistakes=(
            Mistake(
                different_pairs,
                "You counted the pairs that look different. Divide by the number of all pairs.",
            ),
            Mistake(
                lambda steps: 100 * different_pairs(steps) / len(steps) ** 2,
                "You divided by all ordered pairs, including each run with itself. Divide by the"
                " number of combinations.",
            ),
        ),
        hints=(
            "Compute `[interval(one, two) for one, two in combinations(same.values(), 2)]`.",
            "Count a pair if `not low <= 1 <= high`.",
            "Compute `100 * np.mean([...])` of these True and False values.",
        ),
        insight=(
            "All runs use the same release. If steps were independent repeats, only about 5% of the"
            " pairs would look different."
        ),
    ),
    Exercise(
        id="13.2",
        answer=Number(exchange_ms, unit="ms"),
        mistakes=(
            Mistake(
                lambda kernels: exchange_ms(kernels, gains=False),
                "You added only the increases. Also include the negative differences of kernels"
                " that are gone or shorter.",
            ),
            Mistake(
                lambda kernels: exchange_ms(kernels, "conv"),
                "You left out the transposes. Include them, because convolutions need them.",
            ),
            Mistake(
                lambda kernels: exchange_ms(
                    kernels.assign(difference_ns=kernels["difference_ns"].abs())
                ),
                "You added up absolute values. Keep the signs, because a saving is negative.",
            ),
            Mistake(
                lambda kernels: exchange_ms(kernels, names=""),
                "You added up all kernels. Select only convolutions and their transposes.",
            ),
            Mistake(
                lambda kernels: exchange_ms(kernels, column="full_name"),
                "You searched `full_name`, in which MIOpen's `igemm_fwd...` has no `conv`. Search"
                " the column `kernel`.",
            ),
        ),
        hints=(
            "Select names with `kernels['kernel'].str.contains('a|b', case=False)`.",
            "Add up all differences, including the negative ones, and divide by 1e6.",
        ),
        insight=lambda kernels: (
            f"New and longer kernels cost {exchange_ms(kernels, gains=False):.1f} ms, and the"
            f" kernels that they replaced saved"
            f" {exchange_ms(kernels, gains=False) - exchange_ms(kernels):.1f} ms. The sum is"
            f" {exchange_ms(kernels):.1f} ms. The step grew by less, because the GPU is idle for"
            " less time between kernels."
        ),
    ),
    Exercise(
        id="13.3",
        answer=Property(suspects_problem, lambda tables: suspects),
        mistakes=(
            Mistake(lambda tables: longer, "includes small kernels"),
            Mistake(lambda tables: by_new_time, "You compared `new_ns`"),
            Mistake(lambda tables: large_ones, "returned a DataFrame"),
            Mistake(lambda tables: lambda kernels: longer(kernels, 1.0), "includes chance"),
            Mistake(lambda tables: changed, "kernels that got shorter"),
            Mistake(
                lambda tables: lambda kernels: len(large_ones(kernels)), "counted all large kernels"
            ),
        ),
        hints=(
            "Keep the rows whose `base_ns` is at least 50,000.",
            "Count the rows whose `new_ns` is above 1.05 times `base_ns`. The sum of a comparison"
            " counts its True values.",
        ),
        insight=lambda tables: (
            "; ".join(
                f"{name}: {suspects(kernels)} of {len(large_ones(kernels))}"
                for name, kernels in tables.items()
            )
            + ". One slower kernel points to a library, and many point to the machine."
        ),
    ),
)

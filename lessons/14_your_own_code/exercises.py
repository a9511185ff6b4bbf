"""Exercises of lesson 14: the profiler's overhead, a fix, and its proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd


def overhead(about: dict[str, Any], *windows: str) -> float:
    """Return how many times as long the traced steps are as the steps in these windows."""
    timed = [about[name] for name in windows or ("before", "after")]
    total = sum(window["steps"] * window["step_ns"] for window in timed)
    return about["trace"]["step_ns"] * sum(window["steps"] for window in timed) / total


def pooling_problem(answer: Any, data: Any) -> str | None:
    """Return what is wrong with a function that averages a table's rows for each line, or None."""
    import torch

    if not callable(answer):
        return "Answer with a function: `def answer(table, lines): ...`."
    calls = []
    table, lines = torch.nn.Embedding(50, 8), torch.randint(50, (6, 12))
    table.register_forward_hook(lambda *_: calls.append(1))
    wanted = table.weight[lines].mean(dim=1)
    found = answer(table, lines)
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        return (
            f"The result must have the shape {tuple(wanted.shape)}: one row for each line, as wide"
            " as the table. Check the dimension that you average over."
        )
    problems = (
        (
            torch.allclose(found, wanted * lines.shape[1], atol=1e-5),
            "You computed the sum over the positions. The script divides this sum by the number of"
            " positions.",
        ),
        (
            not torch.allclose(found, wanted, atol=1e-5),
            "Your function's results differ from the loop's results. Average over the positions,"
            " which are the second dimension of `lines`.",
        ),
        (
            not found.requires_grad,
            "The numbers are right, but no gradient reaches the table, so it would never learn."
            " Remove what detaches the result.",
        ),
        (
            not calls,
            "The numbers are right, but your function never calls `table(...)`, so hooks on the"
            " table don't run. Pass all lines to the table in a single call.",
        ),
        (
            len(calls) > 1,
            f"The numbers are right, but you called the table {len(calls)} times. Pass all lines in"
            " a single call.",
        ),
    )
    return next((reply for wrong, reply in problems if wrong), None)


def example(data: Any) -> Callable[[Any, Any], Any]:
    """Return a function with one call to the table."""
    return lambda table, lines: table(lines).mean(dim=1)


def speedup(runs: pd.DataFrame, before: str = "min", fixed: str = "max") -> float:
    """Return the ratio of two statistics of the seconds: by default, the smallest speedup."""
    seconds = runs.groupby("version")["seconds"]
    return float(seconds.agg(before)["before"] / seconds.agg(fixed)["fixed"])


EXERCISES = (
    Exercise(
        id="14.1",
        measured=True,
        answer=Number(overhead, unit="times"),
        mistakes=(
            Mistake(
                lambda about: overhead(about, "before"),
                "You used only the steps before the trace. Add the steps after it, and weight each"
                " window by its number of steps.",
            ),
            Mistake(
                lambda about: overhead(about, "after"),
                "You used only the steps after the trace. Add the steps before it, and weight each"
                " window by its number of steps.",
            ),
            Mistake(
                lambda about: (
                    2
                    * about["trace"]["step_ns"]
                    / (about["before"]["step_ns"] + about["after"]["step_ns"])
                ),
                "You gave both windows the same weight, but they can differ in length. Weight each"
                " by its number of steps.",
            ),
        ),
        hints=(
            "Multiply `step_ns` by `steps` for each window, and divide the sum by all steps.",
            'Divide `about["trace"]["step_ns"]` by that mean.',
        ),
        insight=(
            "Report the step time without the profiler, because you normally run without it. Use"
            " the trace only to explain that time."
        ),
    ),
    Exercise(
        id="14.2",
        answer=Property(pooling_problem, example),
        mistakes=(
            Mistake(lambda data: lambda table, lines: table(lines).sum(dim=1), "computed the sum"),
            Mistake(
                lambda data: (
                    lambda table, lines: (
                        sum(table(lines[:, i]) for i in range(lines.shape[1])) / lines.shape[1]
                    )
                ),
                "in a single call",
            ),
            Mistake(
                lambda data: lambda table, lines: table.weight[lines].mean(dim=1),
                "never calls `table(...)`",
            ),
            Mistake(
                lambda data: lambda table, lines: table(lines).detach().mean(dim=1),
                "no gradient reaches",
            ),
        ),
        hints=(
            "A table accepts numbers in any shape: `table(lines)` has one dimension more than"
            " `lines`.",
            "Average over the positions, which are the second dimension (`dim=1`).",
            "Return `table(lines).mean(dim=1)`. `torch.nn.EmbeddingBag` does this in one operator.",
        ),
        insight="With a single call, there is also only a single gradient of the table.",
        needs_data=False,
    ),
    Exercise(
        id="14.3",
        measured=True,
        answer=Number(speedup, unit="times"),
        mistakes=(
            Mistake(
                lambda runs: speedup(runs, "median", "median"),
                "You compared the medians. To find the smallest speedup, compare the shortest time"
                " before with the longest time after.",
            ),
            Mistake(
                lambda runs: speedup(runs, "max", "min"),
                "You computed the largest speedup in these repeats. Compare the shortest time"
                " before with the longest time after.",
            ),
        ),
        hints=(
            'Use `min()` and `max()` of `runs.groupby("version")["seconds"]`.',
            "Divide the `min()` of `before` by the `max()` of `fixed`.",
        ),
        insight=lambda runs: (
            f"All repeats support a factor of {speedup(runs):.1f}."
            if speedup(runs) > 1
            else "The repeats overlap, so the result is inconclusive on this machine."
        ),
    ),
)

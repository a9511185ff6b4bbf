"""The exercises of lesson 14: a screen read, a cure, and the proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proflab.exercises.answers import Property, as_number
from proflab.exercises.model import Exercise, Mistake

if TYPE_CHECKING:
    import pandas as pd

HOLDS_LOG = "forward"
"""Among the parts that hooks know: `accuracy` calls the model."""

SAME_LOSS = 1e-3
"""Relative difference of losses that the order of additions explains."""


def run_and_trace(about: dict[str, Any]) -> tuple[float, float, str]:
    """Mean step in ms without the profiler, how many times as long the trace's are, and the part
    that holds the log.
    """
    windows = [about[name] for name in ("before", "after") if name in about]
    mean = sum(one["steps"] * one["step_ns"] for one in windows) / sum(
        one["steps"] for one in windows
    )
    return mean / 1e6, about["trace"]["step_ns"] / mean, HOLDS_LOG


def screen_problem(answer: Any, about: dict[str, Any]) -> str | None:
    """What is wrong with what was read off the command's screen; None if nothing."""
    if not isinstance(answer, tuple | list) or len(answer) != 3:
        return (
            "Three are asked: a step in ms, how many times as long it was in the trace, and the"
            " name of a part."
        )
    numbers = [as_number(part) for part in answer[:2]]
    if texts := [part for part in numbers if isinstance(part, str)]:
        return texts[0]
    (step, ratio), (right, longer, part) = numbers, run_and_trace(about)
    if not _near(step, right):
        return _wrong_step(step, right, about)
    if not _near(ratio, longer):
        if _near(ratio, 1 / longer):
            return "The second number is upside down: the trace's step over the run's."
        return (
            "The second number is not the trace's step over the run's; both are in the line"
            " `steps`."
        )
    name = str(answer[2]).strip().strip("`").lower()
    return (
        None
        if name == part
        else "The part: `accuracy` calls the model without training. What do hooks take that for?"
    )


def _near(found: float, right: float) -> bool:
    return abs(found - right) <= 0.02 * abs(right)


def _wrong_step(step: float, right: float, about: dict[str, Any]) -> str:
    if _near(step, about["trace"]["step_ns"] / 1e6):
        return "That is a step with the profiler on. Nobody waits for that one: report the run's."
    if _near(step, 1000 * right) or _near(step, right / 1000) or _near(step, 1e6 * right):
        return "The step is asked in milliseconds: `step_ns` is in nanoseconds."
    windows = [about[name]["step_ns"] / 1e6 for name in ("before", "after") if name in about]
    if any(_near(step, one) for one in windows):
        return "That is one of the two windows. Both count, each by its number of steps."
    if _near(step, sum(windows) / len(windows)):
        return (
            "That is the mean of the two windows, as if both had as many steps. Weigh each by its"
            " number of steps."
        )
    return "The first number is not the mean step of `before` and `after` together."


def cure_problem(answer: Any, data: Any) -> str | None:
    """What is wrong with a function that shall give the mean of a table's rows for each line; None
    if nothing.
    """
    import torch

    if not callable(answer):
        return "A function of a table and lines is asked: `def answer(table, lines): ...`."
    calls = []
    table, lines = torch.nn.Embedding(50, 8), torch.randint(50, (6, 12))
    table.register_forward_hook(lambda *_: calls.append(1))
    wanted = table.weight[lines].sum(dim=1) / lines.shape[1]
    found = answer(table, lines)
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        return (
            f"The result should be of shape {tuple(wanted.shape)}: a row for each line, as wide as"
            " the table."
        )
    if torch.allclose(found, wanted * lines.shape[1], atol=1e-5):
        return "That is the sum over the places; the script divides by their number."
    if not torch.allclose(found, wanted, atol=1e-5):
        return "These are other numbers than those of the loop: which dimension are the places?"
    if not found.requires_grad:
        return "The numbers are right, but no gradient reaches the table: it would never learn."
    return (
        None
        if len(calls) <= 1
        else f"The numbers are right, but the table is called {len(calls)} times, not once."
    )


def example_cure(data: Any) -> Callable[[Any, Any], Any]:
    """One call, then the mean over the places."""
    return lambda table, lines: table(lines).mean(dim=1)


def proof(runs: pd.DataFrame) -> tuple[float, float]:
    """The least speed-up that all repeats support, and the largest relative difference of two
    losses.
    """
    seconds = runs.groupby("script")["seconds"]
    losses = runs.groupby("script")["losses"].first()
    pairs = zip(losses["cured"], losses["before"], strict=True)
    difference = max(abs(one - other) / abs(other) for one, other in pairs)
    return float(seconds.min()["before"] / seconds.max()["cured"]), difference


def proof_problem(answer: Any, runs: pd.DataFrame) -> str | None:
    """What is wrong with the two numbers of the proof; None if nothing."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return (
            "Two numbers are asked: the least speed-up, and the largest relative difference of two"
            " losses."
        )
    numbers = [as_number(part) for part in answer]
    if texts := [part for part in numbers if isinstance(part, str)]:
        return texts[0]
    (faster, difference), (right, other) = numbers, proof(runs)
    if abs(faster - right) > 0.01 * right:
        seconds = runs.groupby("script")["seconds"]
        median = seconds.median()["before"] / seconds.median()["cured"]
        if abs(faster - median) <= 0.01 * median:
            return (
                "That is the ratio of the medians. At least: the slowest cured run against the"
                " quickest other one."
            )
        return "The first number is not the quickest run before over the slowest run after."
    if abs(difference - other) > 0.01 * other + 1e-12:
        return (
            "The second number is not the largest of all steps' relative differences: |cured -"
            " before| / before."
        )
    return (
        None
        if other < SAME_LOSS
        else f"The numbers are right, but losses differ by {other:.1e}: that is no cure."
    )


EXERCISES = (
    Exercise(
        id="14.1",
        measured=True,
        answer=Property(screen_problem, run_and_trace),
        mistakes=(
            Mistake(
                lambda about: (about["trace"]["step_ns"] / 1e6, 1.0, HOLDS_LOG),
                "Nobody waits for that one",
            ),
            Mistake(
                lambda about: (run_and_trace(about)[0], 1 / run_and_trace(about)[1], HOLDS_LOG),
                "upside down",
            ),
            Mistake(
                lambda about: (*run_and_trace(about)[:2], "other"), "What do hooks take that for"
            ),
        ),
        hints=(
            "The line `steps` has both lengths: the one without the profiler is the run.",
            "`accuracy` calls the model; compare the bars of hooks and block.",
            (
                '`sum(one["steps"] * one["step_ns"] for one in windows)` over the sum of their'
                " steps; 1e6 ns are a ms."
            ),
        ),
        insight=lambda about: (
            f"{run_and_trace(about)[0]:.3g} ms is the run. The trace explains; its steps took "
            f"{run_and_trace(about)[1]:.2g} times as long here, and are none to report."
        ),
    ),
    Exercise(
        id="14.2",
        answer=Property(cure_problem, example_cure),
        mistakes=(
            Mistake(
                lambda data: lambda table, lines: table(lines).sum(dim=1),
                "That is the sum over the places",
            ),
            Mistake(
                lambda data: (
                    lambda table, lines: (
                        sum(table(lines[:, i]) for i in range(lines.shape[1])) / lines.shape[1]
                    )
                ),
                "times, not once",
            ),
            Mistake(
                lambda data: lambda table, lines: table(lines).detach().mean(dim=1),
                "no gradient reaches",
            ),
        ),
        hints=(
            (
                "A table takes numbers in any shape: `table(lines)` has one dimension more than"
                " `lines`."
            ),
            "The places are the second dimension of `lines`, so `dim=1`.",
            (
                "`return table(lines).mean(dim=1)`; `torch.nn.EmbeddingBag` does the same in one"
                " operator."
            ),
        ),
        insight="One call, one gradient of the table.",
        needs_data=False,
    ),
    Exercise(
        id="14.3",
        measured=True,
        answer=Property(proof_problem, proof),
        mistakes=(
            Mistake(
                lambda runs: (1 / proof(runs)[0], proof(runs)[1]), "the quickest run before over"
            ),
            Mistake(
                lambda runs: (proof(runs)[0], 1.0), "the largest of all steps' relative differences"
            ),
            Mistake(lambda runs: proof(runs)[0], "Two numbers are asked"),
        ),
        hints=(
            '`runs.groupby("script")["seconds"]` has a `min()` and a `max()` for each script.',
            (
                "Every run has the list of its losses, the same in each repeat: take the first of"
                " each script."
            ),
            "`max(abs(one - other) / other for one, other in zip(cured, before))`",
        ),
        insight=lambda runs: (
            (
                f"At least {proof(runs)[0]:.1f} times faster"
                if proof(runs)[0] > 1
                else "The repeats overlap, so this machine can't tell"
            )
            + (
                f", and the losses agree to {proof(runs)[1]:.0e}: numbers were added in another"
                " order, nothing more."
                if proof(runs)[1]
                else ", and the losses are the same to the last digit."
            )
        ),
    ),
)

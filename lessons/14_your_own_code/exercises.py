"""The exercises of lesson 14: calls too many, a cure, and the proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proflab.exercises.answers import Property, as_number
from proflab.exercises.model import Exercise, Mistake

if TYPE_CHECKING:
    import pandas as pd

BACKWARD = "aten::embedding_dense_backward"

SAME_LOSS = 1e-3
"""Relative difference of losses that the order of additions explains."""


def calls_and_share(data: tuple[pd.DataFrame, pd.DataFrame]) -> tuple[float, float]:
    """Calls of the table's backward function in each step, and their share of the backward pass in percent."""
    backward, ranges = data
    own = backward.loc[backward["name"] == BACKWARD, "dur"]
    return len(own) / len(ranges), float(100 * own.sum() / ranges["dur"].sum())


def calls_problem(answer: Any, data: tuple[pd.DataFrame, pd.DataFrame]) -> str | None:
    """What is wrong with the two numbers; None if nothing."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return "Two numbers are asked: calls in a step, and their share of the time in percent."
    numbers = [as_number(part) for part in answer]
    if texts := [part for part in numbers if isinstance(part, str)]:
        return texts[0]
    (calls, share), (right_calls, right_share) = numbers, calls_and_share(data)
    if abs(calls - right_calls * len(data[1])) < 0.01:
        return "That counts the calls of all recorded steps. Divide by their number, which is that of the ranges."
    if abs(calls - len(data[0]) / len(data[1])) < 0.01:
        return "These are all operators of the range. Count those of this name."
    if abs(calls - right_calls) > 0.01:
        return "The first number is not the calls of this name in a step."
    return (
        None
        if abs(share - right_share) < 0.5
        else "The share: `dur` of these calls over `dur` of the ranges, times 100."
    )


def cure_problem(answer: Any, data: Any) -> str | None:
    """What is wrong with a function that shall give the mean of a table's rows for each line; None if nothing."""
    import torch

    if not callable(answer):
        return "A function of a table and lines is asked: `def answer(table, lines): ...`."
    calls = []
    table, lines = torch.nn.Embedding(50, 8), torch.randint(50, (6, 12))
    table.register_forward_hook(lambda *_: calls.append(1))
    wanted = table.weight[lines].sum(dim=1) / lines.shape[1]
    found = answer(table, lines)
    if not isinstance(found, torch.Tensor) or found.shape != wanted.shape:
        return f"The result should be of shape {tuple(wanted.shape)}: a row for each line, as wide as the table."
    if torch.allclose(found, wanted * lines.shape[1], atol=1e-5):
        return "That is the sum over the places; the script divides by their number."
    if not torch.allclose(found, wanted, atol=1e-5):
        return "These are other numbers than those of the loop: which dimension are the places?"
    if not found.requires_grad:
        return "The numbers are right, but no gradient reaches the table: it would never learn."
    return None if len(calls) <= 1 else f"The numbers are right, but the table is called {len(calls)} times, not once."


def example_cure(data: Any) -> Callable[[Any, Any], Any]:
    """One call, then the mean over the places."""
    return lambda table, lines: table(lines).mean(dim=1)


def proof(runs: pd.DataFrame) -> tuple[float, float]:
    """The least speed-up that all repeats support, and the largest relative difference of two losses."""
    seconds = runs.groupby("script")["seconds"]
    losses = runs.groupby("script")["losses"].first()
    pairs = zip(losses["cured"], losses["before"], strict=True)
    difference = max(abs(one - other) / abs(other) for one, other in pairs)
    return float(seconds.min()["before"] / seconds.max()["cured"]), difference


def proof_problem(answer: Any, runs: pd.DataFrame) -> str | None:
    """What is wrong with the two numbers of the proof; None if nothing."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return "Two numbers are asked: the least speed-up, and the largest relative difference of two losses."
    numbers = [as_number(part) for part in answer]
    if texts := [part for part in numbers if isinstance(part, str)]:
        return texts[0]
    (faster, difference), (right, other) = numbers, proof(runs)
    if abs(faster - right) > 0.01 * right:
        seconds = runs.groupby("script")["seconds"]
        median = seconds.median()["before"] / seconds.median()["cured"]
        if abs(faster - median) <= 0.01 * median:
            return "That is the ratio of the medians. At least: the slowest cured run against the quickest other one."
        return "The first number is not the quickest run before over the slowest run after."
    if abs(difference - other) > 0.01 * other + 1e-12:
        return "The second number is not the largest of all steps' relative differences: |cured - before| / before."
    return None if other < SAME_LOSS else f"The numbers are right, but losses differ by {other:.1e}: that is no cure."


EXERCISES = (
    Exercise(
        id="14.1",
        measured=True,
        answer=Property(calls_problem, calls_and_share),
        mistakes=(
            Mistake(lambda data: (calls_and_share(data)[0] * len(data[1]), 50), "all recorded steps"),
            Mistake(lambda data: (len(data[0]) / len(data[1]), 50), "all operators of the range"),
            Mistake(lambda data: (calls_and_share(data)[0], calls_and_share(data)[1] / 100), "times 100"),
        ),
        hints=(
            "Each row of `backward` is one call; its name is in the column `name`.",
            "There is one range for each recorded step: `len(ranges)` of them.",
            f'`own = backward[backward["name"] == "{BACKWARD}"]`, then its length, and the sum of its `dur`.',
        ),
        insight="As many as a line has places: the loop in `forward` calls the table once for each of them.",
    ),
    Exercise(
        id="14.2",
        answer=Property(cure_problem, example_cure),
        mistakes=(
            Mistake(lambda data: lambda table, lines: table(lines).sum(dim=1), "That is the sum over the places"),
            Mistake(
                lambda data: (
                    lambda table, lines: sum(table(lines[:, i]) for i in range(lines.shape[1])) / lines.shape[1]
                ),
                "times, not once",
            ),
            Mistake(lambda data: lambda table, lines: table(lines).detach().mean(dim=1), "no gradient reaches"),
        ),
        hints=(
            "A table takes numbers in any shape: `table(lines)` has one dimension more than `lines`.",
            "The places are the second dimension of `lines`, so `dim=1`.",
            "`return table(lines).mean(dim=1)`; `torch.nn.EmbeddingBag` does the same in one operator.",
        ),
        insight="One call, one gradient of the table.",
        needs_data=False,
    ),
    Exercise(
        id="14.3",
        measured=True,
        answer=Property(proof_problem, proof),
        mistakes=(
            Mistake(lambda runs: (1 / proof(runs)[0], proof(runs)[1]), "the quickest run before over"),
            Mistake(lambda runs: (proof(runs)[0], 1.0), "the largest of all steps' relative differences"),
            Mistake(lambda runs: proof(runs)[0], "Two numbers are asked"),
        ),
        hints=(
            '`runs.groupby("script")["seconds"]` has a `min()` and a `max()` for each script.',
            "Every run has the list of its losses, the same in each repeat: take the first of each script.",
            "`max(abs(one - other) / other for one, other in zip(cured, before))`",
        ),
        insight=lambda runs: (
            (
                f"At least {proof(runs)[0]:.1f} times faster"
                if proof(runs)[0] > 1
                else "The repeats overlap, so this machine can't tell"
            )
            + (
                f", and the losses agree to {proof(runs)[1]:.0e}: numbers were added in another order, nothing more."
                if proof(runs)[1]
                else ", and the losses are the same to the last digit."
            )
        ),
    ),
)

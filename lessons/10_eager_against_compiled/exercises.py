"""Exercises of lesson 10, eager versus compiled: about times, profiles, and a function that the
learner writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

STEADY_FROM = 3
"""The first call that counts as steady, because the second call can be slow as well."""


def first_and_steady(times: pd.DataFrame) -> tuple[float, float, float]:
    """Return the milliseconds of the first compiled call, and of a steady call (median), compiled
    and eager.
    """
    first = times.query("how == 'compiled' and call == 0")["ms"].iloc[0]
    steady = times[times["call"] >= STEADY_FROM].groupby("how")["ms"].median()
    return float(first), float(steady["compiled"]), float(steady["eager"])


def paid_after(times: pd.DataFrame, subtract: bool = True) -> float:
    """Return the number of calls after which compiling has paid for itself. The cost is the whole
    first call unless `subtract`. Raises ValueError if a compiled call isn't faster.
    """
    first, compiled, eager = first_and_steady(times)
    if compiled >= eager:
        raise ValueError("a compiled call is not faster here, so compiling never pays")
    return (first - compiled * subtract) / (eager - compiled)


def paid_after_by_means(times: pd.DataFrame) -> float:
    """Return the wrong answer that uses means and includes the first call."""
    means = times.groupby("how")["ms"].mean()
    return (first_and_steady(times)[0] - means["compiled"]) / (means["eager"] - means["compiled"])


def mean_ms(run: Profile, phase: str | None = None) -> float:
    """Return the milliseconds of a mean step, or of one of its phases."""
    steps, phases = tidyprof.steps(run), tidyprof.phases(run)
    rows = steps if phase is None else phases[phases["phase"] == phase]
    return float(rows["duration_ns"].sum() / len(steps) / 1e6)


def saved_ms(pair: dict[str, Profile], phase: str | None = None) -> float:
    """Return the milliseconds that a compiled step, or a phase of it, takes less than an eager one."""
    return mean_ms(pair["eager"], phase) - mean_ms(pair["compiled"], phase)


def repair_problem(answer: Any, data: tuple[Any, Any]) -> str | None:
    """Return what is wrong with a repaired function, or None if it is one graph with the same
    results.
    """
    import torch

    careful, batch = data
    if not callable(answer):
        return (
            "You gave a result. Give the function itself: `answer = repaired`, without parentheses."
        )
    for scale, where in ((1, ""), (1e5, " for large values")):
        if not torch.allclose(answer(scale * batch), careful(scale * batch), rtol=1e-4):
            return (
                f"Your function doesn't return the same results as `careful`{where}. Compare the"
                " two functions."
            )
    torch._dynamo.reset()
    found = torch._dynamo.explain(answer)(batch)
    if found.graph_break_count:
        reason = str(found.break_reasons[0].reason).splitlines()[0]
        return f"There are still {found.graph_count} graphs. The reason is: {reason}."
    return None


def _clamped(data: tuple[Any, Any], low: float = -1e3, add: float = 1) -> Callable[[Any], Any]:
    careful, _ = data
    return lambda x: type(careful).__mro__[1].forward(careful, x).clamp(low, 1e3) + add


def _saved_in(phase: str) -> Mistake:
    """Return the mistake of computing the share of another phase."""
    return Mistake(
        lambda data: 100 * saved_ms(data, phase) / saved_ms(data),
        f"You computed the share of the `{phase}` phase. Use the `optimizer` phase instead.",
    )


EXERCISES = (
    Exercise(
        id="10.1",
        answer=Number(paid_after, unit="calls", relative=2.5e-4),
        mistakes=(
            Mistake(
                lambda times: paid_after(times, subtract=False),
                "Your number is slightly off, because you didn't subtract a steady call from the"
                " first, or rounded early. Subtract the compiled median, and round at the end.",
            ),
            Mistake(
                lambda times: first_and_steady(times)[0] / first_and_steady(times)[2],
                "You divided the first call by an eager call. Divide the extra time of the first"
                " call by the time that each later call saves (eager minus compiled).",
            ),
            Mistake(
                lambda times: first_and_steady(times)[0] / first_and_steady(times)[1],
                "You divided the first call by a compiled call. Divide the extra time of the first"
                " call by the time that each later call saves (eager minus compiled).",
            ),
            Mistake(
                paid_after_by_means,
                "You used the means of all calls, which include the slow first call. Use the"
                " medians from call 3 on.",
            ),
        ),
        hints=(
            (
                "Compute the cost, which is the time of the first compiled call minus the time of a"
                " steady one. Then compute the time that each steady compiled call saves."
            ),
            'Compute the medians: `recorded[recorded["call"] >= 3].groupby("how")["ms"].median()`.',
            'Compute `(first_call - steady["compiled"]) / (steady["eager"] - steady["compiled"])`.',
        ),
        insight=lambda data: (
            f"The first call takes {first_and_steady(data)[0] / 1e3:.1f} s, and each steady call saves"
            f" {first_and_steady(data)[2] - first_and_steady(data)[1]:.2f} ms."
        ),
    ),
    Exercise(
        id="10.2",
        answer=Number(
            lambda data: 100 * saved_ms(data, "optimizer") / saved_ms(data), unit="percent"
        ),
        mistakes=(
            _saved_in("forward"),
            _saved_in("backward"),
            Mistake(
                lambda data: saved_ms(data, "optimizer"),
                "You gave the answer in milliseconds. Divide it by the milliseconds saved in the"
                " whole step, and multiply by 100.",
            ),
            Mistake(
                lambda data: 100 * saved_ms(data, "optimizer") / mean_ms(data["eager"]),
                "You divided by the eager step time. Divide by the time saved in the step, which is"
                " eager minus compiled.",
            ),
            Mistake(
                lambda data: (
                    100 * saved_ms(data, "optimizer") / mean_ms(data["eager"], "optimizer")
                ),
                "You computed a share of the optimizer's own time. Divide by the time saved in the"
                " whole step.",
            ),
            Mistake(
                lambda data: 100 * saved_ms(data) / mean_ms(data["eager"]),
                "You computed how much shorter the whole step became. Compute the percentage of"
                " that difference that the optimizer accounts for.",
            ),
        ),
        hints=(
            "Compute two differences: one for the whole step, and one for the `optimizer` phase.",
            (
                'Compute `step_ms["eager"] - step_ms["compiled"]`, and the same difference for'
                ' `phases[how]["optimizer"]`.'
            ),
            "Divide the optimizer's difference by the step's difference, and multiply by 100.",
        ),
        insight="The compiler never saw the optimizer, so the machine changed, not the code.",
    ),
    Exercise(
        id="10.3",
        answer=Property(repair_problem, _clamped),
        mistakes=(
            Mistake(lambda data: data[0], "There are still 2 graphs"),
            Mistake(lambda data: data[1], "Give the function itself"),
        ),
        hints=(
            "Replace the `if` statement, which breaks the graph because it needs a Python value.",
            "Use `clamp` without a condition, because it doesn't change values within the limits.",
            "Return `Block.forward(careful, x).clamp(-1e3, 1e3) + 1`.",
        ),
        insight=(
            "If the branches differ more than here, use `torch.where(condition, a, b)`, which"
            " selects from the results of both branches."
        ),
    ),
)

"""Exercises of lesson 10, eager against compiled: on times, on profiles, and on a function of the
learner's.
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
"""The first call that counts as steady: the second one can be slow as well."""


def first_and_steady(times: pd.DataFrame) -> tuple[float, float, float]:
    """Milliseconds of the first compiled call, and the medians of steady calls, compiled and
    eager.
    """
    compiled = times[times["how"] == "compiled"].sort_values("call")
    steady = times[times["call"] >= STEADY_FROM].groupby("how")["ms"].median()
    return float(compiled["ms"].iloc[0]), float(steady["compiled"]), float(steady["eager"])


def paid_after(times: pd.DataFrame) -> float:
    """Calls until compiling has paid. Raises ValueError if a compiled call is not faster."""
    first, compiled, eager = first_and_steady(times)
    if compiled >= eager:
        raise ValueError("a compiled call is not faster here, so compiling never pays")
    return (first - compiled) / (eager - compiled)


def _cost_in_eager_calls(times: pd.DataFrame) -> float:
    first, _, eager = first_and_steady(times)
    return first / eager


def _cost_in_compiled_calls(times: pd.DataFrame) -> float:
    first, compiled, _ = first_and_steady(times)
    return first / compiled


def _with_mean(times: pd.DataFrame) -> float:
    """The wrong answer that takes means with the first call among them."""
    means = times.groupby("how")["ms"].mean()
    return (first_and_steady(times)[0] - means["compiled"]) / (means["eager"] - means["compiled"])


def shorter_ms(pair: dict[str, Profile], phase: str | None = None) -> float:
    """By how many ms a mean step, or one of its phases, is shorter in the compiled run than in the
    eager one.
    """
    means = {
        how: _step_ms(run) if phase is None else _phase_ms(run, phase) for how, run in pair.items()
    }
    return means["eager"] - means["compiled"]


def _step_ms(run: Profile) -> float:
    return float(tidyprof.steps(run)["duration_ns"].mean() / 1e6)


def _phase_ms(run: Profile, phase: str) -> float:
    """One phase of a mean step."""
    phases = tidyprof.phases(run)
    spent = phases.loc[phases["phase"] == phase, "duration_ns"].sum()
    return float(spent / len(tidyprof.steps(run)) / 1e6)


def repair_problem(answer: Any, data: tuple[Any, Any]) -> str | None:
    """What is wrong with a repaired function, None if it is one graph and gives the results of the
    broken model.
    """
    import torch

    careful, batch = data
    if not callable(answer):
        return "A function is asked: `answer = repaired`, without brackets."
    for scale in (1, 1e5):
        if not torch.allclose(answer(scale * batch), careful(scale * batch), rtol=1e-4):
            return "It gives other results than `careful`" + (
                " where values are large." if scale > 1 else "."
            )
    torch._dynamo.reset()
    found = torch._dynamo.explain(answer)(batch)
    if found.graph_break_count:
        return (
            f"There are still {found.graph_count} graphs:"
            f" {str(found.break_reasons[0].reason).splitlines()[0]}."
        )
    return None


def _clamped(data: tuple[Any, Any], low: float = -1e3, add: float = 1) -> Callable[[Any], Any]:
    careful, _ = data
    return lambda x: type(careful).__mro__[1].forward(careful, x).clamp(low, 1e3) + add


EXERCISES = (
    Exercise(
        id="10.1",
        answer=Number(paid_after, unit="calls", relative=0.02),
        mistakes=(
            Mistake(
                _cost_in_eager_calls,
                "So many eager calls last as long as the first compiled one. But each later call"
                " saves only the difference of the two.",
            ),
            Mistake(
                _cost_in_compiled_calls,
                "So many compiled calls last as long as the first one. Divide by what each later"
                " call saves.",
            ),
            Mistake(
                _with_mean,
                "The mean holds the first call, which is in another world: take medians from"
                " call 3.",
            ),
        ),
        hints=(
            (
                "The cost is what the first compiled call takes beyond a steady one; each steady"
                " call saves a little."
            ),
            'Steady medians: `recorded[recorded["call"] >= 3].groupby("how")["ms"].median()`.',
            '`(first - steady["compiled"]) / (steady["eager"] - steady["compiled"])`',
        ),
        insight=lambda data: (
            f"The first call takes {first_and_steady(data)[0] / 1e3:.1f} s, and a steady one saves "
            f"{first_and_steady(data)[2] - first_and_steady(data)[1]:.2f} ms."
        ),
    ),
    Exercise(
        id="10.2",
        answer=Number(
            lambda data: 100 * shorter_ms(data, "optimizer") / shorter_ms(data), unit="percent"
        ),
        mistakes=(
            Mistake(
                lambda data: 100 * shorter_ms(data, "forward") / shorter_ms(data),
                "That is the part of `forward`. The optimizer's is asked.",
            ),
            Mistake(
                lambda data: 100 - 100 * shorter_ms(data, "optimizer") / shorter_ms(data),
                "That is what was saved in all other phases.",
            ),
            Mistake(
                lambda data: 100 * shorter_ms(data, "optimizer") / _step_ms(data["eager"]),
                "You divided by the eager step. The whole is what the step saved: eager less"
                " compiled.",
            ),
            Mistake(
                lambda data: (
                    100 * shorter_ms(data, "optimizer") / _phase_ms(data["eager"], "optimizer")
                ),
                "That is by how much the optimizer became shorter, a share of its own time. The"
                " whole is what the step saved.",
            ),
            Mistake(
                lambda data: 100 * shorter_ms(data, "backward") / shorter_ms(data),
                "That is the part of `backward`. The optimizer's is asked.",
            ),
            Mistake(
                lambda data: 100 * shorter_ms(data) / _step_ms(data["eager"]),
                "That is by how much the step became shorter. Which part of that does the optimizer"
                " have?",
            ),
        ),
        hints=(
            "Two differences: of the whole step, and of its phase `optimizer`.",
            (
                '`step_ms["eager"] - step_ms["compiled"]` is the first; `phases[how]["optimizer"]`'
                " gives the second."
            ),
            '`100 * (phases["eager"]["optimizer"] - phases["compiled"]["optimizer"]) / shorter`',
        ),
        insight="The compiler never saw the optimizer. So the machine changed, not the code.",
    ),
    Exercise(
        id="10.3",
        answer=Property(repair_problem, _clamped),
        mistakes=(
            Mistake(lambda data: data[0], "There are still 2 graphs"),
            Mistake(lambda data: _clamped(data, add=0), "It gives other results than `careful`."),
            Mistake(lambda data: _clamped(data, low=0), "It gives other results"),
            Mistake(lambda data: data[1], "A function is asked"),
        ),
        hints=(
            (
                "What breaks the graph is the `if`: it needs a value in Python. Do the same without"
                " asking."
            ),
            "`clamp` leaves what lies inside of its limits as it is.",
            "`return Block.forward(careful, x).clamp(-1e3, 1e3) + 1`",
        ),
        insight=(
            "Where both branches differ more, `torch.where(condition, a, b)` computes both and"
            " chooses."
        ),
    ),
)

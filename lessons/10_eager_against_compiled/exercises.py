"""Exercises of lesson 10, eager against compiled: on times, on profiles, and on a function of the learner's."""

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
    """Milliseconds of the first compiled call, and the medians of steady calls, compiled and eager."""
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
    """By how many ms a mean step, or one of its phases, is shorter in the compiled run than in the eager one."""
    means = {}
    for how, profile in pair.items():
        steps, phases = tidyprof.steps(profile), tidyprof.phases(profile)
        spent = steps if phase is None else phases[phases["phase"] == phase]
        means[how] = spent["duration_ns"].sum() / len(steps) / 1e6
    return means["eager"] - means["compiled"]


def _step_ms(run: Profile) -> float:
    return float(tidyprof.steps(run)["duration_ns"].mean() / 1e6)


def generated(profile: Profile) -> pd.Series:
    """For each row of `kernels` whether torch.compile generated it."""
    return tidyprof.kernels(profile)["name"].str.startswith("triton_")


def compiling_share(profile: Profile, name: str = "entire_frame_compile") -> float:
    """Time in events of this name, in percent of all steps."""
    events = profile.events
    spent = events.loc[events["name"] == name, "duration_ns"].sum()
    return float(100 * spent / tidyprof.steps(profile)["duration_ns"].sum())


def regions(profile: Profile) -> pd.DataFrame:
    """Runs of compiled graphs, in order."""
    return profile.events[profile.events["name"].astype(str).str.startswith("Torch-Compiled Region")]


def regions_of_last_step(profile: Profile) -> int:
    """How many graphs the last step runs."""
    return int((regions(profile)["start_ns"] >= tidyprof.steps(profile)["start_ns"].max()).sum())


def repair_problem(answer: Any, data: tuple[Any, Any]) -> str | None:
    """What is wrong with a repaired function, None if it is one graph and gives the results of the broken model."""
    import torch

    careful, batch = data
    if not callable(answer):
        return "A function is asked: `answer = repaired`, without brackets."
    for scale in (1, 1e5):
        if not torch.allclose(answer(scale * batch), careful(scale * batch), rtol=1e-4):
            return "It gives other results than `careful`" + (" where values are large." if scale > 1 else ".")
    torch._dynamo.reset()
    found = torch._dynamo.explain(answer)(batch)
    if found.graph_break_count:
        return f"There are still {found.graph_count} graphs: {str(found.break_reasons[0].reason).splitlines()[0]}."
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
                "So many eager calls last as long as the first compiled one. But each later call saves only the "
                "difference of the two.",
            ),
            Mistake(
                _cost_in_compiled_calls,
                "So many compiled calls last as long as the first one. Divide by what each later call saves.",
            ),
            Mistake(_with_mean, "The mean holds the first call, which is in another world: take medians from call 3."),
        ),
        hints=(
            "The cost is what the first compiled call takes beyond a steady one; each steady call saves a little.",
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
        answer=Number(lambda data: 100 * shorter_ms(data, "optimizer") / shorter_ms(data), unit="percent"),
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
                "You divided by the eager step. The whole is what the step saved: eager less compiled.",
            ),
            Mistake(
                lambda data: 100 * shorter_ms(data) / _step_ms(data["eager"]),
                "That is by how much the step became shorter. Which part of that does the optimizer have?",
            ),
        ),
        hints=(
            "Two differences: of the whole step, and of its phase `optimizer`.",
            '`step_ms["eager"] - step_ms["compiled"]` is the first; `phases[how]["optimizer"]` gives the second.',
            '`100 * (phases["eager"]["optimizer"] - phases["compiled"]["optimizer"]) / shorter`',
        ),
        insight="The compiler never saw the optimizer. So the machine changed, not the code.",
    ),
    Exercise(
        id="10.3",
        answer=Number(lambda data: tidyprof.kernels(data).loc[generated(data), "percent"].sum(), unit="percent"),
        mistakes=(
            Mistake(
                lambda data: tidyprof.kernels(data).loc[~generated(data), "percent"].sum(),
                "That is the share of the kernels from libraries.",
            ),
            Mistake(
                lambda data: 100 * generated(data).mean(),
                "You counted names. The share of the time is asked.",
            ),
        ),
        hints=(
            "Generated kernels have names that begin with `triton_`.",
            '`table["name"].str.startswith("triton_")` marks the rows.',
            "Add up `percent` of these rows.",
        ),
        insight="What the compiler generates is small here: most of the time is in products and attention.",
    ),
    Exercise(
        id="10.4",
        answer=Property(repair_problem, _clamped),
        mistakes=(
            Mistake(lambda data: data[0], "There are still 2 graphs"),
            Mistake(lambda data: _clamped(data, add=0), "It gives other results than `careful`."),
            Mistake(lambda data: _clamped(data, low=0), "It gives other results"),
            Mistake(lambda data: data[1], "A function is asked"),
        ),
        hints=(
            "What breaks the graph is the `if`: it needs a value in Python. Do the same without asking.",
            "`clamp` leaves what lies inside of its limits as it is.",
            "`return Block.forward(careful, x).clamp(-1e3, 1e3) + 1`",
        ),
        insight="Where both branches differ more, `torch.where(condition, a, b)` computes both and chooses.",
    ),
    Exercise(
        id="10.5",
        answer=Number(compiling_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda data: (
                    100 * tidyprof.steps(data)["duration_ns"].iloc[0] / tidyprof.steps(data)["duration_ns"].sum()
                ),
                "That is the share of the first step. Later steps compile as well.",
            ),
            Mistake(
                lambda data: compiling_share(data, "forward"),
                "That is the range `forward`, in which graphs run as well.",
            ),
        ),
        hints=(
            "One sum over events, one over steps.",
            '`unseen.events["name"] == "entire_frame_compile"` marks the compilations.',
            'Divide their `duration_ns` by that of `tidyprof.steps(unseen)["duration_ns"].sum()`.',
        ),
        insight=lambda data: (
            f"{int((data.events['name'] == 'entire_frame_compile').sum())} compilations, and not all in the first "
            "step: let a profiler wait until all sizes were seen."
        ),
    ),
    Exercise(
        id="10.6",
        answer=Number(lambda data: regions_of_last_step(data) - 1, relative=0),
        mistakes=(
            Mistake(regions_of_last_step, "So many graphs run in a step. The breaks lie between them."),
            Mistake(
                lambda data: len(regions(data)),
                "Those are the regions of all steps: take the last step alone.",
            ),
        ),
        hints=(
            "A region is a run of a graph, and between two graphs of a step there is a break.",
            "Choose the regions that start in the last step: `start_ns` at or after the step's.",
            "One less than the number of these regions.",
        ),
        insight="The names say more: `1/2` is the second graph in its third version.",
    ),
)

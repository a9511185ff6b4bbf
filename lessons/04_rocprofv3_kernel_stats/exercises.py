"""Exercises of lesson 04: which kernels, how often, how small?

Steady parts and budgets come from `parts.steady_part`, published tables from `parts.published_kernels`.
"""

from __future__ import annotations

import contextlib
import io
import shlex
from argparse import Namespace
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.published_kernels import STEPS, all_kernels_ns

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.steady_part import SteadyPart

MOST_OF_THE_TIME = 0.8
"""Pareto's share: how many kernel names carry this much of the time?"""

IDLE_PARTS = ["launch_bound_ns", "blocked_host_ns", "data_wait_ns", "other_ns"]
"""Parts of `tidyprof.step_budget` in which nothing runs on the device."""

OLD_COMMAND = "rocprof --stats --roctx-trace --basenames on python train.py"
"""What exercise 04.6 translates. The mapping of options: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk,
source/docs/conceptual/comparing-with-legacy-tools.rst."""

PROGRAM = ["python", "train.py"]
NEW_COMMAND = (
    "rocprofv3 --kernel-trace --marker-trace --stats --truncate-kernels --output-format csv -- python train.py"
)


def dispatches_per_step(steady: SteadyPart) -> float:
    """Everything that ran on the device, copies included, by step."""
    return len(steady.dispatches) / steady.steps


def kernels_alone_per_step(steady: SteadyPart) -> float:
    """The same without what tidyprof calls a copy or a fill."""
    return float(steady.dispatches["kind"].isin(["kernel", "collective"]).sum() / steady.steps)


def steady_table(steady: SteadyPart) -> pd.DataFrame:
    """All dispatches of the steady steps by name, as rocprofv3's own statistics count them."""
    return tidyprof.kernels(steady.profile, include=tidyprof.DEVICE_KINDS)


def names_for_most(table: pd.DataFrame, column: str = "total_ns") -> int:
    """How many names, the largest first, it takes to reach MOST_OF_THE_TIME of a column's sum."""
    ordered = table[column].sort_values(ascending=False)
    return int((ordered.cumsum() < MOST_OF_THE_TIME * ordered.sum()).sum()) + 1


def share_of_step(steady: SteadyPart) -> float:
    """Time of the largest name in percent of the steady steps."""
    return float(100 * steady_table(steady)["total_ns"].iloc[0] / steady.duration_ns)


def idle_shares(budgets: pd.DataFrame) -> pd.Series:
    """Percent of each row's step in which nothing ran on the device."""
    return 100 * budgets[IDLE_PARTS].sum(axis=1) / budgets["duration_ns"]


def lost_idle(budgets: pd.DataFrame) -> float:
    """By how many percentage points the idle share is lower in the last row than in the first."""
    shares = idle_shares(budgets)
    return float(shares.iloc[0] - shares.iloc[-1])


def work_per_step_ms(table: pd.DataFrame, steps: int = STEPS["parallel"]) -> float:
    """Milliseconds of kernels other than collectives in each step of a published run."""
    waiting = table.loc[table["category"] == "collective", "total_ns"].sum()
    return float((all_kernels_ns(table) - waiting) / steps / 1e6)


def listed_work_per_step_ms(table: pd.DataFrame) -> float:
    """The same of the listed rows alone."""
    return float(table.loc[table["category"] != "collective", "total_ns"].sum() / STEPS["parallel"] / 1e6)


def command_problem(answer: Any, data: Any = None) -> str | None:
    """What is wrong with a rocprofv3 command line as a translation of OLD_COMMAND, None if it does the same."""
    if not isinstance(answer, str):
        return f"A command line is asked, as text; this is a {type(answer).__name__}."
    try:
        words = shlex.split(answer)
    except ValueError as error:
        return f"A shell can't read this: {error}."
    if words[:1] != ["rocprofv3"]:
        return "The command begins with `rocprofv3`."
    if "--" not in words:
        return "Where do the tool's options end and the program begin? rocprofv3 wants `--` between them."
    if words[words.index("--") + 1 :] != PROGRAM:
        return f"Behind `--` stands the program as it is started without a profiler: `{' '.join(PROGRAM)}`."
    options = _options(words[1:])
    return options if isinstance(options, str) else _missing_option(options)


def _options(words: list[str]) -> Namespace | str:
    """The options as rocprofv3 reads them, or what it says against them."""
    from proflab.standins.rocprofv3_options import parse

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return parse(words)[0]
    except SystemExit:
        lines = said.getvalue().strip().splitlines() or [""]
        return f"rocprofv3 does not start the program; it says `{lines[-1].strip()}`."


def _missing_option(options: Namespace) -> str | None:
    from proflab.standins.rocprofv3_options import enabled_domains

    domains = enabled_domains(options)
    if "kernel_trace" not in domains:
        return (
            "No kernel would be recorded: `--stats` only sums up what is traced, and other traces hold no kernels. "
            "Add `--kernel-trace`."
        )
    if "marker_trace" not in domains:
        return "The ROCTX ranges are lost: what is `--roctx-trace` called now?"
    if not options.stats:
        return "It records, but makes no statistics: `--stats` is missing."
    if not options.truncate_kernels:
        return "Names stay long: what is `--basenames on` called now?"
    if "csv" not in (options.output_format or ()):
        return "It names no format, so ROCm 7 writes a database and no CSV. Add `--output-format csv`."
    return None


EXERCISES = (
    Exercise(
        id="04.1",
        answer=Number(dispatches_per_step, relative=0.02),
        mistakes=(
            Mistake(
                lambda data: len(steady_table(data)),
                "These are the different names. Each is called many times: count the rows of `steady.dispatches`.",
            ),
            Mistake(
                lambda data: len(data.dispatches),
                lambda data: f"That is the number in all {data.steps} steady steps: divide by `steady.steps`.",
            ),
            Mistake(
                kernels_alone_per_step,
                "Copies and fills are left out here. rocprofv3 counts them, as the runtime does them with kernels.",
            ),
        ),
        hints=(
            "`steady.dispatches` has a row per kernel, copy and fill of all steady steps.",
            "`steady.steps` is the number of steps in which they ran.",
            "`len(steady.dispatches) / steady.steps`",
        ),
        insight=lambda data: (
            f"A step lasts {data.step_ns / 1e6:.1f} ms, so one is due every "
            f"{data.step_ns / dispatches_per_step(data) / 1e3:.0f} µs. Remember this number."
        ),
    ),
    Exercise(
        id="04.2",
        answer=Number(names_for_most, relative=0),
        mistakes=(
            Mistake(
                lambda data: names_for_most(data, "calls"),
                "That many names make up 80 % of the calls. The time is asked: `total_ns`, or `percent`.",
            ),
            Mistake(
                lambda data: names_for_most(data) - 1,
                "Nearly: these names stay just below 80 %. Count the one that crosses the line too.",
            ),
            Mistake(
                lambda data: round(MOST_OF_THE_TIME * len(data)),
                "That is 80 % of the names. How many of the largest does it take for 80 % of the time?",
            ),
        ),
        hints=(
            "`table` is sorted by total time, the largest first.",
            "`percent` is each name's share; `cumsum()` adds up from the top.",
            '`(table["percent"].cumsum() < 80).sum()` counts those that stay below, the next one crosses the line.',
        ),
        insight=lambda data: f"Of {len(data)} names. The largest alone has {data['percent'].iloc[0]:.0f} %.",
    ),
    Exercise(
        id="04.3",
        answer=Number(share_of_step, unit="percent", relative=0.02),
        mistakes=(
            Mistake(
                lambda data: float(steady_table(data)["percent"].iloc[0]),
                "That is its share of the kernel time. Divide its time by the time of the steps, idle time included.",
            ),
            Mistake(
                lambda data: share_of_step(data) * data.steps,
                lambda data: f"The total is of all {data.steps} steady steps, but you divided by one step.",
            ),
            Mistake(
                lambda data: float(100 * steady_table(data)["mean_ns"].iloc[0] / data.step_ns),
                "That is one call of it. A step calls it many times: use the total.",
            ),
        ),
        hints=(
            "`table` has the total time of each name in all steady steps.",
            "`steady.duration_ns` is how long these steps took.",
            '`100 * table["total_ns"].iloc[0] / steady.duration_ns`',
        ),
        insight=lambda data: (
            f"Without it a step would be at most {share_of_step(data):.1f} % shorter, "
            f"not {steady_table(data)['percent'].iloc[0]:.1f} %, and less where the GPU idles anyway."
        ),
    ),
    Exercise(
        id="04.4",
        answer=Number(lost_idle, unit="percent", relative=0.02, absolute=0.2),
        mistakes=(
            Mistake(
                lambda data: float(100 * lost_idle(data) / idle_shares(data).iloc[0]),
                "That is the change relative to the first share. The plain difference of the two percentages is asked.",
            ),
            Mistake(
                lambda data: float(-data[IDLE_PARTS].sum(axis=1).diff().iloc[-1] / 1e6),
                "That is the difference of the idle times in ms. Divide each by its step first.",
            ),
            Mistake(
                lambda data: float(idle_shares(data).iloc[-1]),
                "That is the idle share with batch 512 alone: how far is it below that with batch 32?",
            ),
        ),
        hints=(
            "`budgets` has a row per batch size, and the parts of its mean step in columns.",
            "Nothing runs on the GPU during `launch_bound_ns`, `blocked_host_ns`, `data_wait_ns` and `other_ns`.",
            '`idle = 100 * budgets[["launch_bound_ns", "blocked_host_ns", "data_wait_ns", "other_ns"]].sum(axis=1) '
            '/ budgets["duration_ns"]`, then the first minus the last.',
        ),
        insight=lambda data: (
            f"From {idle_shares(data).iloc[0]:.0f} to {idle_shares(data).iloc[-1]:.0f} %, with "
            f"{512 / 32:.0f} times the images and {data['duration_ns'].iloc[-1] / data['duration_ns'].iloc[0]:.2f} "
            "times the step."
        ),
    ),
    Exercise(
        id="04.5",
        # AMD rounds the shares: taken from another row they give up to two percent more or less.
        answer=Number(work_per_step_ms, unit="ms", relative=0.025),
        mistakes=(
            Mistake(
                lambda data: all_kernels_ns(data) / STEPS["parallel"] / 1e6,
                "RCCL is still in it. Take its total away from that of all kernels.",
            ),
            Mistake(
                lambda data: work_per_step_ms(data, STEPS["one GPU"]),
                "You divided by the steps of the other run: this one has `STEPS['parallel']`.",
            ),
            Mistake(
                listed_work_per_step_ms,
                "These are the listed kernels alone. The table goes on: `percent` tells the total of all.",
            ),
        ),
        hints=(
            "Only the first rows are published, but `percent` is each one's share of all kernels.",
            'All kernels together: `parallel["total_ns"].iloc[0] / parallel["percent"].iloc[0] * 100` nanoseconds.',
            "Take RCCL's total away, divide by `STEPS['parallel']` and by 1e6.",
        ),
        insight="On one GPU all kernels take about as long. So the other GPUs did not make this one compute longer.",
    ),
    Exercise(
        id="04.6",
        answer=Property(command_problem, lambda data: NEW_COMMAND),
        mistakes=(
            Mistake(lambda data: OLD_COMMAND.replace("rocprof ", "rocprofv3 "), "rocprofv3 wants `--` between them"),
            Mistake(
                lambda data: OLD_COMMAND.replace("rocprof ", "rocprofv3 ").replace(" python", " -- python"),
                "unrecognized arguments: --roctx-trace",
            ),
            Mistake(lambda data: NEW_COMMAND.replace("--kernel-trace ", ""), "`--stats` only sums up what is traced"),
            Mistake(lambda data: NEW_COMMAND.replace("--output-format csv ", ""), "It names no format"),
            Mistake(lambda data: NEW_COMMAND.replace("--marker-trace ", ""), "The ROCTX ranges are lost"),
            Mistake(lambda data: NEW_COMMAND.replace("--truncate-kernels ", ""), "Names stay long"),
            Mistake(lambda data: NEW_COMMAND.replace("--stats ", ""), "makes no statistics"),
        ),
        hints=(
            "Take the table above, option by option.",
            "`--stats` needs `--kernel-trace` beside it, the program needs `--` before it, and the format a name.",
            "`rocprofv3 --kernel-trace --marker-trace --stats ... --output-format csv -- python train.py`; "
            "the short names are missing.",
        ),
        insight="Add `--output-directory` and `--output-file` before you use it: else the files lie in a folder "
        "named after the machine.",
        needs_data=False,
    ),
)

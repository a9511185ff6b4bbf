"""Exercises of lesson 04: which kernels, how often, how small?

Their data are tables of rocprofv3 as `pandas.read_csv` gives them, but for 04.3, which takes a `SteadyPart`, and 04.4,
which takes the mean steps of two runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

import tidyprof
from proflab.exercises import Exercise, Mistake, Number

if TYPE_CHECKING:
    from proflab.parts.steady_part import SteadyPart

MOST_OF_THE_TIME = 0.8
"""Pareto's share: how many kernel names carry this much of the time?"""

IDLE_PARTS = ["launch_bound_ns", "blocked_host_ns", "data_wait_ns", "other_ns"]
"""Parts of `tidyprof.step_budget` in which nothing runs on the device."""

STEP = 4
NORM, NORMS = "MIOpenBatchNormBwdSpatial", 53
"""Kernel of the batch norms' backward pass, and how many of them ResNet-50 has."""

COLLECTIVE = "nccl"


def started_in_step(tables: tuple[pd.DataFrame, pd.DataFrame], first: int = STEP) -> float:
    """Dispatches from the begin of step `first` to the end of STEP; a step lasts from its range `data` to the next."""
    trace, marks = tables
    begins = marks.loc[marks["Function"] == "data", "Start_Timestamp"].sort_values()
    return float(trace["Start_Timestamp"].between(begins.iloc[first], begins.iloc[STEP + 1], inclusive="left").sum())


def started_in_range(tables: tuple[pd.DataFrame, pd.DataFrame]) -> float:
    """Dispatches while the range `data` of this step lasts."""
    trace, marks = tables
    own = marks[marks["Function"] == "data"].sort_values("Start_Timestamp").iloc[STEP]
    return float(trace["Start_Timestamp"].between(own["Start_Timestamp"], own["End_Timestamp"]).sum())


def names_for_most(trace: pd.DataFrame, by: str = "sum") -> int:
    """How many kernel names, the largest first, it takes to reach MOST_OF_THE_TIME of their times or calls."""
    ordered = trace.groupby("Kernel_Name")["ns"].agg(by).sort_values(ascending=False)
    return int((ordered.cumsum() < MOST_OF_THE_TIME * ordered.sum()).sum()) + 1


def steady_table(steady: SteadyPart) -> pd.DataFrame:
    """All dispatches of the steady steps by name, as rocprofv3's own statistics count them."""
    return tidyprof.kernels(steady.profile, include=tidyprof.DEVICE_KINDS)


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


def instructions_per_wave(wide: pd.DataFrame) -> float:
    """Vector instructions of a wave in the kernel name that has the most of them in all."""
    sums = wide.groupby("Kernel_Name")[["SQ_INSTS_VALU", "SQ_WAVES"]].sum()
    most = sums.loc[sums["SQ_INSTS_VALU"].idxmax()]
    return float(most["SQ_INSTS_VALU"] / most["SQ_WAVES"])


def share_waiting(samples: pd.DataFrame, counter: str = "vmcnt") -> float:
    """Percent of all samples in which a wave issued nothing and stood at an instruction with this counter."""
    stalled = samples["Wave_Issued_Instruction"] == 0
    return float(100 * (stalled & samples["Instruction"].str.contains(counter)).mean())


def sampling_error(samples: pd.DataFrame) -> float:
    """Half of the interval, in percentage points, in which the true share lies 19 times out of 20: 1.96 deviations."""
    share = share_waiting(samples) / 100
    return 196 * (share * (1 - share) / len(samples)) ** 0.5


def everything_ns(table: pd.DataFrame) -> float:
    """Summed time in ns of all kernels of a published run, from its largest row's total and percent."""
    return float(table["total_ns"].iloc[0] / table["percent"].iloc[0] * 100)


def steps_of(table: pd.DataFrame) -> float:
    """Steps of a published run, by the calls of NORM."""
    return float(table.loc[table["name"] == NORM, "calls"].sum() / NORMS)


def work_per_step_ms(table: pd.DataFrame) -> float:
    """Milliseconds of kernels other than RCCL's, which come first, in each step of a published run."""
    return (everything_ns(table) - float(table["total_ns"].iloc[0])) / steps_of(table) / 1e6


def union_ns(trace: pd.DataFrame) -> int:
    """Time in which at least one kernel of a trace runs."""
    rows = trace.sort_values("Start_Timestamp")
    start, end = rows["Start_Timestamp"], rows["End_Timestamp"]
    return int((end - start.clip(lower=end.cummax().shift(fill_value=start.iloc[0]))).clip(lower=0).sum())


def collectives_share(trace: pd.DataFrame, whole_ns: float | None = None, alone: bool = True) -> float:
    """Percent of the time from first start to last end, or of `whole_ns`, in which collectives run (alone)."""
    is_collective = trace["Kernel_Name"].str.contains(COLLECTIVE)
    span_ns = trace["End_Timestamp"].max() - trace["Start_Timestamp"].min()
    own_ns = union_ns(trace) - union_ns(trace[~is_collective]) if alone else union_ns(trace[is_collective])
    return float(100 * own_ns / (whole_ns or span_ns))


EXERCISES = (
    Exercise(
        id="04.1",
        answer=Number(started_in_step, relative=0),
        mistakes=(
            Mistake(
                started_in_range,
                "That many start while the range `data` itself lasts. The step goes on until the next `data` begins.",
            ),
            Mistake(
                lambda tables: started_in_step(tables, first=0),
                "These are all since the beginning of the run. Leave out what started before the step did.",
            ),
        ),
        hints=(
            "The begins of all steps are the `Start_Timestamp` of the rows of `marks` whose `Function` is `data`.",
            "Sort them: number 4 is where the step begins, number 5 where it ends.",
            '`trace["Start_Timestamp"].between(begins.iloc[4], begins.iloc[5], inclusive="left").sum()`',
        ),
        insight="So many calls has the host to make before one step of the GPU is done. Remember this number.",
    ),
    Exercise(
        id="04.2",
        answer=Number(names_for_most, relative=0),
        mistakes=(
            Mistake(
                lambda trace: names_for_most(trace, "size"),
                "That many names make up 80 % of the calls. The time is asked: the sum of `ns`.",
            ),
            Mistake(
                lambda trace: names_for_most(trace) - 1,
                "Nearly: these names stay just below 80 %. Count the one that crosses the line too.",
            ),
        ),
        hints=(
            'Add up `ns` by `Kernel_Name`: `trace.groupby("Kernel_Name")["ns"].sum()`.',
            "Sort the sums, the largest first; `cumsum()` adds up from the top.",
            "`(total.cumsum() < 0.8 * total.sum()).sum()` counts those that stay below, the next one crosses the line.",
        ),
        insight=lambda trace: f"Of {trace['Kernel_Name'].nunique()} names: no single kernel is the place to begin.",
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
        answer=Number(instructions_per_wave),
        mistakes=(
            Mistake(
                lambda wide: wide.groupby("Kernel_Name")["SQ_INSTS_VALU"].mean()[
                    wide.groupby("Kernel_Name")["SQ_INSTS_VALU"].sum().idxmax()
                ],
                "These are the instructions of one dispatch. It has many waves: divide by `SQ_WAVES`.",
            ),
            Mistake(
                lambda wide: float(wide["SQ_INSTS_VALU"].sum() / wide["SQ_WAVES"].sum()),
                "This is the average over all kernels. Take only the name with the most vector instructions.",
            ),
        ),
        hints=(
            'Add up both counters: `wide.groupby("Kernel_Name")[["SQ_INSTS_VALU", "SQ_WAVES"]].sum()`.',
            "`idxmax()` of a column gives the name with its largest value, `loc` that name's row.",
            "Divide the row's sum of instructions by its sum of waves.",
        ),
        insight="Divide sums, not averages: a mean of ratios gives a small dispatch as much weight as a large one.",
    ),
    Exercise(
        id="04.6",
        # AMD rounds the shares: taken from another row they give up to two percent more or less.
        answer=Number(work_per_step_ms, unit="ms", relative=0.025),
        mistakes=(
            Mistake(
                lambda data: everything_ns(data) / steps_of(data) / 1e6,
                "RCCL is still in it. Take its total away from that of all kernels.",
            ),
            Mistake(
                lambda data: work_per_step_ms(data) * steps_of(data),
                "This is for all steps. How many were there, by the calls of the batch norms?",
            ),
            Mistake(
                lambda data: float(data["total_ns"].iloc[1:].sum() / steps_of(data) / 1e6),
                "These are the listed kernels alone. The table goes on: `percent` tells the total of all.",
            ),
        ),
        hints=(
            "Only the first rows are published, but `percent` is each one's share of all kernels.",
            'All kernels together: `parallel["total_ns"].iloc[0] / parallel["percent"].iloc[0] * 100` nanoseconds.',
            "Take RCCL's total away, divide by the number of steps, the norm's calls over 53, and by 1e6.",
        ),
        insight="On one GPU all kernels take about as long. So the other GPUs did not make this one compute longer.",
    ),
    Exercise(
        id="04.7",
        answer=Number(collectives_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda trace: collectives_share(trace, alone=False),
                "While RCCL runs, other kernels do too. Take the time in which they run away: two unions.",
            ),
            Mistake(
                lambda trace: collectives_share(trace, union_ns(trace)),
                "This is the share of the busy time. Divide by the time from the first start to the last end.",
            ),
        ),
        hints=(
            "Something runs in the union of all kernels. In which part of it does no other kernel run than RCCL's?",
            "The union of all rows, minus the union of the rows without `nccl` in their names.",
            'Sort by `Start_Timestamp`, call `union_ns` twice, and divide by `rows["End_Timestamp"].max() - '
            'rows["Start_Timestamp"].min()`.',
        ),
        insight=lambda trace: (
            f"RCCL runs during {collectives_share(trace, alone=False):.1f} % of it, so it is hidden behind other "
            f"kernels for {collectives_share(trace, alone=False) - collectives_share(trace):.1f} %. This is called "
            "*exposed* communication; whether it is waiting or transfer, lesson 07 tells."
        ),
    ),
    Exercise(
        id="04.8",
        answer=Number(share_waiting, unit="percent"),
        mistakes=(
            Mistake(
                lambda samples: share_waiting(samples, "s_waitcnt"),
                "Waits for scalar loads are in it, too: only `vmcnt` counts accesses to the arrays.",
            ),
            Mistake(
                lambda samples: float(
                    100 * share_waiting(samples) / (100 - 100 * samples["Wave_Issued_Instruction"].mean())
                ),
                "This is the share of the samples that issued nothing. Divide by all samples.",
            ),
            Mistake(
                lambda samples: share_waiting(samples, ""),
                "These are all samples that issued nothing. For how many of them is an access to the arrays the cause?",
            ),
        ),
        hints=(
            "Keep the rows with `Wave_Issued_Instruction == 0`; the others went on.",
            'Of these, `["Instruction"].str.contains("vmcnt")` are those that waited for vector memory.',
            "Divide their number by `len(samples)`, times 100.",
        ),
        insight=lambda samples: (
            f"Of {len(samples)} samples, a share is known to about {sampling_error(samples):.0f} percentage points. It "
            "agrees with a count by hand: few operations for twelve bytes, far left of any knee (lesson 05). Cheaper "
            "arithmetic would not help these kernels."
        ),
    ),
)

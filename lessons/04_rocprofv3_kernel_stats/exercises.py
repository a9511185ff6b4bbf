"""Exercises of lesson 04: which kernels, how often, how small?

Their data are tables of rocprofv3 as `pandas.read_csv` gives them. 04.3 takes a `SteadyPart`, 04.4 the mean steps of
some runs, 04.6 the case's modelled repeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    from proflab.parts.clinic_runs import ModelledRepeats
    from proflab.parts.steady_part import SteadyPart

PARTS = [
    "compute_ns", "exposed_communication_ns", "exposed_copy_ns", "launch_bound_ns", "blocked_host_ns", "data_wait_ns",
    "other_ns",
]  # fmt: skip
"""Parts of `tidyprof.step_budget`, which add up to the step."""

STEP = 4

BATCH = 1024
FACTOR = 2
FEWEST = 4
"""What 04.6 asks: so many images in a batch, so many times the images per second; and the loaders that this takes, by
the model. Near its device's own limit the model's few steps would flatter the loaders: this is far from it."""

KERNEL = "MIOpenBatchNormFwdTrainSpatial"


def begins_of(marks: pd.DataFrame) -> pd.Series:
    """When each step begins, in ns: with its range `data`."""
    return marks.loc[marks["Function"] == "data", "Start_Timestamp"].sort_values()


def kernels_ms(tables: tuple[pd.DataFrame, pd.DataFrame], first: int = STEP, last: int = STEP) -> float:
    """Milliseconds of the kernels that start in the steps `first` to `last`."""
    trace, marks = tables
    begins = begins_of(marks)
    inside = trace["Start_Timestamp"].between(begins.iloc[first], begins.iloc[last + 1], inclusive="left")
    return float(trace.loc[inside, "ns"].sum() / 1e6)


def kernels_in_range_ms(tables: tuple[pd.DataFrame, pd.DataFrame]) -> float:
    """Milliseconds of the kernels that start while the range `data` of STEP lasts."""
    trace, marks = tables
    own = marks[marks["Function"] == "data"].sort_values("Start_Timestamp").iloc[STEP]
    inside = trace["Start_Timestamp"].between(own["Start_Timestamp"], own["End_Timestamp"])
    return float(trace.loc[inside, "ns"].sum() / 1e6)


def copies_in_backward(tables: tuple[pd.DataFrame, pd.DataFrame], by: str = "launched") -> float:
    """Copies in a step whose time in the column `by` lies within a range `backward`, on average."""
    copies, marks = tables
    own = marks[marks["Function"] == "backward"]
    ranges = zip(own["Start_Timestamp"], own["End_Timestamp"], strict=True)
    return float(sum(copies[by].between(start, end).sum() for start, end in ranges) / len(own))


def steady_table(steady: SteadyPart) -> pd.DataFrame:
    """All dispatches of the steady steps by name, as rocprofv3's own statistics count them."""
    return tidyprof.kernels(steady.profile, include=tidyprof.DEVICE_KINDS)


def share_of_step(steady: SteadyPart) -> float:
    """Time of the largest name in percent of the steady steps."""
    return float(100 * steady_table(steady)["total_ns"].iloc[0] / steady.duration_ns)


def limits(budgets: pd.DataFrame, parts: list[str] = PARTS) -> dict[str, str]:
    """The largest of some parts of each run's mean step."""
    return budgets.set_index("step")[parts].astype(float).idxmax(axis=1).to_dict()


def limits_problem(answer: Any, budgets: pd.DataFrame) -> str | None:
    """What is wrong with a dictionary of limits; None if nothing is."""
    right = limits(budgets)
    if not isinstance(answer, dict) or set(answer) != set(right):
        return f"A dictionary with a part for each of {', '.join(right)} is asked."
    for name, part in answer.items():
        if part not in PARTS:
            return f"{part!r} is no part of a step. The parts are {', '.join(PARTS)}."
        if part != right[name]:
            return _not_the_largest(budgets.set_index("step").loc[name], name, part, right[name])
    return None


def _not_the_largest(row: pd.Series, name: str, said: str, largest: str) -> str:
    shares = {part: 100 * row[part] / row["duration_ns"] for part in (said, largest)}
    why = " The device computes for longer than it waits for launches." * (largest == "compute_ns")
    return f"{name}: {said} is {shares[said]:.0f} % of the step, and another part is {shares[largest]:.0f} %.{why}"


def of_kernel(wide: pd.DataFrame) -> pd.DataFrame:
    """The dispatches of KERNEL."""
    return wide[wide["Kernel_Name"].str.contains(KERNEL)]


def instructions_per_wave(wide: pd.DataFrame) -> float:
    """Vector instructions of a wave of KERNEL, over all its dispatches."""
    return float(of_kernel(wide)["SQ_INSTS_VALU"].sum() / of_kernel(wide)["SQ_WAVES"].sum())


def options_problem(answer: Any, case: ModelledRepeats) -> str | None:
    """Whether these options reach FACTOR times the case's rate with BATCH images and the fewest loaders; None if so."""
    import shlex

    from cifar_train.config import parse
    from cifar_train.errors import UserError
    from proflab.case import options
    from proflab.parts.clinic_runs import modelled

    if not isinstance(answer, str):
        return f"Options of the trainer as one text are asked, this is a {type(answer).__name__}."
    try:
        config, known = parse(shlex.split(answer)).as_dict(), parse(shlex.split(options("04"))).as_dict()
    except UserError as error:
        return f"The trainer refuses this: {error}"
    changed = {name for name, value in known.items() if config[name] != value}
    if foreign := changed - {"batch_size", "num_workers", "fused_optimizer"}:
        return f"Leave `{min(foreign)}` as it is: the batch, the loaders and the fused optimizer are enough."
    if config["batch_size"] != BATCH:
        return f"Launches are the limit of a small batch: give each launch {BATCH} images."
    workers = config["num_workers"]
    ratio, fewer = (
        modelled(f"{answer} --num-workers {number}", repeats=1).images_per_second / case.images_per_second
        for number in (workers, max(workers - 1, 0))
    )
    if ratio < FACTOR:
        why = "fused kernels don't prepare images." if "fused_optimizer" in changed else "who prepares the images?"
        return f"The model says {ratio:.2f} times the images per second of the case. Its device waits for data: {why}"
    if fewer >= FACTOR:
        return f"The model says {ratio:.2f} times: enough, and {workers - 1} loaders would give {fewer:.2f} times."
    return None


EXERCISES = (
    Exercise(
        id="04.1",
        # Neighbouring steps differ by two thousandths in the model.
        answer=Number(kernels_ms, unit="ms", relative=0.0002),
        mistakes=(
            Mistake(
                lambda tables: kernels_ms(tables, STEP - 1, STEP - 1),
                f"This is the step before. The first step is 0, so step {STEP} is the fifth.",
            ),
            Mistake(
                lambda tables: kernels_ms(tables, STEP + 1, STEP + 1),
                f"This is the step after. The first step is 0, so `iloc[{STEP}]` is where step {STEP} begins.",
            ),
            Mistake(
                kernels_in_range_ms,
                "These start while the range `data` itself lasts. The step goes on until the next `data` begins.",
            ),
            Mistake(
                lambda tables: kernels_ms(tables, first=0),
                "These are all since the beginning of the run. Leave out what started before the step did.",
            ),
        ),
        hints=(
            "The begins of all steps are the `Start_Timestamp` of the rows of `marks` whose `Function` is `data`.",
            "Sort them: number 4 is where the step begins, number 5 where it ends.",
            '`inside = trace["Start_Timestamp"].between(begins.iloc[4], begins.iloc[5], inclusive="left")`, then '
            '`trace.loc[inside, "ns"].sum() / 1e6`.',
        ),
        insight="Remember this number, and compare it with the length of a step.",
    ),
    Exercise(
        id="04.2",
        answer=Number(copies_in_backward, relative=0),
        mistakes=(
            Mistake(
                lambda tables: copies_in_backward(tables) * (tables[1]["Function"] == "backward").sum(),
                "These are the copies of all steps. How many steps are there?",
            ),
            Mistake(
                lambda tables: copies_in_backward(tables, "Start_Timestamp"),
                "This counts where the copies run. A range is a time of the host: ask when they were launched.",
            ),
            Mistake(
                lambda tables: len(tables[0]) / (tables[1]["Function"] == "backward").sum(),
                "These are all copies of a step. Keep those that are launched within a range `backward`.",
            ),
        ),
        hints=(
            "A range `backward` lasts from its `Start_Timestamp` to its `End_Timestamp`, in `marks`.",
            '`copies["launched"].between(start, end).sum()` counts what was launched in one range.',
            "Add up over the ranges `backward`, and divide by how many of them there are.",
        ),
        insight="One for each parameter of the network? The next cell counts them.",
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
        answer=Property(limits_problem, limits),
        mistakes=(
            Mistake(lambda budgets: dict.fromkeys(budgets["step"], "launch_bound_ns"), "launch_bound_ns is"),
            Mistake(lambda budgets: limits(budgets, PARTS[1:]), "The device computes for longer"),
            Mistake(lambda budgets: "launch_bound_ns", "A dictionary with a part for each of"),
        ),
        hints=(
            "`budgets` has a row for each run, its name in `step`, and the parts of its mean step in columns.",
            "The figure shows them: which part of each bar is longest? Compute is a part like the others.",
            '`budgets.set_index("step")[parts].idxmax(axis=1).to_dict()`',
        ),
        insight="The same program has three limits, and the batch alone chooses. No cure helps all three.",
    ),
    Exercise(
        id="04.5",
        answer=Number(instructions_per_wave, relative=0.005),
        mistakes=(
            Mistake(
                lambda wide: float((of_kernel(wide)["SQ_INSTS_VALU"] / of_kernel(wide)["SQ_WAVES"]).mean()),
                "This is the mean of the dispatches' ratios: a small dispatch weighs as much as a large one. Add up "
                "both counters first, then divide.",
            ),
            Mistake(
                lambda wide: float(of_kernel(wide)["SQ_INSTS_VALU"].mean()),
                "These are the instructions of one dispatch. It has many waves: divide by `SQ_WAVES`.",
            ),
            Mistake(
                lambda wide: float(wide["SQ_INSTS_VALU"].sum() / wide["SQ_WAVES"].sum()),
                "This is the average over all kernels. Take only the kernel that is asked.",
            ),
        ),
        hints=(
            f'`one = wide[wide["Kernel_Name"].str.contains("{KERNEL}")]` are its dispatches.',
            "Add up both counters over these.",
            '`one["SQ_INSTS_VALU"].sum() / one["SQ_WAVES"].sum()`',
        ),
        insight="Sums first, then the ratio. Is that enough work for a wave? Lesson 05 has the yardstick.",
    ),
    Exercise(
        id="04.6",
        answer=Property(options_problem, lambda case: f"--batch-size {BATCH} --num-workers {FEWEST}"),
        mistakes=(
            Mistake(lambda case: "--num-workers 2 --fused-optimizer", "Launches are the limit of a small batch"),
            Mistake(lambda case: f"--num-workers 2 --batch-size {BATCH}", "Its device waits for data"),
            Mistake(lambda case: f"--num-workers {FEWEST - 1} --batch-size {BATCH}", "Its device waits for data"),
            Mistake(lambda case: f"--num-workers 8 --batch-size {BATCH}", "enough, and 7 loaders would give"),
            Mistake(
                lambda case: f"--num-workers 2 --batch-size {BATCH} --fused-optimizer",
                "fused kernels don't prepare images",
            ),
            Mistake(lambda case: f"--num-workers 8 --batch-size {BATCH} --compile", "Leave `compile` as it is"),
        ),
        hints=(
            "`budgets` says what the limit with 1024 images is. Which option acts on that part?",
            "Two loaders are too few: more of them prepare more images at the same time, each at its own pace.",
            "A step of two loaders is a wait for 1024 images. By which factor must it become shorter?",
        ),
        insight="The loaders had no influence before, and now they decide. Old verdicts expire with each cure.",
    ),
)

"""Exercises of lesson 04: which kernels, how often, how small?

04.1 takes tables of rocprofv3 as `pandas.read_csv` gives them, 04.2 a `SteadyPart`, 04.3 the name
of a program, 04.4 the steps of a measured run in ms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.job_script import problem

if TYPE_CHECKING:
    from proflab.parts.steady_part import SteadyPart

LOADERS = 2
"""Loader processes of the run that 04.4 asks about."""

JOB = r"""#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --time=00:15:00
srun rocprofv3 --kernel-trace --output-format csv --output-directory ranks \
    --output-file 'rank%rank%_pid%pid%' -- python train.py
"""


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


def job_problem(answer: Any, program: str) -> str | None:
    """What is wrong with a job script; None if nothing was found."""
    if not isinstance(answer, str):
        return f"A script as one text is asked, this is a {type(answer).__name__}."
    return problem(answer)


def job_with(old: str, new: str) -> str:
    """The right script with one part of it changed."""
    return JOB.replace(old, new)


def loaders_needed(steps_ms: pd.Series, typical_ms: float | None = None) -> float:
    """How many loaders keep up with the shortest step, if LOADERS of them deliver a batch in each
    mean step.
    """
    return float(LOADERS * (typical_ms or steps_ms.mean()) / steps_ms.min())


EXERCISES = (
    Exercise(
        id="04.1",
        answer=Number(copies_in_backward, relative=0),
        mistakes=(
            Mistake(
                lambda tables: (
                    copies_in_backward(tables) * (tables[1]["Function"] == "backward").sum()
                ),
                "These are the copies of all steps. How many steps are there?",
            ),
            Mistake(
                lambda tables: copies_in_backward(tables, "Start_Timestamp"),
                "This counts where the copies run. A range is a time of the host: ask when they"
                " were launched.",
            ),
            Mistake(
                lambda tables: len(tables[0]) / (tables[1]["Function"] == "backward").sum(),
                "These are all copies of a step. Keep those that are launched within a range"
                " `backward`.",
            ),
        ),
        hints=(
            (
                "A range `backward` lasts from its `Start_Timestamp` to its `End_Timestamp`, in"
                " `marks`."
            ),
            '`copies["launched"].between(start, end).sum()` counts what was launched in one range.',
            "Add up over the ranges `backward`, and divide by how many of them there are.",
        ),
        insight="One for each parameter of the network? The next cell counts them.",
    ),
    Exercise(
        id="04.2",
        answer=Number(share_of_step, unit="percent", relative=0.02),
        mistakes=(
            Mistake(
                lambda data: float(steady_table(data)["percent"].iloc[0]),
                "That is its share of the kernel time. Divide its time by the time of the steps,"
                " idle time included.",
            ),
            Mistake(
                lambda data: share_of_step(data) * data.steps,
                lambda data: (
                    f"The total is of all {data.steps} steady steps, but you divided by one step."
                ),
            ),
        ),
        hints=(
            "`table` has the total time of each name in all steady steps.",
            "`steady.duration_ns` is how long these steps took.",
            '`100 * table["total_ns"].iloc[0] / steady.duration_ns`',
        ),
        insight=lambda data: (
            f"Without it a step would be at most {share_of_step(data):.1f} % shorter, not"
            f" {steady_table(data)['percent'].iloc[0]:.1f} %, and less where the GPU idles anyway."
        ),
    ),
    Exercise(
        id="04.3",
        answer=Property(job_problem, lambda program: JOB),
        mistakes=(
            Mistake(
                lambda program: job_with("srun rocprofv3", "rocprofv3").replace(
                    "-- python", "-- srun python"
                ),
                "profiles srun",
            ),
            Mistake(
                lambda program: job_with("rank%rank%_pid%pid%", "gpu"),
                "All ranks write `ranks/gpu`",
            ),
            Mistake(
                lambda program: job_with("'rank%rank%_pid%pid%'", "rank$SLURM_PROCID"),
                "before srun starts",
            ),
            Mistake(
                lambda program: job_with("rank%rank%_pid%pid%", "%pid%"),
                "identify the rank",
            ),
            Mistake(
                lambda program: job_with("-- python", "python"),
                "Put `--` before the program",
            ),
            Mistake(lambda program: job_with("srun ", ""), "start `srun`"),
            Mistake(lambda program: job_with("--kernel-trace ", ""), "Add `--kernel-trace`"),
            Mistake(lambda program: job_with("--output-format csv ", ""), "Add `--output-format csv`"),
            Mistake(lambda program: job_with("--ntasks-per-node=4 ", ""), "the number of ranks"),
            Mistake(
                lambda program: job_with("#!/bin/bash\n", ""), "sbatch rejects a script"
            ),
        ),
        hints=(
            (
                "Three parts: `#!/bin/bash`, a line `#SBATCH` with nodes, ranks and GPUs of a node,"
                " and `srun`."
            ),
            (
                "`srun` starts the tool for each rank, and the tool the program: `srun rocprofv3"
                " ... -- python train.py`."
            ),
            (
                "`--output-file 'rank%rank%'` names the files. In `$SLURM_PROCID` the script itself"
                " would fill in its own."
            ),
        ),
        insight=(
            "The snippet at the end is such a script with what real jobs need"
            f" besides:\n\n```bash\n{JOB}```"
        ),
    ),
    Exercise(
        id="04.4",
        answer=Number(loaders_needed, relative=0.01),
        mistakes=(
            Mistake(
                lambda steps: loaders_needed(steps, steps.median()),
                "That is by the median, which hides the steps that waited for the loaders.",
            ),
            Mistake(
                lambda steps: loaders_needed(steps) / LOADERS,
                f"That is how many times as fast they must be. There are {LOADERS} of them"
                " already.",
            ),
            Mistake(
                lambda steps: float(LOADERS * steps.mean() / steps.median()),
                "The median step is one that waited, too, or not. Take the shortest as the step"
                " that never waits.",
            ),
        ),
        hints=(
            (
                "In the long run the two deliver a batch in each mean step, so one of them takes"
                " twice as long."
            ),
            "Divide that by the shortest step.",
            "`2 * two.mean() / two.min()`",
        ),
        insight=lambda steps: (
            f"So {math.ceil(loaders_needed(steps))} at least. In the second run of the same command"
            " it is nine, as its mean step took twice as long. One run says how many are too few,"
            " not how many are enough."
        ),
    ),
)

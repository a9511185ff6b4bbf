"""Exercises of lesson 04: which kernels, how often, how small?

Exercise 04.1 takes rocprofv3's tables as `pandas.read_csv` returns them, 04.2 a `SteadyPart`, 04.3
the name of a program, and 04.4 the steps of a recorded run in ms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

import tidyprof
from cifar_train.config import TrainConfig
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.job_script import problem

if TYPE_CHECKING:
    from proflab.parts.steady_part import SteadyPart

LOADERS = 2
"""Number of loader processes in the run of 04.4."""

JOB = r"""#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --time=00:15:00
srun rocprofv3 --kernel-trace --output-format csv --output-directory ranks \
    --output-file 'rank%rank%_pid%pid%' -- python train.py
"""

WRONG_JOBS = {
    "profiles srun": (
        JOB[JOB.index("srun") :],
        "rocprofv3 --kernel-trace -- srun python train.py\n",
    ),
    "All ranks write `ranks/gpu`": ("rank%rank%_pid%pid%", "gpu"),
    "before srun starts": ("'rank%rank%_pid%pid%'", "rank$SLURM_PROCID"),
    "identify the rank": ("rank%rank%_pid%pid%", "%pid%"),
    "Put `--` before the program": ("-- python", "python"),
    "start `srun`": ("srun ", ""),
    "Add `--kernel-trace`": ("--kernel-trace ", ""),
    "Add `--output-format csv`": ("--output-format csv ", ""),
    "request four ranks": ("--ntasks-per-node=4 ", ""),
    "sbatch rejects a script": ("#!/bin/bash\n", ""),
    "Use `--nodes=1`": ("--nodes=1", "--nodes=4"),
}
"""Part of the reply to a wrong script, and the change of JOB that makes the script wrong."""


def ranges_named_backward(tables: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of the ranges `backward`, one per step."""
    return tables[1][tables[1]["Function"] == "backward"]


def copies_in(
    tables: tuple[pd.DataFrame, pd.DataFrame], by: str = "launched", function: str = "backward"
) -> float:
    """Return the mean number of copies per step whose time `by` is within a range `function`."""
    own = tables[1][tables[1]["Function"] == function]
    ranges = zip(own["Start_Timestamp"], own["End_Timestamp"], strict=True)
    found = sum(tables[0][by].between(start, end).sum() for start, end in ranges)
    return float(found / len(ranges_named_backward(tables)))


def warm_factor(steps: int) -> float:
    """Return the number of steps divided by the steady ones, by the trainer's rule."""
    return steps / (steps - (TrainConfig().warmup_for(steps) or 1))


def steady_table(steady: SteadyPart) -> pd.DataFrame:
    """Return all dispatches of the steady steps by name, counted as rocprofv3 does."""
    return tidyprof.kernels(steady.profile, include=tidyprof.DEVICE_KINDS)


def share_of_step(steady: SteadyPart) -> float:
    """Return the time of the first kernel in percent of the steady steps."""
    return float(100 * steady_table(steady)["total_ns"].iloc[0] / steady.duration_ns)


def job_problem(answer: Any, program: str) -> str | None:
    """Return what is wrong with a job script, or None."""
    if not isinstance(answer, str):
        return f"You gave a value of type {type(answer).__name__}. Give the script as one string."
    return problem(answer)


def loaders_needed(steps_ms: pd.Series, typical_ms: float | None = None) -> float:
    """Return the number of loaders that keep up with the shortest step, if LOADERS of them deliver
    one batch per mean step.
    """
    return float(LOADERS * (typical_ms or steps_ms.mean()) / steps_ms.min())


EXERCISES = (
    Exercise(
        id="04.1",
        answer=Number(copies_in, relative=0),
        mistakes=(
            Mistake(
                lambda tables: copies_in(tables) * len(ranges_named_backward(tables)),
                "You counted the copies in all steps. Divide by the number of steps, which is"
                " the number of `backward` ranges.",
            ),
            Mistake(
                lambda tables: copies_in(tables) * warm_factor(len(ranges_named_backward(tables))),
                (
                    "You divided by the steady steps, but the copies are from all steps. Divide by"
                    " the number of `backward` ranges."
                ),
            ),
            Mistake(
                lambda tables: copies_in(tables, "Start_Timestamp"),
                "You used the time when a copy runs on the GPU. A range is an interval on the"
                " CPU, so use the `launched` column.",
            ),
            Mistake(
                lambda tables: len(tables[0]) / len(ranges_named_backward(tables)),
                "You counted all copies in a step. Keep only copies that are launched within a"
                " `backward` range.",
            ),
            Mistake(
                lambda tables: copies_in(tables, function="forward"),
                "You used the `forward` ranges. The question asks about the `backward` ranges.",
            ),
            Mistake(
                lambda tables: (
                    100 * copies_in(tables) * len(ranges_named_backward(tables)) / len(tables[0])
                ),
                (
                    "You computed a percentage of the copies. The question asks for the number of"
                    " copies per step."
                ),
            ),
        ),
        hints=(
            (
                "Select the rows of `marks` whose `Function` is `backward`. Each range lasts from"
                " `Start_Timestamp` to `End_Timestamp`."
            ),
            'Count the launches in one range with `copies["launched"].between(start, end).sum()`.',
            "Add up these counts over all `backward` ranges, and divide by the number of ranges.",
        ),
        insight="The network has the same number of parameters, so each gradient is copied once.",
    ),
    Exercise(
        id="04.2",
        answer=Number(share_of_step, unit="percent", relative=0.02),
        mistakes=(
            Mistake(
                lambda data: float(steady_table(data)["percent"].iloc[0]),
                "You computed the kernel's share of the kernel time. Divide its time by the"
                " duration of the steps, which includes idle time.",
            ),
            Mistake(
                lambda data: share_of_step(data) * data.steps,
                lambda data: (
                    "You divided by the time of one step, but the kernel's total time covers all"
                    f" {data.steps} steady steps. Divide by `steady.duration_ns`."
                ),
            ),
        ),
        hints=(
            "In `table`, look up the first kernel's total time over all steady steps.",
            "Compare it with `steady.duration_ns`, which is the total duration of these steps.",
            'Compute `100 * table["total_ns"].iloc[0] / steady.duration_ns`.',
        ),
        insight=lambda data: (
            f"Without this kernel, a step would be at most {share_of_step(data):.1f}% shorter, not"
            f" {steady_table(data)['percent'].iloc[0]:.1f}%. If the GPU would be idle anyway, the"
            " gain is even smaller."
        ),
    ),
    Exercise(
        id="04.3",
        answer=Property(job_problem, lambda program: JOB),
        mistakes=tuple(
            Mistake(lambda program, change=change: JOB.replace(*change), words)
            for words, change in WRONG_JOBS.items()
        ),
        hints=(
            (
                "Write three parts: the line `#!/bin/bash`, an `#SBATCH` line with the number of"
                " nodes and the ranks and GPUs per node, and a line with `srun`."
            ),
            (
                "Let `srun` start the tool on each rank, and let the tool start the program: `srun"
                " rocprofv3 ... -- python train.py`."
            ),
            (
                "Name the files with `--output-file 'rank%rank%'`. Don't use `$SLURM_PROCID`"
                " because the shell would expand it before `srun` starts."
            ),
        ),
        insight=(
            "The snippet at the end of the lesson extends this script with everything else that a"
            f" real job needs.\n\n```bash\n{JOB}```"
        ),
    ),
    Exercise(
        id="04.4",
        answer=Number(loaders_needed),
        mistakes=(
            Mistake(
                lambda steps: loaders_needed(steps, steps.median()),
                "You used the median, which ignores how long steps wait for the loaders. Use the"
                " mean.",
            ),
            Mistake(
                lambda steps: loaders_needed(steps) / LOADERS,
                "You computed how many times as fast the loaders must become. Multiply by"
                f" {LOADERS}, the number of loaders in this run.",
            ),
            Mistake(
                lambda steps: float(LOADERS * steps.mean() / steps.median()),
                "You divided by the median step time, which may include waiting. Divide by the"
                " shortest step time.",
            ),
            Mistake(
                lambda steps: float(math.ceil(loaders_needed(steps))),
                "You rounded up. The question asks for the number before rounding.",
            ),
        ),
        hints=(
            (
                "The two loaders together deliver one batch per mean step time, so each loader"
                " takes twice that time per batch. Compute this time."
            ),
            "Divide that time by the shortest step time.",
            "Compute `2 * two.mean() / two.min()`.",
        ),
        insight=lambda steps: (
            f"At least {math.ceil(loaders_needed(steps))} loaders are necessary. A single run shows"
            " how many loaders are too few, but not how many are enough."
        ),
    ),
)

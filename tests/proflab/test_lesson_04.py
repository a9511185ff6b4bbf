"""What is left in Python of lesson 04: checks on tables made by hand, AMD's tables, the steady part
of a run.
"""

from __future__ import annotations

import pandas as pd
import pytest

from proflab.exercises import exercises_of, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts.steady_part import steady_part
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of

lesson = exercises_of("04")

MS = 1_000_000


@pytest.fixture
def published() -> pd.DataFrame:
    return pd.read_csv(lesson_of("04").folder / "amd_kernel_tables.csv", comment="#")


def test_the_warm_up_is_left_out_on_each_rank_by_its_own_steps() -> None:
    # Three steps of 10 ms, the first is warm-up. Rank 1 is 4 ms late, so its last kernel runs after
    # rank 0's last step.
    rows = []
    for rank, late in ((0, 0), (1, 4 * MS)):
        for step in range(3):
            begin = late + 10 * step * MS
            rows.append(host_step(step, begin, begin + 10 * MS, rank=rank))
            rows.append(
                event("kernel", f"k{step}", begin + 8 * MS, begin + 9 * MS, rank=rank, device=rank)
            )
    part = steady_part(profile_of(*rows))
    assert (part.steps, part.duration_ns) == (2, 20 * MS)
    assert part.dispatches.groupby("rank")["name"].apply(list).to_dict() == {
        0: ["k1", "k2"],
        1: ["k1", "k2"],
    }


@pytest.mark.parametrize("run", ["one GPU", "parallel"])
def test_published_rows_agree_with_each_other(published: pd.DataFrame, run: str) -> None:
    table = published[published["run"] == run]
    # Percentages are printed with two digits behind the point, or with four significant ones.
    everything_ns = table["total_ns"].iloc[0] / table["percent"].iloc[0] * 100
    assert (100 * table["total_ns"] / everything_ns).tolist() == pytest.approx(
        table["percent"].tolist(), abs=0.006
    )
    assert (table["total_ns"] / table["calls"]).between(table["min_ns"], table["max_ns"]).all()
    assert table["total_ns"].is_monotonic_decreasing
    norms = table[table["name"].str.startswith("MIOpenBatchNorm")]
    assert (norms["calls"] == 53 * {"one GPU": 21, "parallel": 20}[run]).all()


def test_a_copy_belongs_to_the_range_that_launched_it() -> None:
    # Of two copies that are launched within `backward`, one runs after it.
    marks = pd.DataFrame(
        {
            "Function": ["backward"] * 3,
            "Start_Timestamp": [0, 1000, 2000],
            "End_Timestamp": [100, 1100, 2100],
        }
    )
    copies = pd.DataFrame(
        {
            "launched": [10, 90, 500, 1010, 1090, 2010, 2090],
            "Start_Timestamp": [20, 120, 510, 1020, 1120, 2020, 2120],
        }
    )
    assert lesson.copies_in((copies, marks)) == 2
    selftest("04.1", (copies, marks))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            lesson.JOB.replace("-- python train.py", "-- python train.py'"),
            "line 4",
        ),
        (
            lesson.JOB.replace("--kernel-trace", "--kernel-traces"),
            "unrecognized arguments: --kernel-traces",
        ),
        (lesson.JOB.replace("'rank%rank%_pid%pid%'", "'rank$SLURM_PROCID'"), "single quotes"),
        (
            lesson.JOB.replace("rank%rank%_pid%pid%", "rank%env{RANK}%"),
            "All ranks write `ranks/rank`",
        ),
        (
            lesson.JOB.replace(" --output-file 'rank%rank%_pid%pid%'", ""),
            "identify the rank",
        ),
        (lesson.JOB.replace("-- python train.py", "-- true"), "must start `python`"),
        (lesson.JOB.replace("srun rocprofv3", "exit 3; srun rocprofv3"), "start `srun`"),
    ],
)
def test_other_mistakes_are_named(script: str, words: str) -> None:
    assert words in str(lesson.job_problem(script, "train.py"))

"""The exercises of lesson 07 by hand, on the modelled runs and on the recording; and its tables of
facts.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from cifar_train.config import parse
from cifar_train.ranks import LAUNCHERS
from gpumodel import Training, simulate, writers
from proflab import case
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts.clinic_runs import modelled
from proflab.parts.steady_part import own_run, steady_part
from proflab.recordings import fetch, recording
from tests.conftest import REPOSITORY
from tests.public_recordings import Mirror
from tidyprof.tables.contract import Profile

lesson = exercises_of("07")
UNKNOWN = "torch-mi300-ddp-4ranks-fused"

LAUNCHER_ROWS = (
    pd.read_csv(lesson_of("07").folder / "launchers.csv", comment="#")
    .fillna("")
    .set_index("launcher")
)


def test_the_launchers_variables_are_those_that_the_trainer_reads() -> None:
    known = {(launcher.rank, launcher.local_rank) for launcher in LAUNCHERS}
    assert set(zip(LAUNCHER_ROWS["rank"], LAUNCHER_ROWS["local_rank"], strict=True)) == known


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (3, "A text such as"),
        ("  ", "A text such as"),
        ("rank%q{OMPI_COMM_WORLD_RANK}", "own placeholders"),
        (
            "rank%rank%_%pid%",
            "`%rank%` asks Slurm's variable first, and each rank inherits SLURM_PROCID=0",
        ),
        ("rank%nid%_%pid%", "`%rank%` asks Slurm's variable first"),
        ("rank%env{SLURM_PROCID}%_%pid%", "that is no rank"),
        (
            "rank%env{RANK}%_%pid%",
            "This launcher does not set `RANK`, so there is nothing in its place. The process",
        ),
        ("rank%env{SLURM_LOCALID}%_%pid%", "does not set `SLURM_LOCALID`"),
        ("rank%env{OMPI_COMM_WORLD_LOCAL_RANK}%_%pid%", "counts anew on each node"),
        ("%env{OMPI_COMM_WORLD_SIZE}%_%pid%", "the number of all ranks"),
        ("rank%rank%", "All 4 ranks write `rank0`"),
        (
            "%pid%",
            "tells the rank. The process number helps on one node. Two nodes can count alike",
        ),
        ("%hostname%_%pid%", "The files stay apart, and you can't say whose they are"),
    ],
)
def test_bad_names_are_told_why(pattern: object, words: str) -> None:
    result = find("07.1").on(LAUNCHER_ROWS.loc["mpirun in a Slurm job"]).evaluate(pattern)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


@pytest.mark.parametrize("launcher", LAUNCHER_ROWS.index)
def test_each_launchers_own_variable_names_the_ranks(launcher: str) -> None:
    row = LAUNCHER_ROWS.loc[launcher]
    assert lesson.naming_problem(f"rank%env{{{row['rank']}}}%", row) is None


SCALING = pd.DataFrame(
    [(1, 256, 13_000.0), (1, 1024, 50_000.0), (4, 256, 12_000.0), (4, 1024, 49_000.0)],
    columns=["gpus", "batch", "rate_per_gpu"],
)


def test_more_gpus_are_compared_with_the_one_that_the_case_has() -> None:
    assert lesson.gain(SCALING) == pytest.approx(4 * 12 / 50)
    selftest("07.3", SCALING)
    result = find("07.3").on(SCALING).evaluate(4 * 12 / 13)
    assert "often waits" in result.message
    assert (
        find("07.3")
        .on(SCALING)
        .evaluate(4 * 12 / 50)
        .message.startswith("In the model nothing is gained")
    )


def test_four_gpus_with_a_quarter_of_the_images_each_gain_nothing_in_the_model() -> None:
    options = case.options("07")
    rates = {
        (gpus, batch): gpus
        * modelled(f"{options} --batch-size {batch} --max-epochs 4", 1, gpus).images_per_second
        for gpus, batch in ((1, 1024), (4, 256))
    }
    assert rates[4, 256] < 1.05 * rates[1, 1024]


@pytest.fixture(params=["cut", pytest.param("mirror", marks=pytest.mark.long)])
def unknown(
    request: pytest.FixtureRequest, recordings: Mirror, monkeypatch: pytest.MonkeyPatch
) -> Profile:
    """AMD's recording of four ranks: the course's cut of it, and the whole one."""
    if request.param == "mirror":
        monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    found = (recording if request.param == "cut" else fetch)(UNKNOWN)
    assert found.source == request.param
    return tidyprof.read(found.path)


def test_every_mistake_is_refused_on_the_recording_in_full_and_cut(unknown: Profile) -> None:
    selftest("07.2", unknown)
    assert lesson.margin_ms(unknown) == pytest.approx(1.65, abs=0.05)
    late = lesson.lateness_ms(unknown, 3)
    question, others = find("07.2").on(unknown), late.drop(columns=3)
    for step in ("min", "median", "max"):
        assert "Subtract their worst step" in question.evaluate(late[3].agg(step)).message
    assert (
        "You compared step by step"
        in question.evaluate((late[3] - others.max(axis=1)).min()).message
    )


def test_a_run_without_a_straggler_has_none_by_the_strict_rule(tmp_path: Path) -> None:
    run = simulate(Training(parse(["--max-steps", "10", "--roctx"]), ranks=4, profiler="rocprofv3"))
    writers.write("rocprofv3-csv", run, tmp_path, prefix="rank%rank%", traces=["kernel", "marker"])
    part = steady_part(own_run(tmp_path))
    late = lesson.lateness_ms(part.profile, part.steps)
    latest = late.median().idxmax()
    # One rank comes last most often, but not in each step later than any other in any.
    assert tidyprof.ranks(part.profile).set_index("rank")["came_last"].idxmax() == latest
    assert late[latest].min() < late.drop(columns=latest).max(axis=None)


def test_the_guides_names_of_files_are_those_that_the_tool_writes() -> None:
    guide = (REPOSITORY / "docs" / "slurm.md").read_text(encoding="utf-8")
    for launcher, row in LAUNCHER_ROWS.iterrows():
        names = [
            ", ".join(dict.fromkeys(lesson.written_names(pattern, row, (1, 2, 1, 2))))
            for pattern in ("rank%rank%", "rank%env{RANK}%")
        ]
        assert f"| {launcher} | `{row['rank']}` | {names[0]} | {names[1]} |" in guide

"""The exercises of lesson 07, computed manually on the modeled runs and on the trace, and its tables."""

from __future__ import annotations

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.recordings import fetch, recording
from tests.public_recordings import Mirror
from tidyprof.tables.contract import Profile

lesson = exercises_of("07")
UNKNOWN = "torch-mi300-ddp-4ranks-fused"

LAUNCHER_ROWS = (
    pd.read_csv(lesson_of("07").folder / "launchers.csv", comment="#")
    .fillna("")
    .set_index("launcher")
)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (3, "isn't a file name pattern"),
        ("  ", "isn't a file name pattern"),
        ("rank%q{OMPI_COMM_WORLD_RANK}", "placeholder of another tool"),
        (
            "rank%rank%_%pid%",
            "`%rank%` checks Slurm's variable first, and each rank inherits SLURM_PROCID=0",
        ),
        ("rank%nid%_%pid%", "`%rank%` checks Slurm's variable first"),
        ("rank%env{SLURM_PROCID}%_%pid%", "from the job script"),
        (
            "rank%env{RANK}%_%pid%",
            "This launcher doesn't set `RANK`",
        ),
        ("rank%env{SLURM_LOCALID}%_%pid%", "doesn't set `SLURM_LOCALID`"),
        ("rank%env{OMPI_COMM_WORLD_LOCAL_RANK}%_%pid%", "starts again at 0"),
        ("%env{OMPI_COMM_WORLD_SIZE}%_%pid%", "the total number of ranks"),
        ("rank%rank%", "All 4 ranks write `rank0`"),
        (
            "%pid%",
            "Process IDs differ on one node",
        ),
        ("%hostname%_%pid%", "The files stay separate"),
    ],
)
def test_bad_names_are_told_why(pattern: object, words: str) -> None:
    result = find("07.1").on(LAUNCHER_ROWS.loc["mpirun in a Slurm job"]).evaluate(pattern)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


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
        assert "Subtract the largest lateness" in question.evaluate(late[3].agg(step)).message
    assert (
        "You compared ranks step by step"
        in question.evaluate((late[3] - others.max(axis=1)).min()).message
    )

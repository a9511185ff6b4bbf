"""The exercises of lesson 07 by hand, on the modelled runs and on the recording; and its tables of facts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from cifar_train.config import parse
from cifar_train.launch.ranks import LAUNCHERS
from gpumodel import Training, simulate, writers
from proflab import case
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts.clinic_runs import modelled
from proflab.parts.steady_part import SteadyPart, own_run, steady_part
from proflab.recordings import fetch, recording
from tests.conftest import REPOSITORY
from tidyprof.tables.contract import Profile

lesson = exercises_of("07")
UNKNOWN = "torch-mi300-ddp-4ranks-fused"

LAUNCHER_ROWS = pd.read_csv(lesson_of("07").folder / "launchers.csv", comment="#").fillna("").set_index("launcher")


def test_the_launchers_variables_are_those_that_the_trainer_reads() -> None:
    known = {(launcher.rank, launcher.local_rank) for launcher in LAUNCHERS}
    assert set(zip(LAUNCHER_ROWS["rank"], LAUNCHER_ROWS["local_rank"], strict=True)) == known


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (3, "A text such as"),
        ("  ", "A text such as"),
        ("rank%q{OMPI_COMM_WORLD_RANK}", "own placeholders"),
        ("rank%env{OMPI_COMM_WORLD_LOCAL_RANK}%", "ranks write"),
        ("%pid%", "Two nodes can count alike"),
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


def test_bus_bandwidth_by_hand() -> None:
    # Rank 1 enters 30 µs later; the exchange then takes 10 µs: 4000 bytes in 10 µs are 0.4 GB/s, of two ranks all on
    # the bus. The small broadcast is not the largest bucket.
    rows = [(0, 7, 0.0, 5.0), (1, 7, 1.0, 5.0), (0, 1000, 100.0, 40.0), (1, 1000, 130.0, 10.0)]
    travels = pd.DataFrame(rows, columns=["rank", "elements", "start_us", "length_us"])
    assert lesson.bus_rate(travels, lesson.exchange_us) == pytest.approx(0.4)
    assert lesson.bus_rate(travels, lambda big: big["length_us"].max()) == pytest.approx(0.1)


SCALING = pd.DataFrame(
    [(1, 256, 13_000.0), (1, 1024, 50_000.0), (4, 256, 12_000.0), (4, 1024, 49_000.0)],
    columns=["gpus", "batch", "rate_per_gpu"],
)


def test_more_gpus_are_compared_with_the_one_that_the_case_has() -> None:
    assert lesson.gain(SCALING) == pytest.approx(4 * 12 / 50)
    selftest("07.6", SCALING)
    result = find("07.6").on(SCALING).evaluate(4 * 12 / 13)
    assert "often waits" in result.message


def test_four_gpus_with_a_quarter_of_the_images_each_gain_nothing_in_the_model() -> None:
    options = case.options("07")
    rates = {
        (gpus, batch): gpus * modelled(f"{options} --batch-size {batch} --max-epochs 4", 1, gpus).images_per_second
        for gpus, batch in ((1, 1024), (4, 256))
    }
    assert rates[4, 256] < 1.05 * rates[1, 1024]


@pytest.fixture(params=["cut", pytest.param("mirror", marks=pytest.mark.long)])
def unknown(request: pytest.FixtureRequest, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """AMD's recording of four ranks: the course's cut of it, and the whole one."""
    if request.param == "mirror":
        monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings))
    found = (recording if request.param == "cut" else fetch)(UNKNOWN)
    assert found.source == request.param
    return tidyprof.read(found.path)


def three_steps(profile: Profile) -> SteadyPart:
    """The recording in the place of a learner's own run: its three steps have seven collectives each."""
    steps = tidyprof.steps(profile)
    return SteadyPart(profile, steps["step"].nunique(), int(steps.groupby("rank")["duration_ns"].sum().mean()))


def test_every_mistake_is_refused_on_the_modelled_runs(tmp_path: Path) -> None:
    run = simulate(Training(parse(["--max-steps", "10", "--roctx"]), ranks=4, profiler="rocprofv3"))
    writers.write("rocprofv3-csv", run, tmp_path, prefix="rank%rank%", traces=["kernel", "marker"])
    selftest("07.2", steady_part(own_run(tmp_path)))
    late = tidyprof.read(recording("modelled-rank-skew").path / "torch")
    selftest("07.5", late)


def test_every_mistake_is_refused_on_the_recording_in_full_and_cut(unknown: Profile) -> None:
    selftest("07.2", three_steps(unknown))
    for number in ("07.4", "07.5"):
        selftest(number, unknown)


def test_one_collective_is_not_the_mean_of_a_step(unknown: Profile) -> None:
    worst = lesson.worst_lateness_ms(three_steps(unknown), each="max")
    result = find("07.2").on(three_steps(unknown)).evaluate(worst)
    assert "one single collective" in result.message


def test_a_sender_that_has_left_does_not_wait(unknown: Profile) -> None:
    uncut = lesson.waiting_percent_uncut(unknown)
    assert uncut > 100  # more waiting than time in collectives
    assert "Rank 0 sends the broadcasts" in find("07.4").on(unknown).evaluate(uncut).message
    capped = find("07.4").on(unknown).evaluate(lesson.waiting_percent_capped(unknown))
    assert "the whole of a broadcast" in capped.message


def test_the_waiting_is_found_without_any_start(unknown: Profile) -> None:
    others = tidyprof.ranks(unknown)["wait_ns"].nlargest(3)
    assert lesson.others_wait_ms(unknown) == pytest.approx(others.mean() / 1e6, rel=0.01)


def test_the_guides_names_of_files_are_those_that_the_tool_writes() -> None:
    guide = (REPOSITORY / "docs" / "slurm.md").read_text(encoding="utf-8")
    for launcher, row in LAUNCHER_ROWS.iterrows():
        names = [
            ", ".join(dict.fromkeys(lesson.written_names(pattern, row, (1, 2, 1, 2))))
            for pattern in ("rank%rank%", "rank%env{RANK}%")
        ]
        assert f"| {launcher} | `{row['rank']}` | {names[0]} | {names[1]} |" in guide

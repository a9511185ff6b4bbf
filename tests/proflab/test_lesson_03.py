"""The exercises of lesson 03 on what its own commands write and on the recording, and its module of samples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts.stack_samples import CALL_COLUMNS, main_thread, samples_in, samples_taken, traced_and_sampled
from proflab.parts.steady_part import SteadyPart, own_run, steady_part
from proflab.standins.__main__ import main
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

lesson = exercises_of("03")

SETTINGS = """
ROCPROFSYS_TRACE                   = true
ROCPROFSYS_SAMPLING_REALTIME       = true
ROCPROFSYS_SAMPLING_FREQ           = 500
ROCPROFSYS_ROCM_DOMAINS            = hip_runtime_api,marker_api,kernel_dispatch,memory_copy
ROCPROFSYS_TIME_OUTPUT             = false
"""
"""Those of the lesson that change what is written."""

TRAINER = "python -m cifar_train --max-steps 3 --roctx --num-workers 0"
"""Fewer steps than in the lesson; the trainer counts one of them as warm-up."""

RUNS = {"one": "", "fixed": "--batched-transforms", "cheat": "--batched-transforms --batch-size 16"}

ORIGIN = Origin("modelled", "by hand")
ON_OWN_RUN = ("03.1", "03.2", "03.3", "03.4")
MS = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the stand-in of rocprof-sys-sample writes for the lesson's commands, and for a run that does less work."""
    path = tmp_path_factory.mktemp("lesson")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_PROCID", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PROFLAB_RUN_WORKLOAD"):
            patch.delenv(name, raising=False)
        patch.chdir(path)
        (path / "course.cfg").write_text(SETTINGS)
        for name, options in RUNS.items():
            command = f"rocprof-sys-sample -c course.cfg -o runs/03/{name} -- {TRAINER} {options}"
            assert main(shlex.split(command)) == 0
        yield path


@pytest.fixture(scope="module")
def steady(folder: Path) -> SteadyPart:
    return steady_part(own_run(folder / "runs/03/one"))


@pytest.fixture(scope="module")
def real() -> Profile:
    """The recording as the lesson reads it: it ships with the course."""
    from proflab import recording

    found = recording("rocprof-sys-cpu")
    return tidyprof.read(found.path, origin=found.origin)


def profile_of(*rows: tuple, samples: dict[int, tuple] | None = None) -> Profile:
    """Rows of kind, name, start and end in ns; samples: number -> (start, end, stack of one-letter functions, thread).

    The thread is 1 unless stated; ranges are of that one.
    """
    filled = []
    for kind, name, start, end in rows:
        place = {"device": 0, "stream": 0} if kind in tidyprof.DEVICE_KINDS else {"thread": 1}
        times = {"start_ns": start, "duration_ns": end - start, "launch_ns": start}
        filled.append({"rank": 0, "kind": kind, "name": name, "short_name": name, **place, **times})
    for number, (start, end, stack, *thread) in (samples or {}).items():
        for depth, name in enumerate(stack):
            times = {"start_ns": start, "duration_ns": end - start, "sample": number, "depth": depth}
            place = {"rank": 0, "thread": thread[0] if thread else 1}
            filled.append({**place, "kind": "sample", "name": name, "short_name": name, **times})
    columns = {**EVENT_DTYPES, "launch_ns": "Int64", "sample": "Int64", "depth": "Int64"}
    events = pd.DataFrame(filled, columns=list(columns)).astype(columns)
    return Profile(events.sort_values("start_ns", kind="stable").reset_index(drop=True), meta={"origin": ORIGIN})


@pytest.fixture
def by_hand() -> SteadyPart:
    """Two steps of 50 ms. The GPU works 5, waits 30 (data), works 5, waits 0.5 three times with 2 of work between."""
    work = [(0, 5), (35, 40), (40.5, 42.5), (43, 45), (45.5, 47.5)]
    device = [("kernel", "k", round(begin * MS), round(end * MS)) for begin, end in work]
    ranges = [("annotation", "data", 5 * MS, 35 * MS), ("annotation", "backward", 40 * MS, 50 * MS)]
    calls = [("runtime", "hipLaunchKernel", place * MS, place * MS + 1000) for place in (0, 34, 40, 42)]
    copies = [("runtime", "hipMemcpyAsync", place * MS, place * MS + 5000) for place in (33, 33, 33)]
    samples = {
        1: (0, 4 * MS, "abx"),
        2: (4 * MS, 10 * MS, "abc"),
        3: (10 * MS, 20 * MS, "abd"),
        4: (20 * MS, 21 * MS, "abc"),
        5: (21 * MS, 48 * MS, "ay"),
    }
    return SteadyPart(profile_of(*device, *ranges, *calls, *copies, samples=samples), 2, 100 * MS)


def test_every_exercise_is_tested_here() -> None:
    assert tuple(exercise.id for exercise in lesson.EXERCISES) == (*ON_OWN_RUN, "03.5", "03.6")


@pytest.mark.parametrize("number", ON_OWN_RUN)
def test_right_and_wrong_answers_on_the_lessons_own_run(number: str, steady: SteadyPart) -> None:
    selftest(number, steady)


def test_right_and_wrong_answers_on_the_recording(real: Profile) -> None:
    selftest("03.5", real)


def test_right_and_wrong_answers_for_the_open_challenge(
    steady: SteadyPart, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    selftest("03.6", steady)


@pytest.mark.parametrize("number", [*ON_OWN_RUN, "03.5", "03.6"])
def test_without_data_nothing_is_judged(number: str) -> None:
    assert find(number).on(None).evaluate(1).outcome is Outcome.NOT_ATTEMPTED


def test_answers_by_hand(by_hand: SteadyPart) -> None:
    assert lesson.found_gaps(by_hand)["duration_ns"].tolist() == [30 * MS, MS // 2, MS // 2, MS // 2]
    assert lesson.range_of_largest_gap(by_hand) == "data"
    assert lesson.range_with_most_gaps(by_hand) == "backward"
    assert lesson.short_share(by_hand) == pytest.approx(100 * 1.5 / 31.5)
    assert lesson.short_count_share(by_hand) == pytest.approx(75)
    assert lesson.short_share_of_steps(by_hand) == pytest.approx(1.5)
    # Samples 2, 3 and 4 were taken at 10, 20 and 21 ms: two in c, one in d; 1 and 5 outside the gap.
    assert lesson.function_in_largest_gap(by_hand) == ("c", "c")
    assert lesson.outermost_in_largest_gap(by_hand) == "a"
    assert lesson.launches_per_step(by_hand) == pytest.approx(4 / 2)
    assert lesson.calls_per_step(by_hand) == pytest.approx(7 / 2)
    assert lesson.longest_gap_ns(by_hand) == 30 * MS
    assert lesson.kernel_ns_per_step(by_hand) == pytest.approx(16 * MS / 2)


@pytest.mark.parametrize("number", ["03.1", "03.2", "03.3"])
def test_right_and_wrong_answers_on_a_run_checked_by_hand(number: str, by_hand: SteadyPart) -> None:
    selftest(number, by_hand)


def test_the_model_waits_for_images_in_its_largest_gap(steady: SteadyPart) -> None:
    assert lesson.range_of_largest_gap(steady) == "data"
    assert "__getitem__" in lesson.function_in_largest_gap(steady)[0]
    assert lesson.longest_gap_ns(steady) > steady.step_ns / 2


def test_the_short_name_of_the_function_is_accepted_too(steady: SteadyPart) -> None:
    name, short_name = lesson.function_in_largest_gap(steady)
    assert name != short_name
    assert find("03.3").on(steady).evaluate(short_name).outcome is Outcome.PASSED


def test_shares_as_fractions_get_a_hint(steady: SteadyPart, real: Profile) -> None:
    for number, data, share in (
        ("03.2", steady, lesson.short_share(steady)),
        ("03.5", real, lesson.backward_share(real)),
    ):
        assert "looks like fraction" in find(number).on(data).evaluate(share / 100).message


def test_the_share_of_backward_counts_samples_once(real: Profile) -> None:
    frames = real.events[real.events["kind"] == "sample"]
    first = frames.groupby("sample").first()["duration_ns"]
    inside = frames.loc[frames["name"].astype(str).str.contains(lesson.BACKWARD, regex=False), "sample"].unique()
    assert 0 < len(inside) < samples_in(real)
    assert lesson.backward_share(real) == pytest.approx(100 * first.loc[inside].sum() / first.sum())


def test_the_recording_has_the_traits_that_the_lesson_shows(real: Profile) -> None:
    tree = tidyprof.call_stacks(real)
    own = tree.groupby("short_name")["self_count"].sum()
    assert own.idxmax() == lesson.SAMPLER[0]
    assert own.max() == samples_in(real) == 282
    roots = tree.query("depth == 0")
    assert roots["name"].iloc[0] == lesson.COMPLETE
    assert len(roots) > 1
    assert any("136 of 282" in warning and "outermost" in warning for warning in real.meta["warnings"][1:])


def test_one_option_of_the_trainer_closes_the_gap(folder: Path, steady: SteadyPart) -> None:
    fixed = steady_part(own_run(folder / "runs/03/fixed"))
    assert lesson.shorter_gap_problem(fixed, steady) is None
    assert find("03.6").on(steady).evaluate(fixed.profile).outcome is Outcome.PASSED


def test_a_smaller_batch_is_no_cure(folder: Path, steady: SteadyPart) -> None:
    result = find("03.6").on(steady).evaluate(own_run(folder / "runs/03/cheat"))
    assert result.outcome is Outcome.WRONG
    assert "you gave it less to do" in result.message


def test_a_run_without_marked_steps_is_told_so(steady: SteadyPart) -> None:
    result = find("03.6").on(steady).evaluate(profile_of(("kernel", "k", 0, 1)))
    assert result.outcome is Outcome.WRONG
    assert "--roctx" in result.message


def test_samples_become_moments_and_keep_the_order_of_their_frames(by_hand: SteadyPart) -> None:
    taken = samples_taken(by_hand.profile)
    assert set(taken.events["kind"].astype(str)) == {"sample"}
    assert set(taken.events["duration_ns"]) == {0}
    assert taken.events["start_ns"].drop_duplicates().tolist() == [4 * MS, 10 * MS, 20 * MS, 21 * MS, 48 * MS]
    assert taken.events.groupby("sample")["name"].apply("".join).tolist() == ["abx", "abc", "abd", "abc", "ay"]
    assert taken.origin == ORIGIN
    assert samples_in(taken) == samples_in(by_hand.profile) == 5


def test_the_end_of_a_gap_is_not_in_it(by_hand: SteadyPart) -> None:
    gap = pd.DataFrame({"start_ns": [4 * MS, 20 * MS], "duration_ns": [6 * MS, 1]})
    # Taken at 4, 10, 20, 21 and 48 ms; the gaps are 4 to 10 and a moment at 20.
    assert samples_taken(by_hand.profile, gap).events["sample"].unique().tolist() == [1, 3]


def test_no_sample_in_the_gap_is_an_error_with_the_next_step(by_hand: SteadyPart) -> None:
    nothing = pd.DataFrame({"start_ns": [30 * MS], "duration_ns": [MS]})
    with pytest.raises(ValueError, match="sample more often"):
        samples_taken(by_hand.profile, nothing)
    with pytest.raises(ValueError, match="no call stack"):
        samples_taken(profile_of(("kernel", "k", 0, 1)))


def test_threads_that_sleep_do_not_answer_for_the_one_that_works(by_hand: SteadyPart) -> None:
    """Sampled by the clock, a sleeping thread has as many samples as the main one, all in the same function."""
    asleep = {100 + place: ((6 + place) * MS, (7 + place) * MS, "w", 2) for place in range(20)}
    sleeping = profile_of(samples=asleep).events
    events = pd.concat([by_hand.profile.events, sleeping]).sort_values("start_ns", kind="stable", ignore_index=True)
    steady = replace(by_hand, profile=Profile(events, meta=by_hand.profile.meta))
    assert main_thread(steady.profile) == 1
    assert lesson.function_in_largest_gap(steady)[0] == lesson.function_in_largest_gap(by_hand)[0] == "c"
    assert set(samples_taken(steady.profile, thread=2).events["name"]) == {"w"}
    with pytest.raises(ValueError, match="--roctx"):
        main_thread(Profile(sleeping))


def test_a_function_counts_over_all_its_paths(by_hand: SteadyPart) -> None:
    ends = {6: "abd", 7: "abd", 8: "abc", 9: "axc", 10: "ayc"}
    samples = {place: (place * MS, (place + 1) * MS, stack) for place, stack in ends.items()}
    without = by_hand.profile.events.query("kind != 'sample'")
    events = pd.concat([without, profile_of(samples=samples).events]).sort_values("start_ns", ignore_index=True)
    steady = replace(by_hand, profile=Profile(events, meta=by_hand.profile.meta))
    stacks = lesson.stacks_in_largest_gap(steady)
    assert stacks.loc[stacks["self_count"].idxmax(), "name"] == "d"
    selftest("03.3", steady)
    assert find("03.3").on(steady).evaluate("d").outcome is Outcome.WRONG


@settings(max_examples=25)
@given(cut=st.integers(0, 50 * MS))
def test_every_sample_is_on_one_side_of_a_cut(cut: int) -> None:
    samples = {place + 1: (place * 7 * MS, (place + 1) * 7 * MS, "ab") for place in range(6)}
    profile = profile_of(samples=samples)

    def taken(begin: int, end: int) -> int:
        try:
            return samples_in(samples_taken(profile, pd.DataFrame({"start_ns": [begin], "duration_ns": [end - begin]})))
        except ValueError:
            return 0

    assert taken(0, cut) + taken(cut, 60 * MS) == len(samples)


def test_calls_beside_samples_by_hand() -> None:
    calls = [("runtime", "f", 0, 10), ("runtime", "f", 20, 50), ("runtime", "g", 60, 65)]
    profile = profile_of(*calls, samples={1: (0, 25, "mf"), 2: (25, 45, "ff"), 3: (45, 70, "m")})
    table = traced_and_sampled(profile)
    assert list(table.columns) == list(CALL_COLUMNS)
    # f stands twice in the second stack, which counts once; g was called between two samples.
    assert table.to_dict("list") == {
        "name": ["f", "g"],
        "calls": [2, 1],
        "mean_ns": [20.0, 5.0],
        "total_ns": [40, 5],
        "samples": [2, 0],
    }
    assert table.attrs["origin"] == ORIGIN


def test_without_samples_the_calls_are_still_there() -> None:
    table = traced_and_sampled(profile_of(("runtime", "f", 0, 10)))
    assert table[["name", "calls", "samples"]].to_numpy().tolist() == [["f", 1, 0]]

"""What is left in Python of lesson 03: its checks on runs made by hand, and the picture of stacks
above kernels.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pandas as pd
import pytest
import torch

import tidyprof
from cifar_train.config import parse
from cifar_train.data.loaders import build_loaders
from cifar_train.data.transforms import BatchTransform
from proflab import case
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts.stacks_over_kernels import _boxes, _named, stacks_over_kernels
from proflab.parts.steady_part import SteadyPart, own_run, steady_part
from proflab.recordings import recording
from proflab.standins.__main__ import main
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile
from tidyprof_tests.plots.test_plot_viewer import data_of

lesson = exercises_of("03")

ORIGIN = Origin("modelled", "by hand")
MS = 1_000_000


def profile_of(*rows: tuple, samples: dict[int, tuple] | None = None) -> Profile:
    """Rows of kind, name, start and end in ns; samples: number -> (start, end, stack of one-letter
    functions, thread).

    The thread is 1 unless stated; ranges are of that one.
    """
    filled = []
    for kind, name, start, end in rows:
        place = {"device": 0, "stream": 0} if kind in tidyprof.DEVICE_KINDS else {"thread": 1}
        times = {"start_ns": start, "duration_ns": end - start, "launch_ns": start}
        filled.append({"rank": 0, "kind": kind, "name": name, "short_name": name, **place, **times})
    for number, (start, end, stack, *thread) in (samples or {}).items():
        for depth, name in enumerate(stack):
            times = {
                "start_ns": start,
                "duration_ns": end - start,
                "sample": number,
                "depth": depth,
            }
            place = {"rank": 0, "thread": thread[0] if thread else 1}
            filled.append({**place, "kind": "sample", "name": name, "short_name": name, **times})
    columns = {**EVENT_DTYPES, "launch_ns": "Int64", "sample": "Int64", "depth": "Int64"}
    events = pd.DataFrame(filled, columns=list(columns)).astype(columns)
    return Profile(
        events.sort_values("start_ns", kind="stable").reset_index(drop=True),
        meta={"origin": ORIGIN},
    )


@pytest.fixture
def by_hand() -> SteadyPart:
    """Two steps of 50 ms. The GPU works 5, waits 30 (data), works 5, waits 0.5 three times with 2
    of work between.
    """
    work = [(0, 5), (35, 40), (40.5, 42.5), (43, 45), (45.5, 47.5)]
    device = [("kernel", "k", round(begin * MS), round(end * MS)) for begin, end in work]
    ranges = [("annotation", "data", 5 * MS, 35 * MS), ("annotation", "backward", 40 * MS, 50 * MS)]
    ranges += [("annotation", "forward", 35 * MS, 40 * MS)]
    samples = {
        1: (0, 4 * MS, ["a", "read"]),
        2: (4 * MS, 10 * MS, ["a", "read", "sleep"]),
        3: (10 * MS, 20 * MS, ["a", "sleep", "clock_nanosleep"]),
        4: (20 * MS, 48 * MS, ["a", "backward"]),
    }
    return SteadyPart(profile_of(*device, *ranges, samples=samples), 2, 100 * MS)


SETTINGS = """
ROCPROFSYS_TRACE = true
ROCPROFSYS_PROFILE = true
ROCPROFSYS_SAMPLING_REALTIME = true
ROCPROFSYS_SAMPLING_FREQ = 500
ROCPROFSYS_TIME_OUTPUT = false
"""
"""What the lesson's settings have of which its exercises depend."""


def captured(folder: Path, *more: str) -> Profile:
    """What the stand-in writes for the case with these options, with the lesson's settings."""
    settings = folder / "course.cfg"
    settings.write_text(SETTINGS)
    program = [*case.command("03").split(), "--max-steps", "6", "--roctx", *more]
    command = ["rocprof-sys-sample", "-c", str(settings), "-o", str(folder / "out"), "--", *program]
    with contextlib.chdir(folder):
        assert main(command) == 0
    return own_run(folder / "out")


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """The case as the lesson captures it where there is no GPU."""
    return captured(tmp_path_factory.mktemp("one"))


def test_every_mistake_is_refused_on_a_run_by_hand(by_hand: SteadyPart) -> None:
    selftest("03.3", by_hand)


def test_every_mistake_is_refused_on_the_modelled_case(modelled: Profile, tmp_path: Path) -> None:
    selftest("03.3", steady_part(modelled))
    slow = (
        "--pathology",
        "slow-loader",
        "--batched-transforms",
        "--batch-size",
        "16",
        "--max-steps",
        "8",
    )
    selftest("03.1", steady_part(captured(tmp_path, *slow)))


def test_every_mistake_is_refused_on_the_recorded_stacks() -> None:
    found = recording("rocprof-sys-cpu")
    assert found.source == "shipped", (
        "it is the course's own: there is no cut of it, and no other copy"
    )
    selftest("03.2", tidyprof.read(found.path, origin=found.origin))


def test_loader_processes_pass_as_the_cure_and_a_smaller_batch_does_not(
    modelled: Profile, tmp_path: Path
) -> None:
    question = find("03.3").on(steady_part(modelled))
    for name in ("small", "batched"):
        (tmp_path / name).mkdir()
    assert question.evaluate(captured(tmp_path, "--num-workers", "2")).outcome is Outcome.PASSED
    assert question.evaluate(tmp_path / "out").outcome is Outcome.PASSED
    batched = captured(tmp_path / "batched", "--batched-transforms")
    assert question.evaluate(batched).outcome is Outcome.PASSED
    refused = question.evaluate(captured(tmp_path / "small", "--batch-size", "32"))
    assert refused.outcome is Outcome.WRONG
    assert "you gave it less to do" in refused.message


def test_batched_transforms_keep_images_labels_and_order_and_lose_the_digits() -> None:
    """What the lesson says of the cure that it leaves for later."""

    def first(*more: str) -> tuple[torch.Tensor, torch.Tensor]:
        options = ["--num-workers", "0", "--batch-size", "512", "--data", "synthetic", *more]
        images, labels = next(iter(build_loaders(parse(options), "synthetic", 0, 1, "cpu").train))
        return (BatchTransform(55, 0)(images) if more else images), labels

    (single, labels), (whole, same_labels), (again, _) = (
        first(),
        first("--batched-transforms"),
        first("--batched-transforms"),
    )
    assert torch.equal(labels, same_labels)
    assert torch.equal(whole, again)
    assert not torch.equal(single, whole)
    assert whole.mean().item() == pytest.approx(single.mean().item(), rel=0.02)
    assert whole.std().item() == pytest.approx(single.std().item(), rel=0.02)


def test_the_recording_has_the_traits_that_the_lesson_shows() -> None:
    found = recording("rocprof-sys-cpu")
    real = tidyprof.read(found.path, origin=found.origin)
    frames = real.events[real.events["kind"] == "sample"]
    first = frames.groupby("sample").first()["duration_ns"]
    inside = frames.loc[
        frames["name"].astype(str).str.contains(lesson.BACKWARD, regex=False), "sample"
    ].unique()
    assert lesson.backward_share(real) == pytest.approx(100 * first.loc[inside].sum() / first.sum())
    tree = tidyprof.call_stacks(real)
    assert tree.groupby("short_name")["self_count"].sum().idxmax() == "__sigaction"
    assert tree.query("depth == 0")["name"].iloc[0] == lesson.COMPLETE
    sums = real.counters[
        real.counters["name"].isin(["CPU Page Faults (S)", "CPU Context Switches (S)"])
    ]
    assert sums.groupby("name", observed=True)["value"].is_monotonic_increasing.all()


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (lambda steady: lesson.IMAGES, "This is the sleep of a step"),
        (lambda steady: steady.steps / lesson.STEPS, "`unseen.steps`"),
        (lambda steady: steady.steps, "divide by their number too"),
        (lambda steady: steady.steps * lesson.IMAGES, "This is all the sleep of the steady steps"),
    ],
)
def test_a_sleep_of_another_whole_is_told_which(by_hand: SteadyPart, times, words: str) -> None:
    result = find("03.1").on(by_hand).evaluate(lesson.sleep_per_image_ms(by_hand) * times(by_hand))
    assert result.outcome is Outcome.WRONG
    assert words in result.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("runs/03/fixed", "The folder of a run is asked"),
        (Path("runs/fixed"), "`fixed` is not there: did the cell above write to `one`"),
        (Path(__file__), "content of no known format"),
        (profile_of(("kernel", "k", 0, 1)), "record it with `--roctx`"),
    ],
)
def test_what_is_no_run_with_steps_is_told_so(
    by_hand: SteadyPart, answer: object, words: str
) -> None:
    result = find("03.3").on(by_hand).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_stacks_stand_above_the_kernels_of_the_same_time(by_hand: SteadyPart) -> None:
    figure = stacks_over_kernels(by_hand.profile, 0, 50 * MS, title="By hand")
    assert figure.origin == str(ORIGIN)
    assert "Call stacks of 1 thread over 50.0 ms, 4 samples in all" in figure.alternative_text
    assert figure.alternative_text.endswith(
        "In the longest gap of the GPU, 30.0 ms, 1 of the 2 samples of the main thread end in"
        " sleep."
    )
    assert figure.axes[0].get_ylabel() == "main thread"
    assert "32 % on average" in figure.alternative_text
    stacks, busy = figure.axes
    assert stacks.get_xlim() == busy.get_xlim() == (0, 50)
    assert [text.get_text() for text in busy.texts] == ["data", "backward", "forward"]
    data = data_of(figure)
    assert [lane for lane in data["lanes"] if lane] == [
        "main thread",
        "ranges of the host",
        "device",
    ]
    told = [data["names"][name][0] for name in data["name"]]
    ranges = data["lanes"].index("ranges of the host")
    assert told[data["row"].index(ranges) :][:3] == ["data", "forward", "backward"]
    device = by_hand.profile.device_events
    assert data["row"].count(ranges + 1) == (device["start_ns"] < 50 * MS).sum()
    with pytest.raises(ValueError, match="sample more often"):
        stacks_over_kernels(by_hand.profile, 49 * MS, 50 * MS)


def test_every_range_is_drawn_and_named_in_the_colour_of_the_legend() -> None:
    ranges = [("data", 0, 36), ("forward", 36, 44), ("loss", 44, 44.1), ("backward", 44.1, 58)]
    rows = [
        ("annotation", name, round(begin * MS), round(end * MS))
        for name, begin, end in [*ranges, ("optimizer", 58, 60)]
    ]
    samples = {1: (0, 2 * MS, ["train", "read"]), 2: (2 * MS, 58 * MS, ["train", "step"])}
    profile = profile_of(("kernel", "k", 59 * MS, 60 * MS), *rows, samples=samples)
    stacks, busy = stacks_over_kernels(profile, 0, 60 * MS).axes
    width = {text.get_text(): text.get_window_extent() for text in busy.texts}
    assert [*width] == ["data", "backward", "forward", "optimizer", "loss"]
    axis = busy.get_window_extent()
    assert width["optimizer"].x1 <= axis.x1
    assert width["optimizer"].y1 <= axis.y1
    assert width["loss"].x1 < width["optimizer"].x0
    legend = stacks.get_legend()
    looks = {
        text.get_text(): patch.get_facecolor()
        for text, patch in zip(legend.get_texts(), legend.get_patches(), strict=True)
    }
    assert [*looks] == ["function", "range", "on the device"]
    assert {bar.get_facecolor() for bar in busy.patches[1:]} == {looks["range"]}
    assert {bar.get_facecolor() for bar in stacks.patches} == {looks["function"]}


def test_a_sample_reaches_half_the_way_to_its_neighbours_and_equal_ones_are_one_box() -> None:
    stacks = pd.DataFrame(
        {
            "taken_ns": [10, 20, 30, 80],
            "stack": [("m", "a"), ("m", "a", "x"), ("m", "b"), ("m", "a")],
        }
    )
    assert list(_boxes(stacks)) == [
        (0, 5, 95, "m"),
        (1, 5, 25, "a"),
        (1, 25, 45, "b"),
        (1, 65, 95, "a"),
        (2, 15, 25, "x"),
    ]
    assert [box[3] for box in _boxes(stacks.head(1))] == ["a"]


def test_a_box_has_a_name_or_is_several_functions_or_is_not_drawn() -> None:
    boxes = [
        (0, 0, 100, "train"),
        (1, 0, 40, "next_batch"),
        (1, 40, 60, "to"),
        (1, 60, 80, "copy"),
        (1, 90, 100, "step"),
        (2, 0, 40, "fetch"),
        (2, 40, 60, "below what has no name"),
    ]
    named = list(_named(boxes, lambda begin, end, name: end - begin >= 30))
    assert named == [
        (0, 0, 100, "train"),
        (1, 0, 40, "next_batch"),
        (1, 40, 80, "2 functions"),
        (2, 0, 40, "fetch"),
    ]
    assert [name for *_, name in _named(boxes, lambda *box: box[1] - box[0] > 40)] == [
        "train",
        "3 functions",
    ]
    assert [name for *_, name in _named(boxes, lambda *box: box[1] - box[0] > 90)] == ["train"]


def test_of_many_threads_those_with_most_to_tell_are_drawn() -> None:
    asleep = {number: (number * MS, (number + 1) * MS, "aw", 3) for number in range(1, 9)}
    busy = {
        10 + place: (place * MS, (place + 1) * MS, f"a{place}", 1 + place % 2) for place in range(4)
    }
    figure = stacks_over_kernels(
        profile_of(("kernel", "k", 0, MS), samples=asleep | busy), 0, 10 * MS
    )
    assert [axes.get_ylabel() for axes in figure.axes[:-1]] == ["thread 1", "thread 2"]

"""What is left in Python of lesson 03: its checks on runs made by hand, and the picture of stacks
above kernels.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from proflab.parts.stacks_over_kernels import stacks_over_kernels

import tidyprof
from cifar_train.config import parse
from cifar_train.data.loaders import build_loaders
from cifar_train.data.transforms import BatchTransform
from proflab.exercises import Outcome, find, selftest
from proflab.parts.steady_part import SteadyPart
from proflab.recordings import recording
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile
from tidyprof_tests.plots.test_plot_viewer import data_of

ORIGIN = Origin("modeled", "by hand")
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


def test_every_mistake_is_refused_on_the_recorded_stacks() -> None:
    found = recording("rocprof-sys-cpu")
    assert found.source == "shipped", (
        "it is the course's own: there is no cut of it, and no other copy"
    )
    selftest("03.2", tidyprof.read(found.path, origin=found.origin))


def test_batched_transforms_keep_images_labels_and_order_and_lose_the_digits() -> None:
    """Check what the lesson states about the second fix."""

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


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("runs/03/fixed", "Give the folder of a run"),
        (Path("runs/fixed"), "`fixed` doesn't exist"),
        (Path(__file__), "unknown format"),
        (profile_of(("kernel", "k", 0, 1)), "Record it with `--roctx`"),
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
    assert figure.axes[0].get_ylabel() == "main thread"
    assert "32% on average" in figure.alternative_text
    stacks, busy = figure.axes
    assert stacks.get_xlim() == busy.get_xlim() == (0, 50)
    assert [text.get_text() for text in busy.texts] == ["data", "forward", "backward"]
    data = data_of(figure)
    assert [lane for lane in data["lanes"] if lane] == [
        "main thread",
        "ranges of the CPU",
        "device",
    ]
    told = [data["names"][name][0] for name in data["name"]]
    ranges = data["lanes"].index("ranges of the CPU")
    assert told[data["row"].index(ranges) :][:3] == ["data", "forward", "backward"]
    device = by_hand.profile.device_events
    assert data["row"].count(ranges + 1) == (device["start_ns"] < 50 * MS).sum()
    with pytest.raises(ValueError, match="sample"):
        stacks_over_kernels(by_hand.profile, 49 * MS, 50 * MS)

"""Call trees on stacks that can be checked by hand, against a recording's own tables, and as a
figure.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof import Origin, Profile, call_stacks
from tidyprof.analyses.call_stacks import function_name
from tidyprof.tables.contract import EVENT_DTYPES
from tidyprof_tests.analyses.test_analyses import ORIGIN, event, profile_of

RECORDED_FOLDER = Path("rocprof-sys-cpu", "rocprofsys-python-output")


def sampled(*samples: tuple[str, int], thread: int = 1, first: int = 0) -> list[dict]:
    """Frames of samples, each given as `main>train` and its duration in ns."""
    return [
        {
            **event(
                "sample",
                name,
                100 * number,
                100 * number + duration,
                process=9,
                thread=thread,
                rank=0,
            ),
            **{"short_name": name, "depth": depth, "sample": first + number},
        }
        for number, (stack, duration) in enumerate(samples)
        for depth, name in enumerate(stack.split(">"))
    ]


def profile_with(rows: list[dict]) -> Profile:
    columns = {**EVENT_DTYPES, "depth": "Int32", "sample": "Int64"}
    return Profile(
        pd.DataFrame(rows, columns=list(columns)).astype(columns), meta={"origin": ORIGIN}
    )


def paths(table: pd.DataFrame, name: str = "name") -> list[tuple[str, ...]]:
    """For every row the names from the outermost one to its own."""
    found: list[tuple[str, ...]] = []
    for label, parent in zip(table[name], table["parent"], strict=True):
        found.append((*(() if pd.isna(parent) else found[parent]), label))
    return found


@pytest.fixture
def two_threads() -> Profile:
    """Five samples of 50 ns in all on thread 1, where `train` calls itself once, and one of 50 ns
    on thread 2.
    """
    first = [("main>train>conv", 10), ("main>train>conv", 20), ("main>load", 5), ("main>train", 7)]
    return profile_with(
        sampled(*first, ("main>train>train>conv", 8)) + sampled(("work", 50), thread=2, first=5)
    )


class TestSamples:
    def test_own_time_adds_up_by_function_although_one_calls_itself(self, two_threads):
        own = call_stacks(two_threads).groupby("name")["self_ns"].sum()
        assert own.to_dict() == {"main": 0, "train": 7, "conv": 38, "load": 5, "work": 50}


STACKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=5),
        st.integers(0, 100),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=20,
)


@given(STACKS, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_every_tree_adds_up(stacks, random):
    rows = [
        row
        for number, (names, duration, thread) in enumerate(stacks)
        for row in sampled((">".join(names), duration), thread=thread, first=number)
    ]
    random.shuffle(rows)
    table = call_stacks(profile_with(rows))
    assert table["self_ns"].sum() == sum(duration for _, duration, _ in stacks)
    assert table["self_count"].sum() == len(stacks)
    below = table.groupby("parent")[["total_ns", "count"]].sum().reindex(table.index, fill_value=0)
    assert (table["total_ns"] == table["self_ns"] + below["total_ns"]).all()
    assert (table["count"] == table["self_count"] + below["count"]).all()
    found = list(zip(table["thread"], paths(table), strict=True))
    assert len(set(found)) == len(found)
    assert set(found) == {
        (t, tuple(names[:end])) for names, _, t in stacks for end in range(1, len(names) + 1)
    }
    assert table["self_percent"].sum() == pytest.approx(100)


@given(STACKS)
@settings(max_examples=30)
def test_calls_give_the_tree_of_the_same_stacks(stacks):
    """Each stack as calls one inside the other: 10 ns shorter at each end than the one around
    it.
    """
    nested = [
        event(
            "operator",
            name,
            10 * depth + 1000 * number,
            1000 * (number + 1) - 10 * depth,
            thread=thread,
        )
        for number, (names, _, thread) in enumerate(stacks)
        for depth, name in enumerate(names)
    ]
    samples = [
        row
        for number, (names, _, thread) in enumerate(stacks)
        for row in sampled((">".join(names), 1000), thread=thread, first=number)
    ]
    assert counts(call_stacks(profile_of(*nested))) == counts(call_stacks(profile_with(samples)))


def counts(table: pd.DataFrame) -> dict:
    return dict(zip(zip(table["thread"], paths(table), strict=True), table["count"], strict=True))


# Names


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("at::_ops::conv2d::call(at::Tensor const&, long)", "conv2d::call"),
        (
            (
                "std::tuple<at::Tensor, at::Tensor> at::native::template_<float, float>(at::Tensor"
                " const&)"
            ),
            "native::template_",
        ),
        (
            (
                "at::native::(anonymous namespace)::add_kernel(at::TensorIteratorBase&) [clone"
                " .isra.0]"
            ),
            "native::add_kernel",
        ),
        ("THPEngine_run_backward(_object*, _object*)", "THPEngine_run_backward"),
        ("ideep::tensor::~tensor()", "tensor::~tensor"),
        ("aten::mm", "aten::mm"),
        ("PyEval_EvalCode", "PyEval_EvalCode"),
        ("train.py(3): main", "train.py(3): main"),
        ("__next__ (dataloader.py)", "__next__"),
        (
            "<built-in method conv2d of type object at 0x7f>",
            "<built-in method conv2d of type object at 0x7f>",
        ),
        ("::", "::"),
        ("", ""),
    ],
)
def test_names_of_functions(name, short):
    assert function_name(name) == short


# The recording


@pytest.fixture(scope="module")
def recorded(recordings: Path) -> Profile:
    origin = Origin("recorded", "rocprof-sys 1.2.0 without a GPU, a small machine with 2 cores")
    return tidyprof.read(recordings / RECORDED_FOLDER, origin=origin)


def test_the_tree_is_that_of_the_tool(recorded):
    """What rocprof-sys itself adds up of the same samples: its times are doubles, so they are 2 ns
    off at most.
    """
    table, tables = call_stacks(recorded), recorded.meta["tables"]
    theirs = dict(
        zip(paths(tables["trip_count"], "label"), tables["trip_count"]["count"], strict=True)
    )
    assert dict(zip(paths(table), table["count"], strict=True)) == theirs
    for column in ("total_ns", "self_ns"):
        ours = dict(zip(paths(table), table[column], strict=True))
        clock = tables["sampling_wall_clock"]
        theirs = dict(zip(paths(clock, "label"), clock[column], strict=True))
        assert max(abs(ours[path] - theirs[path]) for path in theirs) <= 4


# The figure

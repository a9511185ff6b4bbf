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
from tidyprof.analyses.common import COLUMNS
from tidyprof.tables.contract import EVENT_DTYPES
from tidyprof_tests import perfetto_writer as w
from tidyprof_tests.analyses.test_analyses import ORIGIN, event, profile_of
from tidyprof_tests.chrome_writer import TraceEvent, call, operator, write_trace

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
    def test_by_hand(self, two_threads):
        table = call_stacks(two_threads)
        assert [">".join(path) for path in paths(table)] == [
            "main",
            "main>train",
            "main>train>conv",
            "main>train>train",
            "main>train>train>conv",
            "main>load",
            "work",
        ]
        assert table["count"].tolist() == [5, 4, 2, 1, 1, 1, 1]
        assert table["self_count"].tolist() == [0, 1, 2, 0, 1, 1, 1]
        assert table["total_ns"].tolist() == [50, 45, 30, 8, 8, 5, 50]
        assert table["self_ns"].tolist() == [0, 7, 30, 0, 8, 5, 50]
        assert table["percent"].tolist() == [
            50,
            45,
            30,
            8,
            8,
            5,
            50,
        ], "of the 100 ns of both threads"
        assert table["self_percent"].sum() == 100
        assert table["depth"].tolist() == [0, 1, 2, 2, 3, 1, 0]
        assert table["thread"].tolist() == [1] * 6 + [2]
        assert table["parent"].tolist() == [pd.NA, 0, 1, 1, 3, 0, pd.NA]
        assert table.attrs == {"origin": ORIGIN, "source": "samples"}
        assert {name: str(dtype) for name, dtype in table.dtypes.items()} == COLUMNS["call_stacks"]

    def test_own_time_adds_up_by_function_although_one_calls_itself(self, two_threads):
        own = call_stacks(two_threads).groupby("name")["self_ns"].sum()
        assert own.to_dict() == {"main": 0, "train": 7, "conv": 38, "load": 5, "work": 50}

    def test_a_root_puts_stacks_on_one_footing(self, two_threads):
        table = call_stacks(two_threads, root="rai")
        assert [">".join(path) for path in paths(table)] == [
            "train",
            "train>conv",
            "train>train",
            "train>train>conv",
        ]
        assert table["total_ns"].tolist() == [45, 30, 8, 8]
        assert table["percent"].iloc[0] == 100

    def test_time_of_what_is_left_out_goes_to_the_caller(self, two_threads):
        table = call_stacks(two_threads, without=["conv", "work"])
        assert [">".join(path) for path in paths(table)] == [
            "main",
            "main>train",
            "main>train>train",
            "main>load",
        ]
        assert table["self_ns"].tolist() == [0, 37, 8, 5]

    def test_samples_without_durations_are_counted(self):
        table = call_stacks(
            profile_with(sampled(("main>a", 0), ("main>a", 0), ("main>b", 0), ("main", 0)))
        )
        assert table["name"].tolist() == ["main", "a", "b"]
        assert table["percent"].tolist() == [100, 50, 25]
        assert table["self_percent"].tolist() == [25, 50, 25]
        assert not table["total_ns"].any()

    def test_a_written_trace(self, tmp_path):
        frames = [
            w.sample(w.BASE + 10 * n, w.BASE + 10 * n + 10, ["main", inner])
            for n, inner in enumerate("aab")
        ]
        path = w.write_trace(tmp_path / "t.proto", w.start(), w.tracks(), *frames)
        table = call_stacks(tidyprof.read(path))
        assert table["name"].tolist() == ["main", "a", "b"]
        assert table["total_ns"].tolist() == [30, 20, 10]

    def test_two_ranks_stay_apart(self):
        rows = sampled(("main", 5)) + [
            row | {"rank": pd.NA} for row in sampled(("main", 7), first=1)
        ]
        table = call_stacks(profile_with(rows))
        assert table["rank"].tolist() == [0, pd.NA]
        assert table["total_ns"].tolist() == [5, 7]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"source": "stacks"}, "samples, calls, not 'stacks'"),
            ({"root": "backward"}, "no function has 'backward'"),
        ],
    )
    def test_what_cannot_be_asked(self, two_threads, options, message):
        with pytest.raises(ValueError, match=message):
            call_stacks(two_threads, **options)

    def test_no_samples(self):
        without_any = profile_of(event("operator", "aten::mm", 0, 5))
        with pytest.raises(ValueError, match="rocprof-sys-sample"):
            call_stacks(without_any, source="samples")
        assert call_stacks(without_any)["name"].tolist() == ["aten::mm"]
        table = call_stacks(profile_of(event("kernel", "gemm", 0, 5)))
        assert not len(table)
        assert list(table.columns) == list(COLUMNS["call_stacks"])


class TestCalls:
    def test_by_hand(self):
        """step 0-100 calls mm 10-40, which launches 15-20, then mm 50-60 with a launch of no length
        at 55.
        """
        profile = profile_of(
            event("annotation", "step", 0, 100),
            event("operator", "mm", 10, 40),
            event("runtime", "launch", 15, 20),
            event("operator", "mm", 50, 60),
            event("runtime", "launch", 55, 55),
            event("operator", "mm", 0, 30, thread=2),
            event("kernel", "gemm", 16, 90),
        )
        table = call_stacks(profile)
        assert [">".join(path) for path in paths(table)] == [
            "step",
            "step>mm",
            "step>mm>launch",
            "mm",
        ]
        assert table["count"].tolist() == [1, 2, 2, 1]
        assert table["self_count"].tolist() == [0, 0, 2, 1]
        assert table["total_ns"].tolist() == [100, 40, 5, 30]
        assert table["self_ns"].tolist() == [60, 35, 5, 30]
        assert table.attrs["source"] == "calls"

    def test_one_after_the_other_is_not_nested(self):
        profile = profile_of(
            event("operator", "a", 0, 10),
            event("operator", "b", 10, 20),
            event("runtime", "c", 20, 20),
        )
        assert call_stacks(profile)["depth"].tolist() == [0, 0, 0]

    def test_rounding_makes_no_negative_time(self):
        profile = profile_of(
            event("operator", "a", 0, 10),
            event("runtime", "b", 0, 10),
            event("runtime", "c", 9, 11),
        )
        assert call_stacks(profile)["self_ns"].min() == 0

    def test_samples_come_first_but_calls_can_be_asked_for(self, two_threads):
        rows = [
            *sampled(("main", 5)),
            event("operator", "mm", 0, 9, rank=0, process=9, thread=1, short_name="mm"),
        ]
        assert call_stacks(profile_with(rows))["name"].tolist() == ["main"]
        assert call_stacks(profile_with(rows), source="calls")["name"].tolist() == ["mm"]

    def test_python_functions_of_a_torch_trace(self, tmp_path):
        functions = [
            TraceEvent("python_function", "train.py(3): main", 1_000_000, 90_000),
            TraceEvent("python_function", "nn.Module: Linear_0", 1_010_000, 50_000),
        ]
        rest = [
            operator("aten::mm", 1_020_000, 30_000, 1),
            call("hipLaunchKernel", 1_025_000, 5_000, 7),
        ]
        path = write_trace(tmp_path / "trace.json", [*functions, *rest])
        table = call_stacks(tidyprof.read(path, python_functions=True))
        names = ["train.py(3): main", "nn.Module: Linear_0", "aten::mm", "hipLaunchKernel"]
        assert table["name"].tolist() == names
        assert table["self_ns"].tolist() == [40_000, 20_000, 25_000, 5_000]
        assert call_stacks(tidyprof.read(path))["name"].tolist() == names[2:], (
            "by default the reader leaves them out"
        )


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
        (
            "a::b<(c::d)3>::execute(e const&) const::{lambda(f)#1}::operator()(f) const",
            "execute::operator",
        ),
        ("THPEngine_run_backward(_object*, _object*)", "THPEngine_run_backward"),
        ("ideep::tensor::~tensor()", "tensor::~tensor"),
        ("aten::mm", "aten::mm"),
        ("PyEval_EvalCode", "PyEval_EvalCode"),
        ("train.py(3): main", "train.py(3): main"),
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

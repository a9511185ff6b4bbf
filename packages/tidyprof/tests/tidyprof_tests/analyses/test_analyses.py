"""Analyses on small profiles that can be checked by hand, and on real recordings against their
truth.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidyprof import analyses
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

ORIGIN = Origin("modeled", "by hand")


def profile_of(*rows: dict, origin: Origin = ORIGIN) -> Profile:
    """A profile from rows that state only what matters; the rest is one rank, one device, one
    thread.
    """
    filled = []
    for row in rows:
        on_device = row["kind"] in ("kernel", "copy", "fill", "collective")
        place = {"device": 0, "stream": 0} if on_device else {"thread": 1}
        filled.append({"rank": 0, "process": 1, **place, "short_name": row["name"], **row})
    events = pd.DataFrame(filled, columns=[*EVENT_DTYPES, "launch_ns"])
    events = events.astype({**EVENT_DTYPES, "launch_ns": "Int64"}).sort_values(
        "start_ns", kind="stable"
    )
    return Profile(events.reset_index(drop=True), meta={"origin": origin})


def event(kind: str, name: str, start: int, end: int, **more) -> dict:
    return {"kind": kind, "name": name, "start_ns": start, "duration_ns": end - start, **more}


def host_step(number: int, start: int, end: int, **more) -> dict:
    return event("annotation", f"ProfilerStep#{number}", start, end, **more)


@pytest.fixture
def two_streams() -> Profile:
    """0-100: a GEMM 10-40, an all-reduce beside and after it 30-70, a copy 60-80, a kernel
    90-100.
    """
    return profile_of(
        event("kernel", "gemm", 10, 40),
        event("collective", "ncclDevKernel_Generic", 30, 70, stream=1),
        event("copy", "Memcpy HtoD (Host -> Device)", 60, 80, stream=2),
        event("kernel", "gemm", 90, 100),
    )


class TestKinds:
    CHOOSING = (
        analyses.busy,
        analyses.operators,
        lambda profile, kinds: analyses.kernels(profile, include=kinds),
    )

    @pytest.mark.parametrize("analysis", CHOOSING)
    def test_one_kind_is_as_good_as_a_list_and_an_unknown_one_is_refused(
        self, two_streams, analysis
    ):
        pd.testing.assert_frame_equal(
            analysis(two_streams, "kernel"), analysis(two_streams, ["kernel"])
        )
        for unknown in ("kernels", ["kernel", "kernels"]):
            with pytest.raises(ValueError, match="'kernels'"):
                analysis(two_streams, unknown)


class TestStepBudget:
    @settings(deadline=None)
    @given(st.data())
    def test_parts_add_up(self, data):
        times = st.tuples(st.integers(0, 200), st.integers(0, 60))
        kinds = st.sampled_from(["kernel", "copy", "fill", "collective"])
        cuts = sorted(data.draw(st.sets(st.integers(0, 250), min_size=2, max_size=6)))
        rows = [host_step(number, *cuts[number : number + 2]) for number in range(len(cuts) - 1)]
        rows += [
            event("annotation", "data", a, a + n) for a, n in data.draw(st.lists(times, max_size=4))
        ]
        rows += [
            event("runtime", "hipFree", a, a + n) for a, n in data.draw(st.lists(times, max_size=4))
        ]
        for a, n in data.draw(st.lists(times, min_size=1, max_size=12)):
            launch = data.draw(st.none() | st.integers(0, a))
            rows.append(
                event(
                    data.draw(kinds),
                    "x",
                    a,
                    a + n,
                    launch_ns=launch,
                    stream=data.draw(st.integers(0, 1)),
                )
            )
        profile = profile_of(*rows)
        for timeline in ("host", "device"):
            if timeline == "device" and profile.events["launch_ns"].isna().all():
                continue
            table = analyses.step_budget(profile, timeline)
            columns = [f"{part}_ns" for part in analyses.budget_parts(table)]
            assert (table[columns].sum(axis=1) == table["duration_ns"]).all()
            assert (table[columns] >= 0).all(axis=None)


class TestGaps:
    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30)), min_size=1, max_size=8))
    def test_longest_overlap_against_a_plain_loop(self, ranges):
        kernels = [(0, 10), (20, 30), (33, 40), (70, 100)]
        profile = profile_of(
            *(event("kernel", "k", a, b) for a, b in kernels),
            *(event("operator", f"{a}+{n}", a, a + n) for a, n in ranges),
        )
        for row in analyses.gaps(profile, minimum_ns=1).itertuples():
            end = row.start_ns + row.duration_ns
            shared = {(a, n): min(a + n, end) - max(a, row.start_ns) for a, n in ranges}
            best = max(shared.values())
            if best <= 0:
                assert pd.isna(row.host_operator)
            else:
                start, length = map(int, row.host_operator.split("+"))
                assert shared[start, length] == best
                assert length == min(n for (_, n), value in shared.items() if value == best)


class TestOperators:
    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=25))
    def test_self_times_add_up_to_the_covered_time(self, script):
        """Any properly nested calls: each entry closes some open calls, waits, and opens one."""
        now, opened, rows = 0, [], []
        for closing, wait in script:
            for _ in range(min(closing, len(opened))):
                now += wait
                rows.append(event("operator", f"op{len(opened)}", opened.pop(), now))
            now += wait
            opened.append(now)
        while opened:
            now += 1
            rows.append(event("operator", f"op{len(opened)}", opened.pop(), now))
        profile = profile_of(*rows)
        table = analyses.operators(profile)
        line = np.zeros(now + 1, dtype=bool)
        for row in rows:
            line[row["start_ns"] : row["start_ns"] + row["duration_ns"]] = True
        assert table["self_ns"].sum() == line.sum()
        assert (table["self_ns"] >= 0).all()


class TestCompare:
    def test_by_hand(self):
        before = profile_of(event("kernel", "gemm", 0, 100), event("kernel", "gone", 100, 110))
        after = profile_of(event("kernel", "gemm.kd", 0, 60), event("kernel", "new", 60, 65))
        table = analyses.compare(before, after).set_index("short_name")
        assert list(table.index) == ["gemm", "gone", "new"]
        assert table.loc[
            "gemm", ["calls_before", "calls_after", "difference_ns", "ratio"]
        ].tolist() == [1, 1, -40, 0.6]
        assert table.loc["gone", "ratio"] == 0
        assert table.loc["new", "ratio"] == float("inf")
        assert table.attrs["origin"] == ORIGIN

    def test_versions_that_differ_in_their_argument_types_match(self):
        before = profile_of(event("collective", "ncclDevKernel_Generic(ncclDevComm*)", 0, 10))
        after = profile_of(
            event("collective", "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 0, 15)
        )
        table = analyses.compare(before, after)
        assert table["short_name"].tolist() == ["ncclDevKernel_Generic"]
        assert table["difference_ns"].tolist() == [5]

    def test_kernels_of_one_short_name_are_added_up(self):
        names = [
            f"Cijk_Alik_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_GLVWA{width}" for width in (2, 4)
        ]
        before = profile_of(*(event("kernel", name, 0, 5) for name in names))
        after = profile_of(event("kernel", names[1], 0, 7))
        (row,) = analyses.compare(before, after).itertuples()
        assert (row.calls_before, row.calls_after, row.difference_ns) == (2, 1, -3)

    def test_two_origins(self):
        other = profile_of(event("kernel", "a", 0, 1), origin=Origin("measured", "here"))
        table = analyses.compare(profile_of(event("kernel", "a", 0, 1)), other)
        assert "by hand" in str(table.attrs["origin"])
        assert "here" in str(table.attrs["origin"])


EVERY = {
    "kernels": analyses.kernels,
    "busy": analyses.busy,
    "overlap": analyses.overlap,
    "steps": analyses.steps,
    "phases": analyses.phases,
    "step_budget": analyses.step_budget,
    "gaps": analyses.gaps,
    "operators": analyses.operators,
}


@pytest.mark.parametrize("name", EVERY)
class TestEvery:
    def test_origin_and_nothing_changed(self, name, two_streams):
        before = two_streams.events.copy(deep=True)
        assert EVERY[name](two_streams).attrs["origin"] == ORIGIN
        pd.testing.assert_frame_equal(two_streams.events, before)

    def test_empty_profile_gives_the_same_columns(self, name, two_streams):
        empty = Profile(two_streams.events.iloc[:0], meta={"origin": ORIGIN})
        table = EVERY[name](empty)
        assert not len(table)
        if name != "step_budget":
            pd.testing.assert_series_equal(table.dtypes, EVERY[name](two_streams).dtypes)

    def test_unknown_rank_and_device(self, name, two_streams):
        events = two_streams.events.assign(
            rank=pd.array([pd.NA] * 4, dtype="Int32"), device=pd.array([pd.NA] * 4, dtype="Int32")
        )
        table = EVERY[name](Profile(events, meta={"origin": ORIGIN}))
        if name in ("busy", "overlap"):
            assert len(table) == 1
            assert table["rank"].isna().all()


RESNET = "torch-mi300x-resnet-ddp-rank0"
RANKS = "torch-mi300-ddp-4ranks-fused"


@pytest.fixture(scope="session")
def resnet(recordings) -> Profile:
    return read_torch_trace(recordings / RESNET / "resnet_act_checkpoint.json.gz")


@pytest.fixture(scope="session")
def four_ranks(recordings) -> Profile:
    return read_torch_trace(recordings / RANKS / "merged_all_events.json.gz")


class TestResnetRecording:
    def test_kernels(self, resnet, manifest):
        truth = manifest[RESNET]["truth"]
        table = analyses.kernels(resnet)
        assert table["calls"].sum() == truth["kernel_events"]
        assert len(table) == truth["distinct_kernel_names"]
        assert table["total_ns"].sum() == round(1000 * truth["kernel_total_us"])
        top = truth["top_kernel"]
        expected = [top["name"], top["calls"], round(1000 * top["total_us"])]
        assert table.iloc[0][["name", "calls", "total_ns"]].tolist() == expected

    def test_a_sum_of_durations_exceeds_the_time(self, resnet, manifest):
        truth = manifest[RESNET]["truth"]
        everything = analyses.busy(resnet).iloc[0]
        assert everything.busy_percent == pytest.approx(100 * truth["gpu_busy_fraction"], abs=1e-4)
        assert everything.busy_ns == round(1000 * truth["gpu_busy_us"])
        assert everything.span_ns == round(1000 * truth["gpu_span_us"])
        assert everything.streams == truth["gpu_streams"]
        only_kernels = analyses.busy(resnet, kinds=["kernel", "collective"]).iloc[0]
        assert only_kernels.sum_percent == pytest.approx(
            100 * truth["kernel_total_us"] / truth["gpu_span_us"]
        )
        assert only_kernels.sum_percent > 100 > everything.busy_percent > only_kernels.busy_percent

    def test_steps(self, resnet, manifest):
        expected = manifest[RESNET]["truth"]["profiler_steps"]
        table = analyses.steps(resnet)
        assert [f"ProfilerStep#{step}" for step in table["step"]] == [
            step["name"] for step in expected
        ]
        assert table["duration_ns"].tolist() == [round(1000 * step["dur_us"]) for step in expected]


class TestRanksRecording:
    def test_kernels_and_collectives_of_each_rank(self, four_ranks, manifest):
        table = analyses.kernels(four_ranks, per_device=True)
        for truth in manifest[RANKS]["truth"]["merged_all_events"]["per_rank"]:
            own = table[table["rank"] == truth["rank"]]
            assert own["calls"].sum() == truth["kernel_events"]
            assert own["total_ns"].sum() == round(1000 * truth["kernel_total_us"])
            collective = own[own["category"] == "collective"]
            assert collective["total_ns"].sum() == round(1000 * truth["collective_total_us"])

    def test_budget_names_the_straggler(self, four_ranks, manifest):
        """The rank that the others wait for has hardly any exposed communication and is
        launch-bound.
        """
        collectives = {
            truth["rank"]: truth["collective_total_us"]
            for truth in manifest[RANKS]["truth"]["merged_all_events"]["per_rank"]
        }
        straggler = min(collectives, key=collectives.get)
        budget = analyses.step_budget(four_ranks)
        parts = [f"{part}_ns" for part in analyses.budget_parts(budget)]
        assert (budget[parts].sum(axis=1) == budget["duration_ns"]).all()
        total = budget.groupby("rank")[["exposed_communication_ns", "launch_bound_ns"]].sum()
        assert (
            total["exposed_communication_ns"].idxmin()
            == straggler
            == total["launch_bound_ns"].idxmax()
        )


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("torch-mi300x-compile-triton", "trace.json.gz"),
        ("torch-mi300x-vllm-decode-hipgraph", "graph_execution.json.gz"),
        ("torch-mi210-gpu-only", "gpu_only_trace.json.gz"),
    ],
)
def test_overlap_agrees_with_tracelens(recordings, name, file):
    """TraceLens' published report of the same trace; its times are rounded to 2^-10 us by the float
    it reads.
    """
    reference = pd.read_csv(recordings / name / "reference" / "gpu_timeline.csv").set_index("type")[
        "time ms"
    ]
    row = analyses.overlap(read_torch_trace(recordings / name / file)).iloc[0]
    for column, theirs in (
        ("computation_ns", "computation_time"),
        ("exposed_communication_ns", "exposed_comm_time"),
        ("exposed_copy_ns", "exposed_memcpy_time"),
        ("busy_ns", "busy_time"),
        ("idle_ns", "idle_time"),
        ("total_ns", "total_time"),
        ("communication_ns", "total_comm_time"),
        ("copy_ns", "total_memcpy_time"),
    ):
        assert row[column] == pytest.approx(1e6 * reference[theirs], abs=500)

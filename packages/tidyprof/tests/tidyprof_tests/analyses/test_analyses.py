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


class TestKernels:
    def test_by_hand(self, two_streams):
        table = analyses.kernels(two_streams)
        assert table["name"].tolist() == ["gemm", "ncclDevKernel_Generic"]
        assert table["category"].tolist() == ["GEMM", "collective"]
        gemm = table.iloc[0]
        assert (gemm.calls, gemm.total_ns, gemm.min_ns, gemm.max_ns, gemm.mean_ns) == (
            2,
            40,
            10,
            30,
            20,
        )
        assert gemm.std_ns == pytest.approx(np.std([10, 30], ddof=1))
        assert table["percent"].tolist() == [50, 50]
        assert table["std_ns"].iloc[1] == 0, "one call has no spread"

    def test_chosen_kinds(self, two_streams):
        assert analyses.kernels(two_streams, include=["copy"])["short_name"].tolist() == [
            "Memcpy HtoD"
        ]
        assert not len(analyses.kernels(two_streams, include=["fill"]))

    def test_names_that_shorten_alike_stay_apart(self):
        names = [
            f"Cijk_Alik_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_GLVWA{width}" for width in (2, 4)
        ]
        table = analyses.kernels(profile_of(*(event("kernel", name, 0, 5) for name in names)))
        assert table["name"].nunique() == table["short_name"].nunique() == 2

    def test_per_device(self):
        profile = profile_of(
            *(event("kernel", "k", 0, 10 + rank, rank=rank, device=rank + 2) for rank in (0, 1))
        )
        table = analyses.kernels(profile, per_device=True).sort_values("rank")
        assert table[["rank", "device", "total_ns"]].to_numpy().tolist() == [[0, 2, 10], [1, 3, 11]]
        assert analyses.kernels(profile)["total_ns"].tolist() == [21]


class TestBusy:
    def test_union_and_sum(self, two_streams):
        row = analyses.busy(two_streams).iloc[0]
        assert (row.span_ns, row.busy_ns, row.sum_ns, row.streams, row.events) == (
            90,
            80,
            100,
            3,
            4,
        )
        assert row.sum_percent == pytest.approx(100 * 100 / 90)
        kernels_only = analyses.busy(two_streams, kinds=["kernel"]).iloc[0]
        assert (kernels_only.span_ns, kernels_only.busy_ns) == (90, 40)

    def test_a_device_that_ran_nothing_of_these_kinds(self):
        table = analyses.busy(
            profile_of(event("kernel", "k", 0, 10), event("copy", "c", 0, 20, device=1)), "kernel"
        )
        assert table[["device", "span_ns", "busy_ns", "events"]].to_numpy().tolist() == [
            [0, 10, 10, 1],
            [1, 20, 0, 0],
        ]


class TestKinds:
    CHOOSING = (
        analyses.busy,
        analyses.operators,
        lambda profile, kinds: analyses.kernels(profile, include=kinds),
        lambda profile, kinds: analyses.compare(profile, profile, include=kinds),
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


class TestOverlap:
    def test_by_hand(self, two_streams):
        row = analyses.overlap(two_streams).iloc[0]
        assert row.total_ns == 90
        assert (
            row.computation_ns,
            row.exposed_communication_ns,
            row.exposed_copy_ns,
            row.idle_ns,
        ) == (40, 30, 10, 10)
        assert (row.communication_ns, row.hidden_communication_ns, row.copy_ns) == (40, 10, 20)

    def test_a_fill_is_computation(self):
        row = analyses.overlap(
            profile_of(event("fill", "Memset", 0, 5), event("copy", "c", 0, 9))
        ).iloc[0]
        assert (row.computation_ns, row.exposed_copy_ns) == (5, 4)


class TestSteps:
    def test_ranges_of_the_profiler(self):
        table = analyses.steps(profile_of(host_step(10, 50, 90), host_step(9, 0, 50)))
        assert table["step"].tolist() == [9, 10]
        assert table["duration_ns"].tolist() == [50, 40]

    @pytest.mark.parametrize("number", [2**63, 2**64, 10**30])
    def test_a_number_beyond_64_bits_is_no_step(self, number):
        table = analyses.steps(profile_of(host_step(9, 0, 50), host_step(number, 50, 90)))
        assert table["step"].tolist() == [9]

    def test_a_range_projected_onto_the_device_is_no_step(self):
        table = analyses.steps(
            profile_of(host_step(9, 0, 50), host_step(9, 20, 90, device=0, stream=0))
        )
        assert table["duration_ns"].tolist() == [50]

    def test_from_phases(self):
        rows = [event("annotation", name, start, start + 10) for start, name in enumerate_phases(2)]
        table = analyses.steps(profile_of(*rows))
        assert table["step"].tolist() == [0, 1]
        assert table["duration_ns"].tolist() == [50, 50]

    def test_device_side_follows_the_launch(self):
        profile = profile_of(
            host_step(1, 0, 10),
            host_step(2, 10, 20),
            event("kernel", "a", 5, 30, launch_ns=1),
            event("kernel", "b", 30, 50, launch_ns=12),
            event("kernel", "c", 55, 60, launch_ns=19),
        )
        table = analyses.steps(profile, timeline="device")
        assert table[["step", "start_ns", "duration_ns"]].to_numpy().tolist() == [
            [1, 0, 30],
            [2, 30, 30],
        ]

    def test_device_side_needs_launches(self):
        with pytest.raises(ValueError, match="launch"):
            analyses.steps(
                profile_of(host_step(1, 0, 10), event("kernel", "a", 5, 30)), timeline="device"
            )
        with pytest.raises(ValueError, match="timeline"):
            analyses.steps(profile_of(host_step(1, 0, 10)), timeline="both")

    def test_none(self, two_streams):
        assert list(analyses.steps(two_streams).columns) == [
            "rank", "device", "process", "step", "start_ns", "duration_ns"
        ]  # fmt: skip
        assert not len(analyses.steps(two_streams))


def two_processes(marks, device_process=True) -> Profile:
    """Processes 1 and 2 without a rank, on devices 1 and 2; marks(begin) are the ranges of a step
    of 100 ns.

    Each has two steps from 0, and process 2 is 30 ns later; a kernel, launched 10 ns into the step,
    runs from 20 to 70.
    """
    rows = []
    for process in (1, 2):
        own = {"rank": None, "process": process}
        for number in (0, 1):
            begin = 100 * number + 30 * (process - 1)
            rows += [{**row, **own} for row in marks(number, begin)]
            place = own if device_process else {"rank": None, "process": None}
            kernel = event(
                "kernel", "k", begin + 20, begin + 70, launch_ns=begin + 10, device=process, **place
            )
            rows.append(kernel)
    return profile_of(*rows)


def numbered(number: int, begin: int) -> list[dict]:
    return [host_step(number, begin, begin + 100), event("annotation", "data", begin, begin + 20)]


def phased(_: int, begin: int) -> list[dict]:
    return [
        event("annotation", "data", begin, begin + 20),
        event("annotation", "forward", begin + 20, begin + 100),
    ]


@pytest.mark.parametrize("marks", [numbered, phased])
class TestProcessesWithoutARank:
    def test_each_has_its_own_steps(self, marks):
        table = analyses.steps(two_processes(marks))
        assert table["process"].tolist() == [1, 1, 2, 2]
        assert table["step"].tolist() == [0, 1, 0, 1]
        assert table["start_ns"].tolist() == [0, 100, 30, 130]
        assert table["duration_ns"].tolist() == [100] * 4

    def test_a_device_has_the_steps_of_its_process(self, marks):
        profile = two_processes(marks)
        table = analyses.step_budget(profile)
        assert table[["device", "process", "step"]].to_numpy().tolist() == [
            [1, 1, 0],
            [1, 1, 1],
            [2, 2, 0],
            [2, 2, 1],
        ]
        assert table["data_wait_ns"].tolist() == [20] * 4
        assert table["compute_ns"].tolist() == [50] * 4
        device = analyses.steps(profile, "device")
        assert device[["process", "start_ns"]].to_numpy().tolist() == [
            [1, 0],
            [1, 100],
            [2, 30],
            [2, 130],
        ]
        assert (
            analyses.gaps(profile, 1)["host_range"].tolist()
            == ["forward" if marks is phased else "data"] * 2
        )

    def test_the_host_alone(self, marks):
        profile = two_processes(marks)
        host = Profile(profile.events[profile.events["device"].isna()], meta={"origin": ORIGIN})
        assert analyses.step_budget(host)["data_ns"].tolist() == [20] * 4
        phases = analyses.phases(host).query("phase == 'data'")
        assert phases[["process", "step", "duration_ns"]].to_numpy().tolist() == [
            [1, 0, 20], [1, 1, 20], [2, 0, 20], [2, 1, 20]
        ]  # fmt: skip

    def test_work_of_an_unknown_process_is_refused(self, marks):
        profile = two_processes(marks, device_process=False)
        for analysis in (analyses.step_budget, lambda profile: analyses.gaps(profile, 1)):
            with pytest.raises(ValueError, match="device 1"):
                analysis(profile)

    def test_a_process_that_marks_nothing_belongs_to_the_one_that_does(self, marks):
        profile = two_processes(marks)
        events = profile.events[(profile.events["process"] == 1) | profile.events["device"].notna()]
        table = analyses.step_budget(Profile(events, meta={"origin": ORIGIN}))
        assert table["process"].isna().all()
        assert table[["device", "start_ns"]].to_numpy().tolist() == [
            [1, 0],
            [1, 100],
            [2, 0],
            [2, 100],
        ]


def enumerate_phases(steps: int):
    names = ["data", "forward", "loss", "backward", "optimizer"]
    return [(10 * place, name) for place, name in enumerate(names * steps)]


class TestPhases:
    def test_by_hand(self):
        profile = profile_of(
            host_step(3, 0, 100),
            event("annotation", "data", 0, 20),
            event("annotation", "enumerate(DataLoader)#_Iter.__next__", 5, 15),
            event("annotation", "Optimizer.step#Adam.step", 80, 95),
        )
        table = analyses.phases(profile).set_index("phase")
        assert table.loc["data", ["calls", "duration_ns", "percent"]].tolist() == [2, 20, 20]
        assert table.loc["optimizer", ["start_ns", "duration_ns"]].tolist() == [80, 15]
        assert set(table.index) == {"data", "optimizer"}

    def test_without_steps_the_whole_recording(self):
        table = analyses.phases(
            profile_of(event("annotation", "forward", 10, 30), event("operator", "x", 0, 40))
        )
        assert table["step"].isna().all()
        assert table["percent"].tolist() == [50]


class TestStepBudget:
    def test_by_hand(self):
        """0-100: data wait 0-10, launch-bound 10-20, kernel 20-40, a queued gap 40-45, kernel
        45-60,

        all-reduce 55-80 (exposed from 60), copy 80-90, launch-bound to the end.
        """
        profile = profile_of(
            host_step(7, 0, 100),
            event("annotation", "data", 0, 10),
            event("kernel", "a", 20, 40, launch_ns=15),
            event("kernel", "b", 45, 60, launch_ns=16),
            event("collective", "nccl", 55, 80, stream=1, launch_ns=17),
            event("copy", "c", 80, 90, launch_ns=18),
        )
        row = analyses.step_budget(profile).iloc[0]
        parts = {
            part: row[f"{part}_ns"] for part in analyses.budget_parts(analyses.step_budget(profile))
        }
        assert parts == {
            "compute": 35,
            "exposed_communication": 20,
            "exposed_copy": 10,
            "launch_bound": 20,
            "blocked_host": 0,
            "data_wait": 10,
            "other": 5,
        }
        assert (row.duration_ns, row.launched_earlier_percent, row.no_launch_record_percent) == (
            100,
            0,
            0,
        )

    def test_unknown_launches_are_not_blamed_on_the_host(self):
        row = analyses.step_budget(
            profile_of(host_step(1, 0, 10), event("kernel", "a", 5, 10))
        ).iloc[0]
        assert (row.launch_bound_ns, row.other_ns, row.no_launch_record_percent) == (0, 5, 100)

    def test_a_gap_is_judged_by_its_beginning_not_by_the_step(self):
        profile = profile_of(
            host_step(1, 0, 50),
            host_step(2, 50, 100),
            event("kernel", "a", 0, 10, launch_ns=0),
            event("kernel", "b", 60, 100, launch_ns=45),
        )
        table = analyses.step_budget(profile)
        assert table["launch_bound_ns"].tolist() == [40, 10]
        assert table["launched_earlier_percent"].tolist() == [0, 100]

    def test_work_across_the_border_of_a_step_was_launched_before_it(self):
        """Of the second step's 90 of work all were launched in the first; and nothing of the first
        step's 50.
        """
        steps = [host_step(0, 0, 100), host_step(1, 100, 200)]
        whole = analyses.step_budget(profile_of(*steps, event("kernel", "k", 50, 190, launch_ns=5)))
        halves = [
            event("kernel", "k", 50, 100, launch_ns=5),
            event("kernel", "k", 100, 190, launch_ns=5),
        ]
        pd.testing.assert_frame_equal(whole, analyses.step_budget(profile_of(*steps, *halves)))
        assert whole["launched_earlier_percent"].tolist() == [0, 100]

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(st.integers(0, 90), st.integers(0, 60), st.integers(0, 40)),
            min_size=1,
            max_size=8,
        )
    )
    def test_launched_earlier_against_a_plain_loop(self, work):
        """Four steps of 25; work is start, length, and how long before its start it was
        launched.
        """
        rows = [event("kernel", "k", a, a + n, launch_ns=a - before) for a, n, before in work]
        table = analyses.step_budget(
            profile_of(*(host_step(n, 25 * n, 25 * n + 25) for n in range(4)), *rows)
        )
        for row in table.itertuples():
            times = range(row.start_ns, row.start_ns + row.duration_ns)
            running = [
                [a - before < row.start_ns for a, n, before in work if a <= time < a + n]
                for time in times
            ]
            total, earlier = sum(map(bool, running)), sum(map(any, running))
            assert row.launched_earlier_percent == pytest.approx(
                100 * earlier / total if total else 0
            )

    @pytest.mark.parametrize("timeline", ["host", "device"])
    def test_phases_of_the_host_for_either_timeline_and_no_other(self, timeline):
        profile = profile_of(
            event("annotation", "data", 0, 10), event("annotation", "forward", 10, 30)
        )
        assert analyses.step_budget(profile, timeline)["forward_ns"].tolist() == [20]
        with pytest.raises(ValueError, match="timeline"):
            analyses.step_budget(profile, "both")

    def test_an_event_without_duration_fills_no_queue(self):
        profile = profile_of(
            host_step(0, 0, 120),
            event("kernel", "a", 0, 10, launch_ns=0),
            event("kernel", "empty", 10, 10, launch_ns=1),
            event("kernel", "b", 100, 110, launch_ns=90),
        )
        assert analyses.step_budget(profile)["launch_bound_ns"].tolist() == [90 + 10]

    def test_device_timeline(self):
        profile = profile_of(
            host_step(1, 0, 10),
            host_step(2, 10, 20),
            event("kernel", "a", 5, 30, launch_ns=1),
            event("kernel", "b", 30, 50, launch_ns=12),
            event("kernel", "c", 55, 60, launch_ns=19),
        )
        table = analyses.step_budget(profile, timeline="device")
        assert table["compute_ns"].tolist() == [25, 25]
        assert table["other_ns"].tolist() == [0, 5]

    def test_on_a_cpu_the_parts_are_phases(self):
        profile = profile_of(
            host_step(1, 0, 100),
            *(event("annotation", name, start, start + 10) for start, name in enumerate_phases(1)),
            event("annotation", "enumerate(DataLoader)#x", 2, 8),
        )
        table = analyses.step_budget(profile)
        assert analyses.budget_parts(table) == [
            "data",
            "forward",
            "loss",
            "backward",
            "optimizer",
            "other",
        ]
        assert table.iloc[0][["data_ns", "optimizer_ns", "other_ns"]].tolist() == [10, 10, 50]

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
            percentages = table[["launched_earlier_percent", "no_launch_record_percent"]]
            assert percentages.le(100).all(axis=None)


class TestGaps:
    def test_by_hand(self):
        profile = profile_of(
            host_step(1, 0, 200),
            event("annotation", "forward", 0, 150),
            event("operator", "aten::conv2d", 40, 60),
            event("operator", "aten::item", 65, 100),
            event("runtime", "hipLaunchKernel", 95, 99),
            event("kernel", "a", 0, 50, launch_ns=-5),
            event("kernel", "b", 100, 120, launch_ns=95),
            event("kernel", "c", 130, 140, launch_ns=96),
            event("kernel", "d", 141, 150, launch_ns=140),
        )
        table = analyses.gaps(profile, minimum_ns=10)
        assert table["duration_ns"].tolist() == [50, 10]
        assert table["cause"].tolist() == ["launched late", "queued"]
        assert table[["after", "before"]].to_numpy().tolist() == [["a", "b"], ["b", "c"]]
        first = table.iloc[0]
        assert (first.host_range, first.host_operator) == ("forward", "aten::item")
        assert pd.isna(first.host_call), "4 of 50 ns explain nothing"
        assert table["host_operator"].isna().tolist() == [False, True]

    def test_a_call_that_covers_most_of_a_gap_is_named(self):
        call = event("runtime", "hipDeviceSynchronize", 10, 40)
        table = analyses.gaps(
            profile_of(event("kernel", "a", 0, 10), call, event("kernel", "b", 50, 60)),
            minimum_ns=1,
        )
        assert table["host_call"].tolist() == ["hipDeviceSynchronize"]

    def test_work_that_waits_behind_its_launch_leaves_no_idleness_to_the_host(self):
        """Launched at 2 ms, it runs from 20 ms on: in another stream than the first, something
        unseen was at work.
        """
        ms = 1_000_000
        rows = [
            event("runtime", "hipLaunchKernel", 0, 10, correlation_id=1),
            event("kernel", "a", 100, ms, launch_ns=0, correlation_id=1, stream=1),
            event("runtime", "hipLaunchKernel", 2 * ms, 2 * ms + 10, correlation_id=2),
        ]
        for stream, cause in ((2, "earlier work"), (1, "queued")):
            late = event(
                "kernel", "b", 20 * ms, 21 * ms, launch_ns=2 * ms, correlation_id=2, stream=stream
            )
            profile = profile_of(*rows, late)
            assert analyses.gaps(profile)["cause"].tolist() == [cause]
            row = analyses.step_budget(profile).iloc[0]
            assert (row.launch_bound_ns, row.other_ns) == (100 + ms + 10, 18 * ms - 10)

    def test_without_launch_records(self):
        table = analyses.gaps(
            profile_of(event("kernel", "a", 0, 5), event("kernel", "b", 50, 60)), minimum_ns=1
        )
        assert table["cause"].tolist() == ["unknown"]
        assert table["host_range"].isna().all()

    @pytest.mark.parametrize("time", [10, 50, 100])
    def test_events_without_duration_change_nothing(self, time):
        rows = [
            event("kernel", "a", 0, 10, launch_ns=0),
            event("kernel", "b", 100, 110, launch_ns=90),
        ]
        empty = [
            event("kernel", "empty", time, time, launch_ns=1),
            event("operator", "empty", time, time),
        ]
        table = analyses.gaps(profile_of(*empty, *rows, *empty), minimum_ns=1)
        pd.testing.assert_frame_equal(table, analyses.gaps(profile_of(*rows), minimum_ns=1))
        assert table[["cause", "after", "before"]].to_numpy().tolist() == [
            ["launched late", "a", "b"]
        ]

    @pytest.mark.parametrize(
        ("launches", "cause"), [((90, 5), "queued"), ((90, 95), "launched late")]
    )
    def test_of_work_that_starts_together_the_first_launched_counts(self, launches, cause):
        for order in (launches, launches[::-1]):
            later = [event("kernel", f"at {at}", 100, 110, launch_ns=at, stream=at) for at in order]
            table = analyses.gaps(
                profile_of(event("kernel", "a", 0, 10, launch_ns=0), *later), minimum_ns=1
            )
            assert table[["cause", "before"]].to_numpy().tolist() == [
                [cause, f"at {min(launches)}"]
            ]

    def test_innermost_wins_a_tie(self):
        profile = profile_of(
            event("kernel", "a", 0, 10),
            event("kernel", "b", 20, 30),
            event("operator", "outer", 0, 40),
            event("operator", "inner", 5, 25),
        )
        assert analyses.gaps(profile, minimum_ns=1)["host_operator"].tolist() == ["inner"]

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


class TestLaunches:
    def test_by_hand(self):
        profile = profile_of(
            event("kernel", "a", 10, 100, launch_ns=0),
            event("kernel", "b", 100, 110, launch_ns=5),
            event("copy", "c", 210, 220, launch_ns=200),
            event("kernel", "no record", 300, 310),
        )
        table = analyses.launches(profile)
        assert table["name"].tolist() == ["a", "b", "c"]
        assert table["delay_ns"].tolist() == [10, 95, 10]
        assert table["queue_depth"].tolist() == [0, 1, 0]

    def test_none(self, two_streams):
        assert not len(analyses.launches(two_streams))


class TestOperators:
    def test_self_time_leaves_out_what_is_called(self):
        profile = profile_of(
            event("operator", "aten::linear", 0, 100),
            event("operator", "aten::addmm", 10, 90),
            event("operator", "aten::copy_", 20, 30),
            event("operator", "aten::copy_", 30, 40),
            event("operator", "aten::linear", 200, 250),
            event("operator", "aten::relu", 0, 50, thread=2),
        )
        table = analyses.operators(profile).set_index("name")
        assert table["self_ns"].to_dict() == {
            "aten::linear": 70,
            "aten::addmm": 60,
            "aten::copy_": 20,
            "aten::relu": 50,
        }
        assert table.loc["aten::linear", ["calls", "total_ns", "mean_ns"]].tolist() == [2, 150, 75]
        assert table["percent"].sum() == pytest.approx(100)

    def test_same_bounds_and_no_duration(self):
        profile = profile_of(
            event("operator", "outer", 0, 10),
            event("operator", "inner", 0, 10),
            event("operator", "instant", 0, 0),
            event("operator", "last", 10, 10),
        )
        table = analyses.operators(profile).set_index("name")
        assert table["self_ns"].to_dict() == {"inner": 10, "outer": 0, "instant": 0, "last": 0}

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

    def test_kernels_of_one_short_name_stay_apart(self):
        names = [
            f"Cijk_Alik_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_GLVWA{width}" for width in (2, 4)
        ]
        before = profile_of(*(event("kernel", name, 0, 5) for name in names))
        after = profile_of(event("kernel", names[1], 0, 7))
        table = analyses.compare(before, after)
        assert table["short_name"].nunique() == len(table) == 2
        assert sorted(table["difference_ns"]) == [-5, 2]

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
    "blocking_calls": analyses.blocking_calls,
    "phases": analyses.phases,
    "step_budget": analyses.step_budget,
    "gaps": analyses.gaps,
    "launches": analyses.launches,
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

    def test_budget_says_what_it_cannot_attribute(self, resnet, manifest):
        unknown = resnet.device_events["launch_ns"].isna().sum()
        assert unknown == manifest[RESNET]["truth"]["gpu_events_without_launch_record"]
        table = analyses.step_budget(resnet)
        assert table["no_launch_record_percent"].iloc[0] == 100, (
            "the first step ran only what was launched before"
        )
        assert table["no_launch_record_percent"].iloc[-1] == 0
        assert table["launched_earlier_percent"].iloc[-1] == 100, "the host runs a step ahead"
        assert analyses.step_budget(resnet, timeline="device")[
            "no_launch_record_percent"
        ].tolist() == [0, 0, 0]

    def test_launches(self, resnet):
        table = analyses.launches(resnet)
        assert len(table) == resnet.device_events["launch_ns"].notna().sum()
        assert (table["delay_ns"] > 0).all()
        assert table["queue_depth"].median() > 100, "the host runs far ahead"


class TestRanksRecording:
    def test_kernels_and_collectives_of_each_rank(self, four_ranks, manifest):
        table = analyses.kernels(four_ranks, per_device=True)
        for truth in manifest[RANKS]["truth"]["merged_all_events"]["per_rank"]:
            own = table[table["rank"] == truth["rank"]]
            assert own["calls"].sum() == truth["kernel_events"]
            assert own["total_ns"].sum() == round(1000 * truth["kernel_total_us"])
            collective = own[own["category"] == "collective"]
            assert collective["total_ns"].sum() == round(1000 * truth["collective_total_us"])

    def test_busy_of_each_rank(self, four_ranks, manifest):
        table = analyses.busy(four_ranks).set_index("rank")
        for truth in manifest[RANKS]["truth"]["merged_all_events"]["per_rank"]:
            assert table.loc[truth["rank"], "busy_ns"] == round(1000 * truth["gpu_busy_us"])
            assert table.loc[truth["rank"], "span_ns"] == round(1000 * truth["gpu_span_us"])

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

    def test_steps_of_each_rank(self, four_ranks, manifest):
        table = analyses.steps(four_ranks)
        for truth in manifest[RANKS]["truth"]["merged_all_events"]["per_rank"]:
            own = table.loc[table["rank"] == truth["rank"], "duration_ns"]
            assert own.tolist() == [round(1000 * length) for length in truth["profiler_steps_us"]]


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

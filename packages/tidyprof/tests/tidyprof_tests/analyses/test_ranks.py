"""Ranks and their collectives: examples checked by hand, properties, and the recording of four
ranks.
"""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidyprof.analyses.collectives import (
    collective_entries,
    collectives,
)
from tidyprof.analyses.common import COLUMNS, join
from tidyprof.analyses.device_time import overlap
from tidyprof.analyses.ranks import compare_ranks, ranks
from tidyprof.plots import describe
from tidyprof.plots.ranks import collectives as plot_collectives
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof.tables.contract import Origin, Profile
from tidyprof_tests.analyses.test_analyses import ORIGIN, event, host_step, profile_of

RANKS = "torch-mi300-ddp-4ranks-fused"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
BROADCAST = "ncclDevKernel_Broadcast"


def entry(rank: int, start: int, end: int, name: str = ALL_REDUCE, **more) -> dict:
    return event("collective", name, start, end, rank=rank, device=rank, **more)


def compute(rank: int, start: int, end: int) -> dict:
    return event("kernel", "gemm", start, end, rank=rank, device=rank, stream=1)


@pytest.fixture
def three_ranks() -> Profile:
    """Two all-reduces: entries at 100, 130, 190, all out at 200; then entries at 300, 310, 305, out
    at 330 and 331.

    Ranks 0 and 1 compute for 100 each, rank 2 for 180, so rank 2 is late in the first and rank 1 in
    the second.
    """
    return profile_of(
        *(compute(rank, 0, end) for rank, end in ((0, 100), (1, 100), (2, 180))),
        entry(0, 100, 200),
        entry(1, 130, 200),
        entry(2, 190, 200),
        entry(0, 300, 330),
        entry(1, 310, 330),
        entry(2, 305, 331),
    )


class TestCollectives:
    def test_by_hand(self, three_ranks):
        table = collectives(three_ranks)
        assert table["number"].tolist() == [0, 1]
        assert table[["start_ns", "duration_ns"]].to_numpy().tolist() == [[100, 100], [300, 31]]
        assert table["entry_skew_ns"].tolist() == [90, 10]
        assert table["transfer_ns"].tolist() == [10, 21]
        assert table["exit_skew_ns"].tolist() == [0, 1]
        assert table["lead_ns"].tolist() == [60, 5]
        assert table["wait_ns"].tolist() == [90 + 60, 10 + 5]
        assert table["first_rank"].tolist() == [0, 0]
        assert table["last_rank"].tolist() == [2, 1]
        assert table["order_possible"].all()
        assert table.attrs["origin"] == ORIGIN
        assert (
            table.attrs["ranks"],
            table.attrs["unmatched"],
            table.attrs["impossible_orders"],
        ) == (3, 0, 0)

    def test_each_rank(self, three_ranks):
        table = collectives(three_ranks, per_rank=True)
        first = table[table["number"] == 0]
        assert first["lateness_ns"].tolist() == [0, 30, 90]
        assert first["wait_ns"].tolist() == [90, 60, 0]
        assert first["transfer_ns"].tolist() == [10, 10, 10]
        assert first["arrived_last"].tolist() == [False, False, True]
        assert (table["wait_ns"] + table["transfer_ns"] == table["duration_ns"]).all()

    def test_one_profile_per_rank_or_entries_give_the_same(self, three_ranks):
        events = three_ranks.events
        apart = [
            Profile(events[events["rank"] == rank], meta={"origin": ORIGIN}) for rank in range(3)
        ]
        expected = collectives(three_ranks)
        pd.testing.assert_frame_equal(collectives(apart), expected)
        pd.testing.assert_frame_equal(collectives(profile for profile in apart), expected)
        pd.testing.assert_frame_equal(collectives(join(map(collective_entries, apart))), expected)

    def test_steps_keep_windows_of_different_length_apart(self):
        """Rank 1 recorded a step less; without the step its all-reduce would be matched with the
        wrong one.
        """
        profile = profile_of(
            host_step(1, 0, 100, rank=0),
            host_step(2, 100, 200, rank=0),
            host_step(2, 100, 200, rank=1),
            entry(0, 50, 60, launch_ns=40),
            entry(0, 150, 190, launch_ns=140),
            entry(1, 180, 190, launch_ns=141),
        )
        table = collectives(profile)
        assert table[["step", "start_ns", "wait_ns"]].to_numpy().tolist() == [[2, 150, 30]]
        assert table.attrs["unmatched"] == 1

    def test_different_numbers_in_a_step_are_not_guessed(self):
        table = collectives(profile_of(entry(0, 0, 10), entry(0, 20, 30), entry(1, 20, 30)))
        assert not len(table)
        assert table.attrs["unmatched"] == 3

    def test_launch_order_matches_what_streams_reorder(self):
        profile = profile_of(
            entry(0, 10, 50, launch_ns=1),
            entry(0, 60, 90, launch_ns=2, stream=2),
            entry(1, 70, 90, launch_ns=4, stream=2),
            entry(1, 72, 50 + 30, launch_ns=3),
        )
        per_rank = collectives(profile, per_rank=True)
        own = per_rank[per_rank["rank"] == 1].sort_values("number")
        assert own["start_ns"].tolist() == [72, 70]

    def test_names_are_matched_apart(self):
        profile = profile_of(
            entry(0, 0, 10, BROADCAST),
            entry(1, 5, 10, BROADCAST),
            entry(0, 20, 40),
            entry(1, 30, 40),
        )
        assert collectives(profile)["name"].str.contains("Broadcast").tolist() == [True, False]

    def test_the_root_of_a_broadcast_has_not_waited(self):
        profile = profile_of(
            entry(0, 0, 10, BROADCAST), entry(1, 50, 70, BROADCAST), entry(2, 40, 70, BROADCAST)
        )
        table = collectives(profile, per_rank=True)
        assert table["wait_ns"].tolist() == [0, 0, 10]
        assert table["transfer_ns"].tolist() == [10, 20, 20]
        assert table.attrs["impossible_orders"] == 0

    def test_clocks_that_disagree_are_found_out(self):
        """Rank 1's clock is 1000 ahead: rank 0 seems to leave an all-reduce before rank 1 enters
        it.
        """
        profile = profile_of(entry(0, 100, 150), entry(1, 1140, 1150))
        table = collectives(profile)
        assert table["order_possible"].tolist() == [False]
        assert table.attrs["clock_error_ns"] == 1140 - 150
        assert "1.0 µs" in table.attrs["clocks"]
        found = ranks(profile)
        assert found.attrs["straggler"] is None
        assert found["exit_offset_ns"].tolist() == [-500, 500]

    def test_one_rank_only(self):
        with pytest.raises(ValueError, match="only one rank"):
            collectives(profile_of(entry(0, 0, 10)))

    def test_ranks_must_be_stated_and_distinct(self):
        one = profile_of(entry(0, 0, 10))
        with pytest.raises(ValueError, match="rank 0"):
            collectives([one, one])
        nameless = Profile(one.events.assign(rank=pd.array([pd.NA], dtype="Int32")))
        with pytest.raises(ValueError, match="rank="):
            collectives([one, nameless])

    def test_nobody_comes_last_where_two_do(self):
        profile = profile_of(entry(0, 0, 50), entry(1, 20, 50), entry(2, 20, 50))
        assert not collectives(profile, per_rank=True)["arrived_last"].any()
        assert collectives(profile)[["lead_ns", "wait_ns"]].to_numpy().tolist() == [[0, 20]]
        table = ranks(profile)
        assert table["caused_wait_ns"].tolist() == [0, 0, 0]
        assert table.attrs["straggler"] is None
        assert "caused the most" not in table.attrs["evidence"]

    def test_tables_of_several_files_need_ranks_of_their_own(self):
        """What `map_profiles` gives: the tables with the column `file` in front."""

        def tables(*rank_of_file):
            parts = [
                (
                    f"{place}.json",
                    Profile(
                        profile_of(entry(0, 0, 10)).events.assign(rank=pd.array([rank], "Int32"))
                    ),
                )
                for place, rank in enumerate(rank_of_file)
            ]
            return [
                pd.concat(
                    [reduce(profile).assign(file=file) for file, profile in parts],
                    ignore_index=True,
                )
                for reduce in (overlap, collective_entries)
            ]

        assert len(compare_ranks(*tables(0, 1))) == 2
        for files, match in (
            ((0, 1, 0, 1), r"rank 0 is in .*0\.json and .*2\.json"),
            ((0, None), r"1\.json.*rank="),
        ):
            overlaps, entries = tables(*files)
            good_overlaps, good_entries = tables(0, 1)
            for compare in (
                lambda: collectives(entries),  # noqa: B023
                lambda: compare_ranks(good_overlaps, entries),  # noqa: B023
                lambda: compare_ranks(overlaps, good_entries),  # noqa: B023
            ):
                with pytest.raises(ValueError, match=match):
                    compare()

    def test_devices_stand_for_unknown_ranks(self):
        profile = profile_of(
            event("collective", ALL_REDUCE, 0, 30, device=2),
            event("collective", ALL_REDUCE, 20, 30, device=3),
        )
        profile.events["rank"] = pd.array([pd.NA] * 2, dtype="Int32")
        assert ranks(profile).attrs["evidence"].startswith("Device 3 came last in 1 of 1")
        assert "<NA>" not in describe(plot_collectives(collectives(profile, per_rank=True)))
        table = collectives(profile)
        assert table["last_device"].tolist() == [3]
        assert table["last_rank"].isna().all()

    @pytest.mark.parametrize(
        ("per_rank", "columns"),
        [(False, COLUMNS["collectives"]), (True, COLUMNS["collectives_per_rank"])],
    )
    def test_nothing_gives_the_same_columns(self, three_ranks, per_rank, columns):
        empty = Profile(three_ranks.events.iloc[:0], meta={"origin": ORIGIN})
        table = collectives(empty, per_rank=per_rank)
        assert not len(table)
        pd.testing.assert_series_equal(
            table.dtypes, collectives(three_ranks, per_rank=per_rank).dtypes
        )

    @given(
        st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=1, max_size=6),
        st.integers(1, 20),
    )
    def test_any_all_reduces(self, entries, transfer):
        """Ranks enter at any time and all leave together: the split finds what was put in."""
        rows = []
        for number, offsets in enumerate(entries):
            starts = [1000 * number + offset for offset in offsets]
            rows += [
                entry(rank, start, max(starts) + transfer) for rank, start in enumerate(starts)
            ]
        profile = profile_of(*rows)
        table, each = collectives(profile), collectives(profile, per_rank=True)
        assert table["transfer_ns"].tolist() == [transfer] * len(entries)
        assert table["entry_skew_ns"].tolist() == [
            max(offsets) - min(offsets) for offsets in entries
        ]
        assert (table["duration_ns"] == table["entry_skew_ns"] + table["transfer_ns"]).all()
        assert each["wait_ns"].tolist() == [
            max(offsets) - offset for offsets in entries for offset in offsets
        ]
        assert table["order_possible"].all()


class TestRanks:
    def test_by_hand(self, three_ranks):
        table = ranks(three_ranks).set_index("rank")
        assert table["computation_ns"].tolist() == [100, 100, 180]
        assert table["communication_ns"].tolist() == [130, 90, 36]
        assert table["wait_ns"].tolist() == [100, 60, 5]
        assert table["transfer_ns"].tolist() == [30, 30, 31]
        assert table["arrived_last"].tolist() == [0, 1, 1]
        assert table["caused_wait_ns"].tolist() == [0, 15, 150]
        assert table["collectives"].tolist() == table["compared"].tolist() == [2, 2, 2]
        parts = table[["computation_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"]]
        assert (parts.sum(axis=1) == table["total_ns"]).all()

    def test_straggler_that_computes_longer(self, three_ranks):
        attrs = ranks(three_ranks).attrs
        assert attrs["straggler"] == 2
        assert "last in 1 of 2" in attrs["evidence"]
        assert "91% of all waiting" in attrs["evidence"], "150 of 165"
        assert "computes longer" in attrs["evidence"]

    def test_straggler_that_gets_its_work_later(self):
        profile = profile_of(
            compute(0, 0, 100), compute(1, 80, 180), entry(0, 100, 200), entry(1, 190, 200)
        )
        attrs = ranks(profile).attrs
        assert attrs["straggler"] == 1
        assert "computes longer" not in attrs["evidence"]

    def test_taking_turns_makes_no_straggler(self):
        rows = [
            entry(rank, 1000 * n + (500 if rank == n % 3 else 0), 1000 * n + 510)
            for n in range(3)
            for rank in range(3)
        ]
        attrs = ranks(profile_of(*rows)).attrs
        assert attrs["straggler"] is None
        assert "rank 0 caused the most, 33%" in attrs["evidence"]

    def test_a_little_waiting_makes_no_straggler(self):
        profile = profile_of(
            compute(0, 0, 9990), compute(1, 0, 9991), entry(0, 9990, 10_000), entry(1, 9991, 10_000)
        )
        assert ranks(profile).attrs["straggler"] is None

    def test_a_late_clock_makes_no_straggler(self):
        """Rank 1 enters 30 later and leaves 30 later, each time: its clock is 30 ahead, and nobody
        waits.
        """
        rows = [
            entry(rank, 1000 * n + shift, 1000 * n + 100 + shift)
            for n in range(5)
            for rank, shift in ((0, 0), (1, 30))
        ]
        attrs = ranks(profile_of(*rows)).attrs
        assert attrs["impossible_orders"] == 0
        assert attrs["straggler"] is None
        assert "clock" in attrs["evidence"]

    def test_rows_without_collectives_change_no_verdict(self, three_ranks):
        """Rank 0 copied to two more devices, and a rank 3 only computed: for the collectives all
        stays as it was.
        """
        extra = [event("copy", "c", 0, 5, rank=0, device=device) for device in (7, 8)]
        more = profile_of(*extra, compute(3, 0, 9_000)).events
        profile = Profile(
            pd.concat([three_ranks.events, more], ignore_index=True), meta={"origin": ORIGIN}
        )
        profile.meta["world_size"] = 5
        found, expected = ranks(profile).attrs, ranks(three_ranks).attrs
        assert found["straggler"] == expected["straggler"] == 2
        assert found["ranks"] == 4
        assert found["evidence"].startswith(expected["evidence"])
        added = found["evidence"].removeprefix(expected["evidence"])
        assert "rank 3" in added
        assert "4 of 5 ranks" in added

    def test_one_rank_and_no_collective(self):
        table = ranks(profile_of(entry(0, 0, 10)))
        assert table[["collectives", "compared"]].to_numpy().tolist() == [[1, 0]]
        assert table["exit_offset_ns"].isna().all()
        table = ranks(profile_of(compute(0, 0, 10), compute(1, 0, 10)))
        assert table.attrs["evidence"].startswith("No collective")
        assert table.dtypes.astype(str).tolist() == list(COLUMNS["ranks"].values())


@pytest.fixture(scope="module")
def four_ranks(recordings) -> Profile:
    return read_torch_trace(
        recordings / RANKS / "merged_all_events.json.gz", origin=Origin("recorded", "four MI300")
    )


class TestRecording:
    def test_times_are_those_of_the_manifest(self, manifest, four_ranks):
        truth = manifest[RANKS]["truth"]["merged_all_events"]["per_rank"]
        table = ranks(four_ranks)
        for column, key in (
            ("total_ns", "gpu_span_us"),
            ("busy_ns", "gpu_busy_us"),
            ("communication_ns", "collective_total_us"),
        ):
            assert table[column].tolist() == [round(1000 * rank[key]) for rank in truth]
        assert table["collectives"].tolist() == [rank["collective_kernels"] for rank in truth]

    def test_rank_0_is_as_published(self, four_ranks):
        """AMD's TraceLens report of rank 0 of this run (HPCTrainingExamples, MLExamples/TraceLens),
        in ms.
        """
        row = ranks(four_ranks).set_index("rank").loc[0]
        for column, published in (
            ("computation_ns", 47.634),
            ("exposed_communication_ns", 41.068),
            ("exposed_copy_ns", 2.487),
            ("busy_ns", 91.189),
            ("idle_ns", 48.853),
            ("total_ns", 140.042),
        ):
            assert row[column] / 1e6 == pytest.approx(published, abs=5e-4)

    def test_rank_3_is_the_straggler_and_not_a_slow_gpu(self, four_ranks):
        table = ranks(four_ranks).set_index("rank")
        assert table.attrs["straggler"] == 3
        assert table["arrived_last"].tolist() == [0, 0, 0, 21]
        assert table.loc[3, "wait_ns"] == 0
        assert "computes longer" not in table.attrs["evidence"]
        assert table["exit_offset_ns"].abs().max() < 24_000, (
            "one node: clocks agree to a few microseconds"
        )

    def test_transfer_is_1_1_ms_a_step(self, four_ranks):
        table = collectives(four_ranks)
        assert (len(table), table.attrs["unmatched"], table.attrs["impossible_orders"]) == (
            21,
            0,
            0,
        )
        reduces = table[table["name"] == "allreduce"]
        assert (reduces["last_rank"] == 3).all()
        to_first_exit = (reduces["transfer_ns"] - reduces["exit_skew_ns"]).groupby(
            reduces["step"]
        ).sum() / 1e6
        assert to_first_exit.tolist() == pytest.approx([1.1] * 3, abs=0.05)
        per_step = reduces.groupby("step")["transfer_ns"].sum() / 1e6
        assert per_step.tolist() == pytest.approx([1.1] * 3, abs=0.1)
        assert reduces["exit_skew_ns"].between(1_000, 25_000).all()
        assert reduces["transfer_ns"].between(80_000, 330_000).all()

    def test_one_bucket_by_hand(self, four_ranks):
        """The bucket of 6637568 elements: 8441, 2854, 3262 and 329 us on ranks 0 to 3 for one
        transfer.
        """
        table = collectives(four_ranks, per_rank=True)
        bucket = table[table["number"] == 5]
        assert (bucket["duration_ns"] / 1000).round().tolist() == [8441, 2854, 3262, 329]
        assert bucket["wait_ns"].tolist() == [8_116_081, 2_549_994, 2_940_473, 0]

    def test_the_filtered_file_says_the_same(self, recordings, four_ranks):
        """Without launches and steps, order and name alone match the same collectives."""
        filtered = read_torch_trace(recordings / RANKS / "merged_nccl_only.json.gz")
        columns = [column for column in COLUMNS["collectives"] if column != "step"]
        pd.testing.assert_frame_equal(
            collectives(filtered)[columns], collectives(four_ranks)[columns], check_like=True
        )

"""Ranks and their collectives: examples checked by hand, properties, and the recording of four
ranks.
"""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidyprof.analyses.collectives import collective_entries, collectives
from tidyprof.analyses.common import COLUMNS, join
from tidyprof.analyses.ranks import ranks
from tidyprof.plots import describe
from tidyprof.plots.ranks import collectives as plot_collectives
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof.tables.contract import Origin, Profile
from tidyprof_tests.analyses.test_analyses import ORIGIN, event, profile_of

RANKS = "torch-mi300-ddp-4ranks-fused"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


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
    def test_one_profile_per_rank_or_entries_give_the_same(self, three_ranks):
        events = three_ranks.events
        apart = [
            Profile(events[events["rank"] == rank], meta={"origin": ORIGIN}) for rank in range(3)
        ]
        expected = collectives(three_ranks)
        pd.testing.assert_frame_equal(collectives(apart), expected)
        pd.testing.assert_frame_equal(collectives(profile for profile in apart), expected)
        pd.testing.assert_frame_equal(collectives(join(map(collective_entries, apart))), expected)

    def test_ranks_must_be_stated_and_distinct(self):
        one = profile_of(entry(0, 0, 10))
        with pytest.raises(ValueError, match="rank 0"):
            collectives([one, one])
        nameless = Profile(one.events.assign(rank=pd.array([pd.NA], dtype="Int32")))
        with pytest.raises(ValueError, match="rank="):
            collectives([one, nameless])

    def test_devices_stand_for_unknown_ranks(self):
        profile = profile_of(
            event("collective", ALL_REDUCE, 0, 30, device=2),
            event("collective", ALL_REDUCE, 20, 30, device=3),
        )
        profile.events["rank"] = pd.array([pd.NA] * 2, dtype="Int32")
        assert ranks(profile).attrs["evidence"].startswith("Device 3 came last in 1 of 1")
        assert "<NA>" not in describe(plot_collectives(collectives(profile)))
        table = collectives(profile)
        assert table["device"][table["arrived_last"]].tolist() == [3]

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
        table = collectives(profile)
        assert (table["transfer_ns"] == transfer).all()
        assert table["wait_ns"].tolist() == [
            max(offsets) - offset for offsets in entries for offset in offsets
        ]
        assert table.attrs["impossible_orders"] == 0


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
        assert table["exit_offset_ns"].abs().max() < 24_000, (
            "one node: clocks agree to a few microseconds"
        )

    def test_transfer_is_1_1_ms_a_step(self, four_ranks):
        table = collectives(four_ranks)
        found = (
            table["number"].nunique(),
            table.attrs["unmatched"],
            table.attrs["impossible_orders"],
        )
        assert found == (21, 0, 0)
        reduces = table[table["name"] == "allreduce"]
        assert (reduces["arrived_last"] == (reduces["rank"] == 3)).all()
        per_step = reduces[reduces["rank"] == 3].groupby("step")["transfer_ns"].sum() / 1e6
        assert per_step.tolist() == pytest.approx([1.1] * 3, abs=0.1)
        assert reduces["transfer_ns"].between(80_000, 330_000).all()
        assert 1_000 < table.attrs["exit_skew_ns"] < 25_000

    def test_one_bucket_by_hand(self, four_ranks):
        """The bucket of 6637568 elements: 8441, 2854, 3262 and 329 us on ranks 0 to 3 for one
        transfer.
        """
        table = collectives(four_ranks)
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

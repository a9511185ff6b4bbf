"""Parts of a recording by time and by step: by hand, and on a recording against its raw JSON."""

from __future__ import annotations

import pandas as pd
import pytest

from tidyprof import Profile, analyses, select_steps, select_time_range
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of


@pytest.fixture
def three_steps() -> Profile:
    """Steps 4 to 6 of 100 ns on the host; the GPU is behind by one step, and its first kernel is of
    an earlier one.
    """
    return profile_of(
        *(host_step(number, 100 * number, 100 * number + 100) for number in (4, 5, 6)),
        *(
            event("operator", f"op of {number}", 100 * number + 10, 100 * number + 20)
            for number in (4, 5, 6)
        ),
        event("operator", "op after all", 750, 760),
        event("kernel", "unlaunched", 420, 460),
        *(
            event("kernel", f"of {n}", 100 * n + 110, 100 * n + 150 + n, launch_ns=100 * n + 15)
            for n in (4, 5, 6)
        ),
    )


def names(profile: Profile) -> set[str]:
    return set(profile.events["name"].astype(str))


class TestBetween:
    def test_what_begins_inside_is_kept_whole(self, three_steps):
        part = select_time_range(three_steps, 500, 600)
        assert names(part) == {"ProfilerStep#5", "op of 5", "of 4"}
        assert part.events["duration_ns"].max() == 100
        assert part.events.index.tolist() == [0, 1, 2]
        assert part.origin == three_steps.origin

    def test_limits_may_be_left_out(self, three_steps):
        assert len(select_time_range(three_steps).events) == len(three_steps.events)
        assert (
            len(select_time_range(three_steps, 500).events)
            + len(select_time_range(three_steps, end_ns=500).events)
            == 11
        )
        assert not len(select_time_range(three_steps, 500, 500).events), "the end is outside"

    def test_the_profile_stays_as_it_was(self, three_steps):
        before = three_steps.events.copy()
        select_time_range(three_steps, 0, 500)
        select_steps(three_steps, 4)
        pd.testing.assert_frame_equal(three_steps.events, before)

    def test_a_time_that_ends_before_it_begins(self, three_steps):
        with pytest.raises(ValueError, match="1 ns before"):
            select_time_range(three_steps, 5, 4)

    def test_samples_and_callers_of_stacks(self):
        rows = [
            event("sample", name, start, start + 10)
            for name, start in (("a", 0), ("b", 10), ("c", 20))
        ]
        profile = profile_of(*rows)
        profile.events["parent"] = pd.array([None, 0, 1], "Int64")
        profile.counters = pd.DataFrame(
            {
                "time_ns": [5, 15],
                "device": [0, 0],
                "name": ["power"] * 2,
                "value": [1.0, 2.0],
                "unit": ["W"] * 2,
            }
        )
        part = select_time_range(profile, 10, 30)
        assert part.events["parent"].tolist() == [pd.NA, 0]
        assert part.counters["value"].tolist() == [2.0]


class TestOfSteps:
    def test_work_belongs_to_the_step_that_launched_it(self, three_steps):
        assert names(select_steps(three_steps, 4)) == {"ProfilerStep#4", "op of 4", "of 4"}
        part = select_steps(three_steps, 5, 6)
        assert names(part) == {
            "ProfilerStep#5",
            "ProfilerStep#6",
            "op of 5",
            "op of 6",
            "of 5",
            "of 6",
        }
        assert analyses.steps(part)["step"].tolist() == [5, 6]

    def test_without_launches_the_start_counts(self, three_steps):
        profile = Profile(three_steps.events.assign(launch_ns=pd.NA), meta=three_steps.meta)
        assert names(select_steps(profile, 5)) == {"ProfilerStep#5", "op of 5", "of 4"}

    def test_each_rank_has_its_own_steps(self):
        of_rank = [
            (
                host_step(1, 100 * rank, 100 * rank + 50, rank=rank),
                event("operator", f"op {rank}", 120, 130, rank=rank),
            )
            for rank in (0, 1)
        ]
        assert names(select_steps(profile_of(*(row for rows in of_rank for row in rows)), 1)) == {
            "ProfilerStep#1",
            "op 1",
        }

    def test_steps_between_marks(self):
        marks = [
            event("annotation", "mine", 100 * number, 100 * number + 10) for number in range(4)
        ]
        work = [
            event("kernel", f"k{n}", 100 * n + 50, 100 * n + 60, launch_ns=100 * n + 20)
            for n in range(4)
        ]
        part = select_steps(
            profile_of(*marks, *work, event("operator", "last", 390, 400)), 1, 2, mark="mine"
        )
        assert set(part.device_events["name"]) == {"k1", "k2"}

    @pytest.mark.parametrize(
        ("asked", "answer"),
        [((7,), "no step 7, only 4 to 6"), ((4, 9), "no step 9"), ((6, 4), "step 4 comes before")],
    )
    def test_steps_that_are_not_there(self, three_steps, asked, answer):
        with pytest.raises(ValueError, match=answer):
            select_steps(three_steps, *asked)

    def test_no_steps_at_all(self):
        with pytest.raises(ValueError, match="there is no step 1: no steps are marked"):
            select_steps(profile_of(event("kernel", "k", 0, 1)), 1)

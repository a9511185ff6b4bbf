"""Parts of a recording by time and by step: by hand, and on a recording against its raw JSON."""

from __future__ import annotations

import pandas as pd
import pytest

from tidyprof import Profile, select_time_range
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

"""A part of a recording by time keeps the callers and samples of the part."""

from __future__ import annotations

import pandas as pd

from tidyprof import select_time_range
from tidyprof_tests.analyses.test_analyses import event, profile_of


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

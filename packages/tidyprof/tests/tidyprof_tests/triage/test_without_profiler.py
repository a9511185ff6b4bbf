"""The step without the profiler, on signs that are made up."""

from __future__ import annotations

from tidyprof.diagnosis.observer import Estimate, Observer, views
from tidyprof_tests.triage.test_causes import made_signs


def test_a_start_up_outside_of_the_judged_steps_is_kept_as_it_is():
    """It was lost where the judged steps have none, as it is where the first one is left out."""
    observer = Observer(traced_ns=1e8, estimated_ns=Estimate(6e7, 7e7, 8e7), cost_ns=3e7)
    signs = made_signs({"launch_bound": 0.5}, start_up=0.3, observer=observer)
    assert [view.start_up for view in views(signs)] == [0.3, 0.3, 0.3]


def test_a_start_up_in_the_judged_steps_lasts_and_is_more_of_a_shorter_step():
    observer = Observer(traced_ns=1e8, estimated_ns=Estimate(6e7, 7e7, 8e7), cost_ns=3e7)
    signs = made_signs({"launch_bound": 0.5, "start_up": 0.21}, start_up=0.21, observer=observer)
    assert [round(view.start_up, 6) for view in views(signs)] == [0.3, 0.35, 0.2625]

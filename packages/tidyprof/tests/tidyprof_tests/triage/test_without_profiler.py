"""The step without the profiler, on signs and on a trace that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidyprof
from tidyprof.diagnosis.profiler_overhead import Estimate, Observer, views
from tidyprof_tests.chrome_writer import TraceEvent, operator, write_trace
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


def test_the_wait_for_data_is_as_long_as_it_was_timed_whatever_call_stacks_should_have_cost(
    tmp_path: Path,
) -> None:
    """Python functions cost less here than expected: 0.5 ms a step and not 1.8."""
    events = []
    for step in range(4):
        begin = 1_000_000 + step * 10_000_000
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 10_000_000),
            TraceEvent("user_annotation", "data", begin, 6_000_000),
            operator("aten::mm", begin + 6_000_000, 3_900_000, step),
        ]
        events += [
            TraceEvent("python_function", "train.py(7): words", begin + 6000 * number, 5000)
            for number in range(1000)
        ]
    untraced = {
        "steps": 20,
        "step_ns": 8_500_000,
        "parts_ns": {"data": 5_500_000, "forward": 3_000_000},
    }
    header = {"schemaVersion": 1, "deviceProperties": [], "watch_untraced": untraced}
    path = write_trace(tmp_path / "trace.json", events, header=header)
    found = tidyprof.triage(tidyprof.read(path, python_functions=True))
    assert (found.cause, found.share) == ("input-bound", pytest.approx(5.5 / 8.5, abs=0.01))


@pytest.mark.parametrize("step_ms", [80, 90, 95, 100, 105])
def test_the_wait_for_data_is_as_timed_however_long_the_untraced_step_is(step_ms: int) -> None:
    """Data took 40 ms before the recording and 60 of 100 in it, by the profiler's cost."""
    observer = Observer(
        traced_ns=1e8,
        unprofiled_step_ns=step_ms * 1e6,
        cost_ns=2.1e7,
        data_cost_ns=2e7,
        shift_ns=0.0,
    )
    signs = made_signs({"data_wait": 0.6, "compute": 0.4}, step_ns=1e8, observer=observer)
    (view,) = views(signs)
    assert view.shares["data_wait"] == pytest.approx(40 / step_ms, abs=0.001)
    assert sum(view.shares.values()) == pytest.approx(1)


def test_a_silence_longer_than_the_untraced_step_is_not_sure(tmp_path: Path) -> None:
    """Steps of 2 ms in the recording, and of 0.2 before it: what took them then is not known."""
    events = []
    for step in range(4):
        begin = 1_000_000 + step * 2_000_000
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 2_000_000),
            operator("aten::mm", begin, 100_000, step),
        ]
    untraced = {"steps": 20, "step_ns": 200_000, "parts_ns": {"forward": 200_000}}
    header = {"schemaVersion": 1, "deviceProperties": [], "watch_untraced": untraced}
    found = tidyprof.triage(tidyprof.read(write_trace(tmp_path / "t.json", events, header=header)))
    assert (found.cause, found.confident) == ("outside-torch", False)

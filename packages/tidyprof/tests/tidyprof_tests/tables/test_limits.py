"""Values at the limits of the rules for launches and for overlapping kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof import ProfileReadError


def written(folder: Path, events: list[tuple[str, str, int, int, int]]) -> Path:
    """A torch trace of (category, name, start and duration in µs, correlation id)."""
    entries: list[dict[str, Any]] = [
        {
            "ph": "X", "cat": category, "name": name, "ts": start, "dur": duration,
            "pid": int(category != "kernel"), "tid": 7,
            "args": {"device": 0, "stream": 7, "correlation": number},
        }
        for category, name, start, duration, number in events
    ]  # fmt: skip
    path = folder / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [], "traceEvents": entries}))
    return path


@pytest.mark.parametrize(("second_us", "is_linked"), [(14, True), (15, False)])
def test_a_call_that_starts_as_another_ends_is_a_second_call(
    second_us: int, is_linked: bool, tmp_path: Path
) -> None:
    """A call inside another one is part of it. Two calls with one id launch nothing for certain."""
    calls = [("cuda_runtime", "cudaLaunchKernel", start, 5, 3) for start in (10, second_us)]
    profile = tidyprof.read(written(tmp_path, [*calls, ("kernel", "k", 30, 5, 3)]))
    assert profile.device_events["launch_ns"].notna().tolist() == [is_linked]


@pytest.mark.parametrize(("duration_us", "is_refused"), [(9_000, False), (11_000, True)])
def test_durations_of_ten_times_the_distance_have_another_unit(
    duration_us: int, is_refused: bool, tmp_path: Path
) -> None:
    kernels = [("kernel", "k", 1_000 * (1 + n), duration_us, 1 + n) for n in range(20)]
    path = written(tmp_path, kernels)
    if is_refused:
        with pytest.raises(ProfileReadError):
            tidyprof.read(path)
    else:
        assert len(tidyprof.read(path).meta["warnings"]) > 0

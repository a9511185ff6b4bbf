"""Inputs of third parties that readers once got wrong, and siblings of each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import tidyprof

CASES = Path(__file__).parent / "field_cases"


@pytest.fixture
def unlinked() -> dict:
    """A trace of five steps of 95 ms. Its collectives, alone on stream 3, have correlation id 0."""
    return json.loads(gzip.decompress((CASES / "unlinked-collectives.json.gz").read_bytes()))


def device_steps_ms(trace: dict, folder: Path) -> list[float]:
    (folder / "trace.json").write_text(json.dumps(trace))
    steps = tidyprof.steps(tidyprof.read(folder / "trace.json"), timeline="device")
    return (steps["duration_ns"] / 1e6).round().tolist()


def test_a_stream_without_any_launch_ends_no_step(unlinked, tmp_path):
    assert device_steps_ms(unlinked, tmp_path) == [95] * 5


def test_a_late_copy_without_a_launch_ends_no_step(unlinked, tmp_path):
    linked = [event for event in unlinked["traceEvents"] if event["args"].get("stream") != 3]
    copy = {**linked[2], "ts": 1_470_000, "cat": "gpu_memcpy", "name": "Memcpy DtoH"}
    copy["args"] = copy["args"] | {"stream": 9, "correlation": 7}
    assert device_steps_ms(unlinked | {"traceEvents": [*linked, copy]}, tmp_path) == [95] * 5


def test_a_step_without_launches_has_the_work_that_starts_in_it(unlinked, tmp_path):
    for event in unlinked["traceEvents"]:
        if event["cat"] == "kernel" and 1_095_000 <= event["ts"] < 1_190_000:
            event["args"]["correlation"] = 0
    assert device_steps_ms(unlinked, tmp_path) == [95] * 5

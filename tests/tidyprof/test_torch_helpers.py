"""A large trace read with the help of other processes gives what one process makes of it, whatever happens to them."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tidyprof import ProfileReadError, read_torch_trace
from tidyprof.io import byte_stream
from tidyprof.readers.torch import helpers
from tidyprof.readers.torch.helpers import Helpers

EVENTS = 4000


def event(number: int) -> dict[str, Any]:
    """Events of many sorts, several at the same time; some categories and names appear late in the file only."""
    category = ("cpu_op", "cuda_runtime", "kernel", "python_function", "cpu_instant_event", "gpu_memcpy")[number % 6]
    common = {"ph": "X", "cat": category, "name": f"{category} {number % (7 + number // 500)}", "pid": 1, "tid": 2}
    times = {"ts": 1000.5 + number // 3, "dur": 2.25}
    if category in ("kernel", "gpu_memcpy"):
        common |= {"pid": 0, "tid": 7}
        details = {"device": 0, "stream": 7, "correlation": number // 6, "bytes": 8 * number}
        details |= {"grid": [number % 5, 1, 1], "block": [64, 1, 1], "Collective name": "c" if number > 3900 else None}
    elif category == "cpu_instant_event":
        details = {"Total Allocated": 10 * number, "Device Id": 0, "Device Type": 1, "Bytes": number}
    else:
        details = {"External id": number, "correlation": number // 6}
    return common | times | {"args": {key: value for key, value in details.items() if value is not None}}


def write_trace(folder: Path, events: list[dict[str, Any]]) -> Path:
    window = {"ph": "X", "cat": "Trace", "name": "window", "pid": "Spans", "tid": "x", "ts": 1000, "dur": 9000}
    path = folder / "trace.json"
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": 5, "traceEvents": [*events, window], "traceName": "t"}
    path.write_text(json.dumps(trace, indent=1))
    return path


@pytest.fixture
def trace(tmp_path) -> Path:
    return write_trace(tmp_path, [event(number) for number in range(EVENTS)])


@pytest.fixture
def taken(monkeypatch) -> list[int]:
    """Numbers of the parts that helpers took, of a file that is small but read as large ones are."""
    monkeypatch.setattr(byte_stream, "CHUNK_BYTES", 2**13)
    monkeypatch.setattr(helpers, "BYTES_BEFORE_HELPERS", 2**14)
    monkeypatch.setattr(helpers, "BYTES_PER_HELPER", 2**16)
    monkeypatch.setattr(helpers, "_spare_processors", lambda: 2)
    numbers = []
    take = Helpers.take

    def noted(self: Helpers, number: int, text: bytes) -> bool:
        is_taken = take(self, number, text)
        if is_taken:
            numbers.append(number)
        return is_taken

    monkeypatch.setattr(Helpers, "take", noted)
    return numbers


def alone(path: Path, **options: Any) -> Any:
    """What one process makes of the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helpers, "_spare_processors", lambda: 0)
        return read_torch_trace(path, **options)


def assert_same(found: Any, expected: Any) -> None:
    pd.testing.assert_frame_equal(found.events, expected.events)
    pd.testing.assert_frame_equal(found.counters, expected.counters)
    assert found.meta == expected.meta


@pytest.fixture
def collections(monkeypatch) -> list[int]:
    """Events that came from helpers, a number for each of them."""
    totals = []
    collected = Helpers.collected

    def noted(self: Helpers) -> Any:
        for part in collected(self):
            totals.append(part.total)
            yield part

    monkeypatch.setattr(Helpers, "collected", noted)
    return totals


@pytest.mark.parametrize("python_functions", [False, True])
def test_the_same_tables_as_of_one_process(trace, taken, collections, python_functions):
    expected = alone(trace, python_functions=python_functions)
    assert not taken
    found = read_torch_trace(trace, python_functions=python_functions)
    assert_same(found, expected)
    assert len(taken) > 2
    assert len(collections) == 2
    assert sum(collections) > 10
    without_rows = ["cpu_instant_event"] if python_functions else ["cpu_instant_event", "python_function"]
    assert len(found.events) == sum(event(number)["cat"] not in without_rows for number in range(EVENTS))
    assert found.meta["record_window_ns"] == (1000 * 1000 + 5, 10000 * 1000 + 5)


def test_nothing_is_left_behind(trace, taken):
    threads = threading.active_count()
    with pytest.MonkeyPatch.context() as patch:
        started = []
        original = subprocess.Popen
        patch.setattr(subprocess, "Popen", lambda *a, **k: started.append(original(*a, **k)) or started[-1])
        read_torch_trace(trace)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)
    assert threading.active_count() == threads


def test_a_part_that_was_cut_within_an_event(tmp_path, taken, collections):
    """Lists of objects in arguments look like the events around them; only decoding tells that they are not."""
    events = [event(number) for number in range(EVENTS)]
    for number in range(0, EVENTS, 2):
        events[number]["args"]["nested"] = [{"a": 1}, {"b": 2}] * 6
    path = write_trace(tmp_path, events)
    assert_same(read_torch_trace(path), alone(path))
    assert taken
    assert not collections


@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "print('no pickle', flush=True)", "1/0"])
def test_helpers_that_end_early(trace, taken, monkeypatch, program):
    monkeypatch.setattr(helpers, "_PROGRAM", program)
    assert_same(read_torch_trace(trace), alone(trace))


def test_helpers_that_are_killed_at_work(trace, taken, monkeypatch):
    take = Helpers.take

    def killing(self: Helpers, number: int, text: bytes) -> bool:
        for helper in self._helpers if len(taken) == 2 else ():
            helper._process.kill()
        return take(self, number, text)

    monkeypatch.setattr(Helpers, "take", killing)
    assert_same(read_torch_trace(trace), alone(trace))
    assert len(taken) >= 2


def test_processes_that_nobody_may_start(trace, taken, monkeypatch):
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(subprocess, "Popen", refused)
    assert_same(read_torch_trace(trace), alone(trace))
    assert not taken


@pytest.mark.parametrize("damage", ["cut off", "wrong type"])
def test_the_same_refusal_as_by_one_process(tmp_path, trace, taken, damage):
    if damage == "cut off":
        path = tmp_path / "cut.json"
        path.write_bytes(trace.read_bytes()[:-5000])
    else:
        events = [event(number) for number in range(EVENTS)]
        events[-40]["ts"] = "yesterday"
        path = write_trace(tmp_path, events)
    with pytest.raises(ProfileReadError) as expected:
        alone(path)
    with pytest.raises(ProfileReadError) as found:
        read_torch_trace(path)
    assert str(found.value) == str(expected.value)
    assert taken


def test_progress_goes_to_the_end_once(trace, taken, monkeypatch, capsys):
    monkeypatch.setattr(helpers, "_PROGRAM", "1/0")
    steps: list[int] = []

    class Bar:
        update = staticmethod(steps.append)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("tidyprof.readers.torch.reader.tqdm", lambda **_: Bar())
    read_torch_trace(trace, progress=True)
    assert sum(steps) == trace.stat().st_size


def test_small_files_are_read_alone(trace, monkeypatch):
    monkeypatch.setattr(helpers, "_spare_processors", lambda: 8)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert len(read_torch_trace(trace).events)


def test_a_worker_of_a_pool_starts_no_processes(monkeypatch):
    monkeypatch.setattr(helpers, "parent_process", lambda: object())
    assert helpers._spare_processors() == 0

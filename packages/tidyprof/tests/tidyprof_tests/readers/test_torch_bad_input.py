"""Files that are no sound traces: one line that says what was found and what to do, never another
exception.
"""

from __future__ import annotations

import gzip
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tidyprof import ProfileReadError, read_torch_trace
from tidyprof_tests.chrome_writer import (
    BASE_NS,
    kernel,
    small_step,
    write_trace,
)
from tidyprof_tests.damage import refusal

EVENT = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 5.0, "dur": 1.0}'
REFUSED = tomllib.loads((Path(__file__).parent / "samples/torch_refused.toml").read_text())
BAD_CONTENT = {name: text.replace("EVENT", EVENT).encode() for name, text in REFUSED.items()} | {
    "nested too deep": b'{"a": ' + b"[" * 10**6,
    "events nested too deep": b'{"traceEvents": [' + b"[" * 10**6,
    "zstd's magic and noise": b"\x28\xb5\x2f\xfdnoise noise noise",
    "gzip within gzip": gzip.compress(gzip.compress(b"{}")),
}


@pytest.mark.parametrize("what", BAD_CONTENT)
def test_bad_content(tmp_path, what):
    path = tmp_path / "trace.json"
    path.write_bytes(BAD_CONTENT[what])
    refusal(path, read_torch_trace)


@pytest.mark.parametrize("duration", ["NaN", "Infinity"])
def test_an_event_without_a_duration_is_left_out_and_counted(tmp_path, duration):
    path = tmp_path / "trace.json"
    events = f"{EVENT}, {EVENT.replace('1.0', duration)}"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{events}]}}')
    profile = read_torch_trace(path)
    assert (len(profile.events), sum(profile.meta["repairs"].values())) == (1, 1)
    assert "1 of 2 rows are damaged" in " ".join(profile.meta["warnings"])


def test_a_file_that_unpacks_to_too_much_is_refused_early(tmp_path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + b" " * 50_000_000))
    with pytest.raises(ProfileReadError, match="1000000 bytes"):
        read_torch_trace(path, maximum_bytes=10**6)


def test_text_without_events_is_not_collected_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("tidyprof.readers.torch.chrome_json.MAXIMUM_UNDIVIDED_BYTES", 4 * 2**20)
    for start in (
        b'{"schemaVersion": 1, "traceEvents": [',
        b'{"schemaVersion": "',
        b'{"traceEvents": [], "x": "',
    ):
        path = tmp_path / "bomb.json.gz"
        path.write_bytes(gzip.compress(start + b" " * 50_000_000))
        with pytest.raises(ProfileReadError, match=r"ends within \d+ bytes"):
            read_torch_trace(path)


def test_lists_of_objects_within_events_do_not_mislead(tmp_path, monkeypatch):
    monkeypatch.setattr("tidyprof.io.byte_stream.CHUNK_BYTES", 300)
    nested = [{"ph": "X", "cat": "kernel", "name": "}, {"}, {"a": [{"b": 1}, {"c": 2}]}] * 20
    events = [kernel(f"k{i}", 5_000 + i, 1, i, nested=nested) for i in range(50)]
    path = write_trace(tmp_path / "t.json", events)
    assert read_torch_trace(path).events["name"].tolist() == [f"k{i}" for i in range(50)]


@pytest.mark.parametrize("chunk_bytes", [50, 400, 2**20])
def test_lax_json_is_read_with_a_warning(tmp_path, monkeypatch, chunk_bytes):
    monkeypatch.setattr("tidyprof.io.byte_stream.CHUNK_BYTES", chunk_bytes)
    odd = (
        EVENT.replace('"a"', '"a\x01\udcffb"')
        .replace("5.0", "5.5")
        .replace("1.0", '1.0, "args": {"x": NaN}')
    )
    later = [replace(event, start_ns=event.start_ns + 10**6) for event in small_step()]
    path = write_trace(tmp_path / "t.json", [*small_step(), odd, *later])
    profile = read_torch_trace(path)
    assert len(profile.events) == 2 * (len(small_step()) - 1) + 1
    assert profile.events["name"].tolist()[0] == "a\x01\ufffdb"
    assert profile.events["start_ns"].tolist()[0] == BASE_NS + 5500
    assert any("strict JSON" in warning for warning in profile.meta["warnings"])


@pytest.mark.parametrize(
    "header",
    [
        {"distributedInfo": "rank 0"},
        {"distributedInfo": {"rank": "zero", "world_size": "eight"}},
        {"deviceProperties": {"name": "x"}},
        {"deviceProperties": [1, None, {"name": 5}, {"name": ""}]},
        {"hip_runtime_version": "6.4"},
        {"hip_runtime_version": -1},
        {"trace_id": 5, "host_name": None},
    ],
)
def test_odd_members_are_not_taken_over(tmp_path, header):
    meta = read_torch_trace(
        write_trace(tmp_path / "t.json", small_step(), header={"schemaVersion": 1} | header)
    ).meta
    assert not {
        "rank",
        "world_size",
        "gpu",
        "rocm",
        "hip_runtime_version",
        "trace_id",
        "host",
    } & set(meta)


# Folders


def test_ranks_must_be_known_in_a_folder(tmp_path):
    (tmp_path / "ranks").mkdir()
    write_trace(tmp_path / "ranks" / "a.json", small_step())
    write_trace(tmp_path / "ranks" / "b.json", small_step())
    with pytest.raises(ProfileReadError, match=r"2 without a rank .*'ranks/a\.json'"):
        read_torch_trace(tmp_path)


def test_the_same_rank_twice_at_the_same_time(tmp_path):
    for folder in ("first_rank", "second_rank"):
        (tmp_path / folder).mkdir()
        write_trace(tmp_path / folder / "rank0.json", small_step())
    both = r"'first_rank/rank0\.json' and 'second_rank/rank0\.json' both cover rank 0"
    with pytest.raises(ProfileReadError, match=both):
        read_torch_trace(tmp_path)


def test_the_same_rank_one_window_after_the_other(tmp_path):
    write_trace(tmp_path / "trace_0_20_0.json", small_step())
    write_trace(tmp_path / "trace_0_40_0.json", small_step(), base_ns=BASE_NS + 10**9)
    assert len(read_torch_trace(tmp_path).events) == 2 * (len(small_step()) - 1)

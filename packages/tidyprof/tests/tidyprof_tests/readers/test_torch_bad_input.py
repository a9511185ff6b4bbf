"""Files that are no sound traces: one line that says what was found and what to do, never another
exception.
"""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from tidyprof import ProfileReadError, read_torch_trace
from tidyprof_tests.chrome_writer import (
    BASE_NS,
    kernel,
    small_step,
    trace_text,
    write_trace,
)
from tidyprof_tests.damage import refusal

TEXT = trace_text(small_step()).encode()
GZIP = gzip.compress(TEXT, mtime=0)
EVENT = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 5.0, "dur": 1.0}'


def trace_of(*events: str, members: str = "") -> bytes:
    return f'{{"schemaVersion": 1, {members}"traceEvents": [{", ".join(events)}]}}'.encode()


def changed(old: str, new: str) -> bytes:
    assert old in EVENT
    return trace_of(EVENT, EVENT.replace(old, new))


BAD_CONTENT = {
    "not JSON": b"step,loss\n1,2\n",
    "a list of events": b"[" + EVENT.encode() + b"]",
    "no event list": b'{"a": {"traceEvents": []}}',
    "an object for a list": b'{"traceEvents": {}}',
    "no events": b'{"schemaVersion": 1, "traceEvents": []}',
    "of another tool": changed("cpu_op", "toplevel").replace(b"cpu_op", b"toplevel"),
    "half of the header": TEXT[:60],
    "half of the events": TEXT[: len(TEXT) // 2],
    "without the end": TEXT.rstrip()[:-1],
    "without the end of the list": TEXT.rstrip()[:-3],
    "two traces in one": TEXT + TEXT,
    "two event lists": trace_of(EVENT)[:-1] + b', "traceEvents": []}',
    "a name that is not escaped, in an unknown place": trace_of(
        EVENT, '{"dur": 1.0, "name": "say "hello"", "cat": "cpu_op", "ts": 7.0}'
    ),
    "a name without its end": (
        trace_of(
            '{"ph": "X", "cat": "cpu_op", "name": "a, "pid": 1, "tid": 1, "ts": 5.0, "dur": 1.0}',
            EVENT,
            EVENT,
        )
    ),
    "a missing comma": trace_of(EVENT + EVENT),
    "a wrong header": b'{"schemaVersion": 1; "traceEvents": []}',
    "nested too deep": b'{"a": ' + b"[" * 10**6,
    "events nested too deep": trace_of(EVENT, '{"ph": "X", "args": {"x": ' + "[" * 10**6),
    "an event that is a number": trace_of(EVENT, "5"),
    "a text for a time": changed("5.0", '"soon"'),
    "a list for a name": changed('"a"', "[]"),
    "a fraction for a process": changed('"pid": 1', '"pid": 1.5'),
    "a text for arguments": changed('"dur": 1.0', '"dur": 1.0, "args": "none"'),
    "a number beyond doubles": changed("1.0", "1e400"),
    "an event without a category": changed('"cat": "cpu_op", ', ""),
    "a category in capitals": changed('"cat"', '"CAT"'),
    "an emptied event": trace_of(EVENT, "{}"),
    "a base time as text": trace_of(EVENT, members='"baseTimeNanoseconds": "now", '),
    "a base time beyond time": trace_of(EVENT, members='"baseTimeNanoseconds": 1e30, '),
    "a base time in 2080": trace_of(EVENT, members=f'"baseTimeNanoseconds": {2**62}, '),
    "NaN for a duration": changed("1.0", "NaN"),
    "infinite durations": changed("1.0", "Infinity"),
    "zstd's magic and noise": b"\x28\xb5\x2f\xfdnoise noise noise",
    "gzip within gzip": gzip.compress(GZIP),
}


@pytest.mark.parametrize("what", BAD_CONTENT)
def test_bad_content(tmp_path, what):
    content = BAD_CONTENT[what]
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    refusal(path, read_torch_trace)


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
    "value",
    ["9223372036854775808", "18446744073709551616", '"0x7f"', '""', "null", '"' + "9" * 5000 + '"'],
)
def test_identifiers_that_are_no_64_bit_integers_are_missing(tmp_path, value):
    event = EVENT.replace("cpu_op", "kernel").replace(
        "1.0", f'1.0, "args": {{"correlation": {value}}}'
    )
    events = read_torch_trace(write_trace(tmp_path / "t.json", [event])).events
    assert events["correlation_id"].isna().all()
    assert events["device"].tolist() == [1]


def test_device_numbers_beyond_32_bits_are_missing(tmp_path):
    events = read_torch_trace(
        write_trace(tmp_path / "t.json", [kernel("k", 5_000, 1, 1, device=2**40)])
    ).events
    assert events["device"].isna().all()


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

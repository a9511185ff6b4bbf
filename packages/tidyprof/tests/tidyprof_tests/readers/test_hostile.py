"""Files made to mislead, to hang or to exhaust: each is refused in one harmless line, whatever the
format.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from tidyprof import Profile, ProfileReadError
from tidyprof.cli.main import main
from tidyprof.errors import LONGEST_LINE
from tidyprof.io.byte_stream import LONGEST_LINE_BYTES, MANY_CELLS, zstd
from tidyprof_tests.chrome_writer import small_step, trace_text
from tidyprof_tests.perfetto_writer import small_trace
from tidyprof_tests.readers.kit import samples
from tidyprof_tests.rpd_writer import small_file


def changed_rpd(path: Path, *statements: str) -> Path:
    """A small sound rpd file after these changes."""
    small_file(path)
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


READERS = [name for name in tidyprof.__all__ if name == "read" or name.startswith("read_")]


def refused(reader: Callable[..., Profile], path: Path) -> str:
    """What a reader says that it found at a path which it must not accept."""
    with pytest.raises(ProfileReadError) as caught:
        reader(path)
    assert str(caught.value).isprintable()
    return caught.value.finding


# What an error says


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE rocpd_op RENAME COLUMN gpuId TO 'gpuld\x1b]0;owned\x07\x9b31m\u202e'",
        f"UPDATE rocpd_metadata SET value = '{'long ' * 20_000}' WHERE tag = 'schema_version'",
    ],
    ids=["escape sequences", "70 KB"],
)
def test_an_error_is_short_and_harmless_whatever_the_file_holds(statement, tmp_path, capsys):
    path = changed_rpd(tmp_path / "a\x1b[31m\u202eb.rpd", statement)
    with pytest.raises(ProfileReadError) as caught:
        tidyprof.read(path)
    assert main(["summary", str(path)]) == 2
    for line in (str(caught.value), capsys.readouterr().err.removesuffix("\n")):
        assert line.isprintable()
        assert len(line) <= LONGEST_LINE
        assert "Likely cause: " in line
        assert "Next step: " in line


# What a file may hold

MARKER = (
    '"Domain","Function","Process_Id","Thread_Id","Correlation_Id",'
    '"Start_Timestamp","End_Timestamp"\n'
    '"MARKER_CORE_API","step",1,1,1,100,200\n'
    '"MARKER_CORE_API",,1,1,2,110,120\n'
)


def test_a_marker_without_a_text(tmp_path):
    (tmp_path / "1_marker_api_trace.csv").write_text(MARKER)
    profile = tidyprof.read(tmp_path)
    assert profile.events["name"].tolist() == ["step", ""]
    assert tidyprof.call_stacks(profile)["name"].tolist() == ["step", ""]


# Small files, bounded work


@pytest.mark.parametrize("pack", [bytes, zstd.compress], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1_marker_api_trace.csv", MARKER.encode()),
        ("log.csv", b"timestamp,gpu,power_w\n"),
        ("pmc_perf.csv", b"Dispatch_ID,Kernel_Name,GPU_ID,Start_Timestamp,End_Timestamp\n"),
    ],
)
def test_a_line_without_end(name, content, pack, tmp_path):
    (tmp_path / name).write_bytes(pack(content + b"a" * (2 * LONGEST_LINE_BYTES) + b"\n"))
    assert "a line has at least " in refused(tidyprof.read, tmp_path / name)


@pytest.mark.parametrize("pack", [bytes, zstd.compress], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1_marker_api_trace.csv", MARKER.encode()),
        ("log.csv", b"timestamp,gpu,power_w,gpu_use_percent,gfx_clk\n1700000000,0,100,50,900\n"),
        ("pmc_perf.csv", b"Dispatch_ID,Kernel_Name,GPU_ID,Start_Timestamp,End_Timestamp\n"),
        ("results.csv", samples()["rocprof_v1-results"].content),
    ],
)
def test_lines_without_content(name, content, pack, tmp_path):
    (tmp_path / name).write_bytes(pack(content + b"\n" * (MANY_CELLS // 4)))
    assert "empty or cut short" in refused(tidyprof.read, tmp_path / name)


def test_a_quote_that_is_never_closed(tmp_path):
    header, first, _ = MARKER.encode().split(b"\n", 2)
    rows = b"".join([header, b"\n", first, b'\n"', 1_000_000 * (first.replace(b'"', b"") + b"\n")])
    (tmp_path / "1_marker_api_trace.csv").write_bytes(rows)
    tracemalloc.start()
    try:
        assert "a quote" in refused(tidyprof.read, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(rows)
    finally:
        tracemalloc.stop()


def test_packets_that_hold_nothing(tmp_path):
    path = tmp_path / "trace.pftrace"
    path.write_bytes(small_trace() + b"\n\x00" * 100_000)
    assert "most are empty" in refused(tidyprof.read, path)


# Where the file lies


@pytest.mark.parametrize(
    "name", ["x\x00y", "x" * 256, "x/" * 2500], ids=["zero byte", "long name", "long path"]
)
@pytest.mark.parametrize("reader", READERS)
def test_a_path_that_cannot_be_one(reader, name, tmp_path):
    refused(getattr(tidyprof, reader), tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_at_once(reader, kind, tmp_path):
    path = tmp_path / "trace.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path = Path("/dev/zero")
    assert "pipe, socket or device" in refused(getattr(tidyprof, reader), path)


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (PermissionError(13, "Permission denied"), "permission"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (MemoryError(), "memory"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("reader", READERS)
def test_what_the_machine_refuses(reader, error, found, tmp_path, monkeypatch):
    def refuse(self: Path) -> bool:
        raise error

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert found in refused(getattr(tidyprof, reader), tmp_path)


# Numbers that would be wrong in silence


def amd_smi(gpu: object) -> str:
    """Two hundred samples of GPU 0, of which one says this of its GPU."""
    samples = [
        {
            "timestamp": 1_700_000_000 + second,
            "gpu": 0,
            "power_usage": {"value": 100 + second, "unit": "W"},
        }
        for second in range(200)
    ]
    return json.dumps([*samples[:150], samples[150] | {"gpu": gpu}, *samples[151:]])


@pytest.mark.parametrize(
    "gpu", [-1, "-1", True, 1.5, None, "0000:05:00.0", 10**30, [1], {}], ids=str
)
def test_a_reading_of_no_gpu_is_neither_another_gpus_nor_the_machines(gpu, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(amd_smi(gpu))
    assert "device number" in refused(tidyprof.read, path)


COPIES = (
    b'"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id",'
    b'"Start_Timestamp","End_Timestamp"\n'
    b'"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","Agent 0","Agent 4",7,100,200\n'
    b'"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","Agent 0","Agent 4",8,300,400\n'
)


def doubled(name: str) -> bytes:
    """A small file of a format in which everything is there twice."""
    if name == "perfetto":
        return 2 * small_trace()
    if name == "torch":
        trace = json.loads(trace_text(small_step()))
        return json.dumps(trace | {"traceEvents": 2 * trace["traceEvents"]}).encode()
    subject = name.removeprefix("1_").removesuffix("_trace.csv")
    sample = f"rocprofv3_csv-{subject if subject == 'marker_api' else name[2:-4]}"
    content = COPIES if subject == "memory_copy" else samples()[sample].content
    header, _, rows = content.partition(b"\n")
    return header + b"\n" + 2 * rows


DOUBLED = ["1_kernel_trace.csv", "1_marker_api_trace.csv"]


@pytest.mark.parametrize("name", ["perfetto", "torch", "1_memory_copy_trace.csv", *DOUBLED])
def test_a_file_in_which_everything_is_there_twice(name, tmp_path):
    (tmp_path / name).write_bytes(doubled(name))
    found = refused(tidyprof.read, tmp_path / name)
    assert "twice" in found or "repeated" in found


def test_readings_that_are_there_twice_count_once(tmp_path):
    text = amd_smi(0)
    (tmp_path / "once.json").write_text(text)
    (tmp_path / "twice.json").write_text(text + text)
    once, twice = (tidyprof.read(tmp_path / f"{name}.json") for name in ("once", "twice"))
    pd.testing.assert_frame_equal(once.counters, twice.counters)
    (warning,) = twice.meta["warnings"]
    assert warning.startswith("twice.json: 200 ")


def test_a_kernel_of_sixteen_days_among_microseconds(tmp_path):
    trace, first = samples()["rocprofv3_csv-kernel_trace"].content, b"1550151853000100"
    days = str(int(first) - 16 * 86400 * 10**9).encode()
    (tmp_path / "1_kernel_trace.csv").write_bytes(trace.replace(first, days, 1))
    assert "1 with an impossible time" in refused(tidyprof.read, tmp_path)

"""Files that are no sound output of rocprofv3: one line that says what was found, never another
exception.
"""

from __future__ import annotations

import json

import pytest

from tidyprof import ProfileReadError
from tidyprof.readers.rocprofv3.reader import read_rocprofv3
from tidyprof_tests.damage import refusal
from tidyprof_tests.rocprofv3_writer import (
    COUNTER_HEADER,
    KERNEL_HEADER,
    START_NS,
    Call,
    Kernel,
    call_csv,
    counter_row,
    csv_text,
    kernel_csv,
    results,
    small_run,
    statistics_csv,
)

KERNELS = [Kernel("void f<int, 2>(int*)", 100 * place, 50, place) for place in range(1, 5)]
TRACE = kernel_csv(KERNELS).encode()
COUNTERS = csv_text(
    COUNTER_HEADER, [counter_row(kernel, "SQ_WAVES", 16.0) for kernel in KERNELS]
).encode()
COUNTERS_62 = csv_text(
    COUNTER_HEADER[:-2], [counter_row(kernel, "SQ_WAVES", 16.0)[:-2] for kernel in KERNELS]
).encode()
STATISTICS = statistics_csv([("a", [5, 7]), ("b", [3])]).encode()
AGENTS = b'"Node_Id","Agent_Type","Name"\n0,"CPU","EPYC"\n1,"GPU","gfx942"\n'
RESULTS = json.dumps(results(*small_run(), counters=[(KERNELS[0], {"SQ_WAVES": [1.0]})])).encode()
FIRST = f"{START_NS + 100}".encode()


def row(**changes: object) -> bytes:
    """A trace of one good and one changed row; names of cells as in the header."""
    cells = dict(zip(KERNEL_HEADER, KERNELS[1].cells(), strict=True)) | changes
    return (
        TRACE.split(b"\n")[0]
        + b"\n"
        + csv_text([], [KERNELS[0].cells(), list(cells.values())]).encode()[1:]
    )


def without_column(name: str) -> bytes:
    place = KERNEL_HEADER.index(name)
    kept = [cell for number, cell in enumerate(KERNEL_HEADER) if number != place]
    return csv_text(
        kept, [[c for n, c in enumerate(kernel.cells()) if n != place] for kernel in KERNELS]
    ).encode()


def changed_json(**members: object) -> bytes:
    return json.dumps(results(KERNELS, **members)).encode()


def with_record(**changes: object) -> bytes:
    return changed_json(buffer_records={"kernel_dispatch": [KERNELS[0].json(7) | changes]})


BAD_CONTENT = {
    "another CSV": b"step,loss\n1,2\n",
    "another JSON": b'{"traceEvents": []}',
    "a trace of a GPU in a browser": b'{"schemaVersion": 1, "traceEvents": []}',
    "a header without a line end": TRACE.split(b"\n")[0],
    "a header only": TRACE.split(b"\n")[0] + b"\n",
    "a header and empty lines": TRACE.split(b"\n")[0] + b"\n\n\n",
    "half of the last row": TRACE[:-40],
    "the last row cut in its name": TRACE[: TRACE.rindex(b"int*")],
    "zeros at the end": TRACE + bytes(512),
    "a row cut short in the middle": TRACE.replace(b",1,1024,2,1\n", b"\n", 1),
    "a row that is too long": TRACE.replace(b",1024,2,1\n", b",1024,2,1,7\n", 1),
    "a header twice": TRACE + TRACE,
    "a column twice": TRACE.replace(b'"Queue_Id"', b'"Agent_Id"', 1),
    "no start": without_column("Start_Timestamp"),
    "seconds": TRACE.replace(FIRST, b"1550151.853"),
    "text for a time": row(Start_Timestamp="soon"),
    "NaN for a time": TRACE.replace(FIRST, b"NaN"),
    "a huge time": TRACE.replace(FIRST, b"9" * 40),
    "a time beyond 64 bits": TRACE.replace(FIRST, b"18446744073709551615"),
    "no time": TRACE.replace(FIRST, b""),
    "start and end exchanged": TRACE.replace(b"Start_T", b"S_T")
    .replace(b"End_T", b"Start_T")
    .replace(b"S_T", b"End_T"),
    "a dispatch id twice": row(Dispatch_Id=1),
    "rows twice": TRACE + TRACE.partition(b"\n")[2],
    "a negative thread": row(Thread_Id=-1),
    "a workgroup beyond 32 bits": row(Workgroup_Size_X=2**32),
    "a quote that nobody closes": TRACE.replace(b'(int*)"', b"(int*)", 1),
    "a last quote that nobody closes": TRACE[: TRACE.rindex(b'"')]
    + TRACE[TRACE.rindex(b'"') + 1 :],
    "a counter that is text": COUNTERS.replace(b"16.0", b'"many"', 1),
    "a counter that is NaN": COUNTERS.replace(b"16.0", b"NaN", 1),
    "a counter that is infinite": COUNTERS.replace(b"16.0", b"1e999", 1),
    "a counter that is negative": COUNTERS.replace(b"16.0", b"-16.0", 1),
    "counters twice": COUNTERS + COUNTERS.partition(b"\n")[2],
    "counters without times twice": COUNTERS_62 + COUNTERS_62.partition(b"\n")[2],
    "counters cut off": COUNTERS[:-30],
    "statistics cut off": STATISTICS[:-12],
    "statistics without rows": STATISTICS.split(b"\n")[0] + b"\n",
    "statistics with negative calls": STATISTICS.replace(b'"a",2', b'"a",-2'),
    "statistics with a wrong total": STATISTICS.replace(b",12,", b",13000,"),
    "statistics with a wrong minimum": STATISTICS.replace(b",5,7,", b",8,7,"),
    "statistics in microseconds": STATISTICS.replace(b"TotalDurationNs", b"TotalDurationUs"),
    "only agents": AGENTS,
    "an agent without a type": AGENTS.replace(b'"CPU"', b'""'),
    "JSON cut short": RESULTS[:-30],
    "JSON with more behind it": RESULTS + b"{}",
    "JSON without processes": b'{"rocprofiler-sdk-tool": []}',
    "JSON that is a number": b'{"rocprofiler-sdk-tool": 5}',
    "JSON without records": changed_json(buffer_records={}),
    "JSON nested too deep": b'{"rocprofiler-sdk-tool": ' + b"[" * 10**6,
    "JSON with text for a time": with_record(start_timestamp="soon"),
    "JSON with a fraction for a time": with_record(start_timestamp=1.5),
    "JSON with a huge time": with_record(end_timestamp=10**40),
    "JSON without a time": with_record(end_timestamp=None),
    "JSON with an unknown kind": with_record(kind=99),
    "JSON with a negative kind": with_record(kind=-1),
    "JSON with an unknown operation": with_record(operation=7),
    "JSON without kernel symbols": changed_json(kernel_symbols=[]),
    "JSON with a symbol twice": changed_json(kernel_symbols=[{"kernel_id": 7}] * 2),
    "JSON with nameless counters": RESULTS.replace(
        b'"id": {"handle": 100}', b'"id": {"handle": 9}'
    ),
}


@pytest.mark.parametrize("what", BAD_CONTENT)
def test_bad_content(tmp_path, what):
    content = BAD_CONTENT[what]
    path = tmp_path / "1_results.json" if "JSON" in what else tmp_path / "1_kernel_trace.csv"
    path.write_bytes(content)
    refusal(path, read_rocprofv3)


def test_few_bad_rows_are_left_out_and_counted(tmp_path):
    kernels = [Kernel("k", 100 * place, 50, place) for place in range(1, 301)]
    path = tmp_path / "1_kernel_trace.csv"
    bad = [Kernel("k", 5, -1, 400), Kernel("k", -START_NS, 0, 401), Kernel("k", 7, 1, 1)]
    path.write_text(kernel_csv([*kernels, *bad]))
    profile = read_rocprofv3(path)
    assert len(profile.events) == 300
    assert profile.meta["repairs"] == {
        "dropped events with negative duration": 1,
        "dropped events at time zero": 1,
        "dropped events with a repeated dispatch ID": 1,
    }
    assert profile.meta["events_total"] == 303
    path.write_text(kernel_csv([*kernels, *bad, Kernel("k", 9, -1, 402)]))
    with pytest.raises(ProfileReadError, match="4 of 304 device events are unusable"):
        read_rocprofv3(path)


@pytest.mark.parametrize("domain", ["", '""'])
def test_a_row_without_a_domain_is_counted(domain, tmp_path):
    path = tmp_path / "1_kernel_trace.csv"
    path.write_bytes(TRACE.replace(b'"KERNEL_DISPATCH"', domain.encode(), 1))
    profile = read_rocprofv3(path)
    assert (len(profile.events), profile.meta["events_total"], profile.meta["not_kept"]) == (
        3,
        4,
        {"": 1},
    )


SEEDS = {
    "1_kernel_trace.csv": TRACE,
    "1_counter_collection.csv": COUNTERS,
    "1_kernel_stats.csv": STATISTICS,
    "1_agent_info.csv": AGENTS,
    "1_marker_api_trace.csv": call_csv(
        [Call("two\nlines", 1, 2, 3), Call("a, b", 4, 5, 6)]
    ).encode(),
    "1_results.json": RESULTS,
}

"""The rpd reader against real recordings with known figures, and against written files."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tidyprof import Profile, ProfileReadError
from tidyprof.analyses import busy, kernels
from tidyprof.readers.rpd.reader import read_rpd
from tidyprof_tests.readers.kit import assert_case, cases_in_file
from tidyprof_tests.rpd_writer import RpdWriter, small_file

RECORDINGS = {
    "rpd-mi200-matmul": "rpd-mi200-matmul/matmul_result.rpd",
    "rpd-vllm-mytrace": "rpd-vllm-mytrace/mytrace.rpd.gz",
}


@pytest.fixture(scope="session")
def profile_of(recordings: Path):
    cache: dict[str, Profile] = {}

    def read(name: str) -> Profile:
        if name not in cache:
            cache[name] = read_rpd(recordings / RECORDINGS[name])
        return cache[name]

    return read


@pytest.fixture(scope="session")
def plain_files(recordings: Path, tmp_path_factory) -> dict[str, Path]:
    """The recordings unpacked, for comparisons by SQL."""
    folder = tmp_path_factory.mktemp("rpd")
    files = {}
    for name, path in RECORDINGS.items():
        data = (recordings / path).read_bytes()
        files[name] = folder / f"{name}.rpd"
        files[name].write_bytes(gzip.decompress(data) if path.endswith(".gz") else data)
    return files


def query(path: Path, sql: str) -> list[tuple]:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_figure_of_a_recording(name, manifest, profile_of):
    profile, truth = profile_of(name), manifest[name]["truth"]
    truth = truth.get(Path(RECORDINGS[name]).name, truth)
    device, host = profile.device_events, profile.events[profile.events["device"].isna()]
    assert profile.meta["schema_version"] == int(truth["schema_version"])
    counts = tuple(truth[key] for key in ("op_rows", "api_rows", "monitor_rows"))
    assert (len(device), len(host), len(profile.counters)) == counts
    by_type = device.groupby("source_category", observed=True)["duration_ns"].agg(["size", "sum"])
    assert truth["ops_by_type"] == {
        name: {"count": count, "total_ns": total} for name, count, total in by_type.itertuples()
    }
    end = (device["start_ns"] + device["duration_ns"]).max()
    assert end - device["start_ns"].min() == truth["op_span_ns"]
    top = truth["top_kernel_by_gpu_time"]
    assert kernels(profile).iloc[0][list(top)].to_dict() == top
    assert dict(Counter(profile.counters["name"])) == truth["monitor_types"]
    assert profile.meta["repairs"] == profile.meta["not_kept"] == {}
    assert profile.meta["warnings"] == []
    (row,) = busy(profile).itertuples()  # the shipped view counts overlaps twice
    assert truth["busy_view"] == [
        {
            "gpuId": row.device,
            "GpuTime_ns": row.sum_ns,
            "WallTime_ns": row.span_ns,
            "Busy": round(row.sum_ns / row.span_ns, 9),
        }
    ]


def test_the_same_run_converted_by_the_tool_itself(recordings, profile_of):
    """rpd2tracing.py wrote the JSON file from the database: times cut to whole microseconds."""
    text = (recordings / "rpd-mi200-matmul" / "matmul_result.json").read_text()
    events = json.loads(text)
    events = events["traceEvents"] if isinstance(events, dict) else events
    converted = Counter(
        (e["name"], int(e["ts"]), int(e["dur"])) for e in events if e.get("ph") == "X"
    )
    own = profile_of("rpd-mi200-matmul").events
    assert (
        Counter(zip(own["name"], own["start_ns"] // 1000, own["duration_ns"] // 1000, strict=True))
        == converted
    )


SHIPPED = {
    "launches and shapes": (
        "SELECT K.start, K.kernelName, A.start, '[' || gridX || ', ' || gridY || ', ' || gridz ||"
        " ']', A.tid FROM kernel K JOIN rocpd_api_ops L ON L.op_id = K.id JOIN rocpd_api A ON A.id"
        " = L.api_id",
        "source_category == 'KernelExecution'",
        ["start_ns", "name", "launch_ns", "grid", "launch_thread"],
    ),
    "sizes": (
        "SELECT start, duration, size FROM copyop",
        "kind == 'copy' and bytes.notna()",
        ["start_ns", "duration_ns", "bytes"],
    ),
    "operators": (
        "SELECT start, autogradName FROM autograd",
        "kind == 'operator'",
        ["start_ns", "name"],
    ),
    # The nearest ancestor of the launching call that is an operator, as rocpd.call_stacks found it
    "operators around launches": (
        "SELECT O.start, D.string FROM rocpd_api_ops L JOIN rocpd_op O ON O.id = L.op_id JOIN ("
        " SELECT C.child_id, A.autogradName_id, min(C.depth) FROM ext_callstack C JOIN"
        " ext_autogradapi A ON A.api_ptr_id = C.parent_id GROUP BY C.child_id) S ON S.child_id ="
        " L.api_id LEFT JOIN rocpd_string D ON D.id = S.autogradName_id",
        "device.notna() and operator.notna()",
        ["start_ns", "operator"],
    ),
}
"""What the tool's own views give -> the query, and the same rows and columns of the table."""


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (name, what)
        for name in RECORDINGS
        for what in SHIPPED
        if "operators" not in what or name == "rpd-vllm-mytrace"  # the only one with operators
    ],
)
def test_tables_agree_with_the_shipped_views(name, what, plain_files, profile_of):
    sql, chosen, columns = SHIPPED[what]
    found = profile_of(name).events.query(chosen, engine="python")[columns]
    rows = query(plain_files[name], sql)
    assert rows
    assert sorted(found.itertuples(index=False, name=None)) == sorted(rows)


def test_kernels_in_graphs_are_kernels(profile_of):
    """Operations of type Task have kernel names, and hipGraphLaunch launched all of them."""
    profile = profile_of("rpd-vllm-mytrace")
    tasks = profile.events.query("source_category == 'Task'")
    assert len(tasks) == 7720
    assert set(tasks["kind"]) == {"kernel"}
    assert tasks["grid"].isna().all()
    assert set(tasks["stream"]) == {0}


# Written files

CASES = cases_in_file("rpd")


@pytest.mark.parametrize("name", CASES)
def test_a_written_file(name, tmp_path):
    assert_case(CASES[name], RpdWriter, tmp_path / "file.rpd")


def test_ids_of_a_later_session_are_larger_than_32_bits(tmp_path):
    plain = read_rpd(small_file(tmp_path / "plain.rpd"))
    shifted = read_rpd(small_file(tmp_path / "shifted.rpd", first_id=6_442_450_945))
    assert (
        shifted.events["correlation_id"] - plain.events["correlation_id"]
    ).unique().tolist() == [6_442_450_944]
    same = shifted.events.drop(columns="correlation_id")
    pd.testing.assert_frame_equal(same, plain.events.drop(columns="correlation_id"))


def test_few_bad_rows_are_dropped_and_counted(tmp_path):
    writer = RpdWriter(tmp_path / "trace.rpd")
    for place in range(1, 401):
        writer.kernel("a", 10_000 * place, 1_000)
    writer.execute('UPDATE rocpd_op SET "end" = start - 5 WHERE id = 7')
    writer.execute("UPDATE rocpd_op SET start = 12.5 WHERE id = 9")
    writer.execute("UPDATE rocpd_api SET start = 0 WHERE id = 3")
    path = writer.close()
    profile = read_rpd(path)
    assert len(profile.device_events) == 398
    assert profile.meta["repairs"] == {
        "dropped events with negative duration": 1,
        "dropped events without start or end": 1,
        "dropped events at time zero": 1,
    }
    assert profile.device_events["launch_ns"].isna().sum() == 1


def test_structural_damage_is_found_even_if_all_rows_can_be_read(tmp_path):
    """A page that two tables share: every row reads well, but some are of another table."""
    writer = RpdWriter(tmp_path / "trace.rpd", page_bytes=512)
    for place in range(1, 200):
        writer.kernel("a", 10_000 * place, 1_000)
    path = writer.close()
    data = bytearray(path.read_bytes())
    connection = sqlite3.connect(path)
    ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rocpd_op'")
    connection.close()
    page = (root - 1) * 512
    assert data[page] == 5, "the root must be an interior page"
    first_cell, second_cell = (
        int.from_bytes(data[page + at : page + at + 2], "big") for at in (12, 14)
    )
    data[page + first_cell : page + first_cell + 4] = data[
        page + second_cell : page + second_cell + 4
    ]
    path.write_bytes(bytes(data))
    with pytest.raises(ProfileReadError, match=r"damaged|identifier"):
        read_rpd(path)


@pytest.mark.parametrize(
    ("suffix", "beside"),
    [("-wal", b"7\x7f\x06\x82" + bytes(28)), ("-journal", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")],
)
def test_changes_that_are_not_in_the_file_yet(tmp_path, suffix, beside):
    path = small_file(tmp_path / "trace.rpd")
    other = path.with_name(path.name + suffix)
    other.write_bytes(beside)
    with pytest.raises(ProfileReadError, match=r"-wal or -journal"):
        read_rpd(path)
    other.write_bytes(b"")
    assert len(read_rpd(path).events)

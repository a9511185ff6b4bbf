"""The rpd reader and its views against real recordings with known figures, and against written
files.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tidyprof import Profile
from tidyprof.analyses import busy, kernels
from tidyprof.readers.rpd.reader import read_rpd
from tidyprof_tests.rpd_writer import START_NS, RpdWriter, small_file

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


def truth_of(manifest: dict[str, dict], name: str) -> dict:
    truth = manifest[name]["truth"]
    return truth.get(Path(RECORDINGS[name]).name, truth)


def query(path: Path, sql: str) -> list[tuple]:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def first(table: pd.DataFrame, columns: dict) -> dict:
    return {column: table[column].iloc[0] for column in columns}


def by_type(profile: Profile) -> dict[str, dict[str, int]]:
    events = profile.device_events
    grouped = events.groupby("source_category", observed=True)["duration_ns"].agg(["size", "sum"])
    return {
        name: {"count": count, "total_ns": total} for name, count, total in grouped.itertuples()
    }


def span_ns(events: pd.DataFrame) -> int:
    return int((events["start_ns"] + events["duration_ns"]).max() - events["start_ns"].min())


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_figure_of_a_recording(name, manifest, profile_of):
    profile, truth = profile_of(name), truth_of(manifest, name)
    device, host = profile.device_events, profile.events[profile.events["device"].isna()]
    assert profile.meta["schema_version"] == int(truth["schema_version"])
    assert (len(device), len(host), len(profile.counters)) == tuple(
        truth[key] for key in ("op_rows", "api_rows", "monitor_rows")
    )
    assert by_type(profile) == truth["ops_by_type"]
    assert profile.meta["events_by_category"] == {
        kind: row["count"] for kind, row in truth["ops_by_type"].items()
    }
    assert span_ns(device) == truth["op_span_ns"]
    top = truth["top_kernel_by_gpu_time"]
    assert first(kernels(profile), top) == top
    assert dict(Counter(profile.counters["name"])) == truth["monitor_types"]
    assert profile.meta["repairs"] == profile.meta["not_kept"] == {}
    assert profile.meta["warnings"] == []
    assert profile.meta["device_events_without_launch"] == 0
    assert [as_in_the_busy_view(row) for row in busy(profile).itertuples()] == truth["busy_view"]


def as_in_the_busy_view(row: tuple) -> dict[str, float]:
    """A row of `tidyprof.busy` under the names of the shipped view, whose busy time counts overlaps
    twice.
    """
    ratio = round(row.sum_ns / row.span_ns, 9)
    return {
        "gpuId": row.device,
        "GpuTime_ns": row.sum_ns,
        "WallTime_ns": row.span_ns,
        "Busy": ratio,
    }


def test_figures_that_were_published(manifest, profile_of):
    published, profile = (
        manifest["rpd-mi200-matmul"]["published_figures"],
        profile_of("rpd-mi200-matmul"),
    )
    (found,) = [as_in_the_busy_view(row) for row in busy(profile).itertuples()]
    assert [round(value, 6) for value in found.values()] == list(published["busy"].values())
    device = profile.device_events
    top = (
        device.groupby("name", observed=True)["duration_ns"].agg(["size", "sum"]).nlargest(2, "sum")
    )
    expected = published["top_first_row"]
    assert (top.index[0], top["size"].iloc[0], top["sum"].iloc[0] // 1000) == (
        expected["Name"],
        expected["TotalCalls"],
        expected["TotalDuration"],
    )
    assert top["sum"].iloc[1] // 1000 == published["top_second_row_total"]


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


@pytest.mark.parametrize("name", RECORDINGS)
def test_launches_and_shapes_agree_with_the_shipped_kernel_view(name, plain_files, profile_of):
    rows = query(
        plain_files[name],
        "SELECT K.start, K.kernelName, A.start, '[' || gridX || ', ' || gridY || ', ' || gridz ||"
        " ']', A.tid FROM kernel K JOIN rocpd_api_ops L ON L.op_id = K.id JOIN rocpd_api A ON A.id"
        " = L.api_id",
    )
    events = profile_of(name).events
    found = events[events["source_category"] == "KernelExecution"]
    columns = ["start_ns", "name", "launch_ns", "grid", "launch_thread"]
    assert sorted(found[columns].itertuples(index=False, name=None)) == sorted(rows)


@pytest.mark.parametrize("name", RECORDINGS)
def test_sizes_agree_with_the_shipped_copy_view(name, plain_files, profile_of):
    rows = query(plain_files[name], "SELECT start, duration, size FROM copyop")
    found = profile_of(name).events.query("kind == 'copy'").dropna(subset="bytes")
    assert sorted(
        found[["start_ns", "duration_ns", "bytes"]].itertuples(index=False, name=None)
    ) == sorted(rows)


def test_copies_that_a_graph_made_have_no_size(profile_of):
    copies = profile_of("rpd-vllm-mytrace").events.query("kind == 'copy'")
    assert copies["bytes"].isna().sum() == 640
    assert profile_of("rpd-vllm-mytrace").meta["calls_with_several_operations"] == 20


def test_kernels_in_graphs_are_kernels(profile_of, plain_files):
    """Operations of type Task have kernel names, and hipGraphLaunch launched all of them."""
    tasks = profile_of("rpd-vllm-mytrace").events.query("source_category == 'Task'")
    assert len(tasks) == 7720
    assert set(tasks["kind"]) == {"kernel"}
    assert tasks["grid"].isna().all()
    assert set(tasks["stream"]) == {0}
    launching = query(
        plain_files["rpd-vllm-mytrace"],
        "SELECT DISTINCT apiName FROM op JOIN rocpd_api_ops L ON L.op_id = op.id JOIN api ON api.id"
        " = L.api_id WHERE opType = 'Task'",
    )
    assert launching == [("hipGraphLaunch",)]


def test_operators_come_from_the_autograd_table(profile_of, plain_files):
    events = profile_of("rpd-vllm-mytrace").events
    stored = query(plain_files["rpd-vllm-mytrace"], "SELECT start, autogradName FROM autograd")
    found = events[events["kind"] == "operator"]
    assert sorted(zip(found["start_ns"], found["name"], strict=True)) == sorted(stored)


def test_operator_around_a_launch_agrees_with_the_stored_call_stacks(profile_of, plain_files):
    """The nearest ancestor of the launching call that is an operator, as rocpd.call_stacks computed
    it.
    """
    rows = query(
        plain_files["rpd-vllm-mytrace"],
        "SELECT O.start, D.string FROM rocpd_api_ops L JOIN rocpd_op O ON O.id = L.op_id LEFT JOIN"
        " ( SELECT C.child_id, A.autogradName_id, min(C.depth) FROM ext_callstack C JOIN"
        " ext_autogradapi A ON A.api_ptr_id = C.parent_id GROUP BY C.child_id) S ON S.child_id ="
        " L.api_id LEFT JOIN rocpd_string D ON D.id = S.autogradName_id",
    )
    device = profile_of("rpd-vllm-mytrace").device_events
    operators = device["operator"].astype(object).where(device["operator"].notna(), None)
    assert sorted(zip(device["start_ns"], operators, strict=True), key=str) == sorted(rows, key=str)


def test_clock_samples_of_a_recording(profile_of, plain_files):
    counters = profile_of("rpd-mi200-matmul").counters
    stored = query(
        plain_files["rpd-mi200-matmul"],
        "SELECT start, end - start, CAST(value AS REAL) FROM rocpd_monitor",
    )
    assert sorted(
        counters[["time_ns", "duration_ns", "value"]].itertuples(index=False, name=None)
    ) == sorted(stored)
    assert set(counters["unit"]) == {"MHz"}
    assert counters["value"].max() == 1700


# Written files


@pytest.mark.parametrize("version", [2, 3])
def test_a_small_file(tmp_path, version):
    profile = read_rpd(small_file(tmp_path / "small.rpd", version))
    device = profile.device_events.set_index("name")
    assert list(device.index) == ["CopyHostToDevice", "gemm<float>", "relu", "FillBuffer"]
    assert device["kind"].tolist() == ["copy", "kernel", "kernel", "fill"]
    assert (device["start_ns"] - START_NS).tolist() == [10_000, 20_000, 50_000, 70_000]
    assert device["duration_ns"].tolist() == [8_000, 30_000, 5_000, 2_000]
    assert (device["launch_ns"] - START_NS).tolist() == [5_000, 15_000, 45_000, 60_000]
    assert device["stream"].tolist() == [0x7F00, 0, 0x7F9F3915AD70, pd.NA]
    assert device["bytes"].tolist() == [1_000_000, pd.NA, pd.NA, pd.NA]
    assert device.loc["gemm<float>", "grid"] == "[64, 2, 1]"
    assert device.loc["gemm<float>", "block"] == "[256, 1, 1]"
    host = profile.events[profile.events["device"].isna()]
    assert host["kind"].tolist() == ["annotation", *["runtime"] * 4]
    assert host["name"].tolist()[0] == "train step"
    assert (
        host["source_category"].isna().all()
        if version == 2
        else set(host["source_category"]) == {"hip", "roctx"}
    )
    assert profile.counters["duration_ns"].tolist() == [20_000, 60_000]
    assert profile.meta["tool_version"] == f"schema version {version}"
    assert profile.meta.get("device_numbering") == (None if version == 2 else "index")
    assert [Path(file).name for file in profile.meta["files"]] == ["small.rpd"]


def test_ids_of_a_later_session_are_larger_than_32_bits(tmp_path):
    plain = read_rpd(small_file(tmp_path / "plain.rpd"))
    shifted = read_rpd(small_file(tmp_path / "shifted.rpd", first_id=6_442_450_945))
    assert (
        shifted.events["correlation_id"] - plain.events["correlation_id"]
    ).unique().tolist() == [6_442_450_944]
    same = shifted.events.drop(columns="correlation_id")
    pd.testing.assert_frame_equal(same, plain.events.drop(columns="correlation_id"))


def test_a_kernel_without_a_name_gets_the_one_of_its_launch(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd")
    for start, name in ((20_000, "gemm"), (30_000, "ncclDevKernel")):
        call = writer.call("hipLaunchKernel", start - 100, 50)
        writer.launch(call, name)
        writer.operation("KernelExecution", "", start, 1_000, call)
    device = read_rpd(writer.close()).device_events
    assert list(zip(device["name"], device["kind"], strict=True)) == [
        ("gemm", "kernel"),
        ("ncclDevKernel", "collective"),
    ]


def test_several_operations_of_one_call_share_it_but_not_its_shape(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd", 3)
    call = writer.call(
        "hipGraphLaunch", 1_000, 500, args='{"graphExec":"0x2492","stream":"0xbeef"}'
    )
    writer.launch(call, "a")
    for start in (5_000, 7_000):
        writer.operation("KernelExecution", "a", start, 1_000, call)
    writer.operation("CopyDeviceToDevice", "", 9_000, 1_000, call)
    writer.insert("rocpd_copyapi", api_ptr_id=call, stream="0xbeef", size=512, kind=3)
    profile = read_rpd(writer.close())
    device = profile.device_events
    assert set(device["correlation_id"]) == {call}
    assert set(device["stream"]) == {0xBEEF}
    assert device["grid"].isna().all()
    assert device["bytes"].tolist() == [pd.NA, pd.NA, 512]
    assert profile.meta["calls_with_several_operations"] == 1


def test_operations_without_a_call(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd")
    writer.operation("KernelExecution", "a", 5_000, 1_000)
    writer.operation("KernelExecution", "b", 7_000, 1_000, call=4711)
    profile = read_rpd(writer.close())
    assert profile.device_events["launch_ns"].isna().all()
    assert profile.device_events["correlation_id"].tolist() == [pd.NA, 4711]
    assert profile.meta["device_events_without_launch"] == 2


def test_sizes_above_two_gigabytes_are_blank(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd")
    writer.copy("CopyHostToDevice", 10_000, 1_000, size="")
    writer.copy("CopyHostToDevice", 20_000, 1_000, size=77)
    assert read_rpd(writer.close()).device_events["bytes"].tolist() == [pd.NA, 77]


@pytest.mark.parametrize("version", [2, 3])
def test_markers_of_emit_nvtx_are_operators(tmp_path, version):
    writer = RpdWriter(tmp_path / "file.rpd", version)
    texts = {
        "aten::linear, seq = 7, op_id = 81, sizes = [[2, 3], [3]], input_op_ids = [[], []]": (
            "aten::linear"
        ),
        "aten::addmm, op_id = 82": "aten::addmm",
        "evaluate_function: AddmmBackward0, seq = 7, op_id = 83": (
            "evaluate_function: AddmmBackward0"
        ),
    }
    for depth, text in enumerate(texts):
        writer.call("UserMarker", 1_000 + depth, 10_000 - 2 * depth, args=text, domain="roctx")
    writer.call("UserMarker", 100, 20_000, args="epoch 1, op_id = none", domain="roctx")
    writer.call("UserMarker", 50, 10, domain="roctx")
    writer.kernel("gemm", 8_000, 1_000, launch=5_000)
    writer.kernel("late", 40_000, 1_000, launch=1_000)
    events = read_rpd(writer.close()).events
    operators = events[events["kind"] == "operator"]
    assert operators["name"].tolist() == list(texts.values())
    assert events[events["kind"] == "annotation"]["name"].tolist() == [
        "UserMarker",
        "epoch 1, op_id = none",
    ]
    known = events.dropna(subset="operator")
    assert known[["name", "operator"]].to_numpy().tolist() == [
        ["hipLaunchKernel", "evaluate_function: AddmmBackward0"],
        ["gemm", "evaluate_function: AddmmBackward0"],
    ]


def test_operators_of_another_thread_do_not_enclose_a_launch(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd")
    writer.call("UserMarker", 1_000, 50_000, args="aten::mm, op_id = 1", tid=2)
    writer.kernel("a", 20_000, 1_000, tid=3)
    assert read_rpd(writer.close()).events["operator"].isna().all()


def test_the_tracers_own_calls_are_runtime_calls(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd")
    names = [
        "hcc_activity_callback",
        "ApiTable::writeRows",
        "BLOCKING",
        "RocprofDataSource::flush",
        "hipFree",
    ]
    for place, name in enumerate([*names, "my range", "hipster"]):
        writer.call(name, 1_000 * place + 1, 10)
    events = read_rpd(writer.close()).events
    assert events["kind"].tolist() == [*["runtime"] * len(names), "annotation", "annotation"]


def test_operations_that_are_no_work_are_counted_but_not_kept(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd")
    writer.kernel("a", 20_000, 1_000)
    writer.operation("BarrierPacket", "", 22_000, 1_000)
    writer.operation("SomethingNew", "a kernel of a new type", 24_000, 1_000)
    writer.operation("Nameless", "", 26_000, 1_000)
    profile = read_rpd(writer.close())
    assert any("'Nameless' 1 times" in warning for warning in profile.meta["warnings"])
    assert profile.device_events["name"].tolist() == ["a", "a kernel of a new type"]
    assert profile.meta["not_kept"] == {"BarrierPacket": 1, "Nameless": 1}
    assert profile.meta["events_by_category"]["BarrierPacket"] == 1


def test_hardware_counters_of_schema_3(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd", 3)
    writer.kernel("gemm", 20_000, 1_000, gpu=0)
    waves = writer.string("SQ_WAVES")
    writer.insert("rocpd_counter", op_id=1, name_id=waves, value=16384.0)
    writer.insert("rocpd_counter", op_id=99, name_id=waves, value=1.0)
    writer.insert("rocpd_counter", op_id=1, name_id=waves, value="many")
    counters = read_rpd(writer.close()).counters
    assert counters[["name", "value", "kernel", "device", "duration_ns"]].to_numpy().tolist() == [
        ["SQ_WAVES", 16384.0, "gemm", 0, 1_000]
    ]
    assert counters["unit"].isna().all()


def test_copies_of_rocprofiler_sdk_have_no_gpu_unless_all_is_on_gpu_0(tmp_path):
    """The tracer writes GPU 0 for every copy of that back end."""
    for gpu, expected in ((0, [0, 0]), (3, [pd.NA, 3])):
        writer = RpdWriter(tmp_path / f"gpu{gpu}.rpd", 3)
        writer.copy("MEMORY_COPY_HOST_TO_DEVICE", 10_000, 1_000, gpu=0)
        writer.kernel("a", 20_000, 1_000, gpu=gpu)
        profile = read_rpd(writer.close())
        assert profile.device_events["device"].tolist() == expected
        assert bool(profile.meta["warnings"]) == (gpu != 0)


def test_gpu_0_means_that_devices_are_not_numbered_as_agents(tmp_path):
    writer = RpdWriter(tmp_path / "file.rpd")
    writer.kernel("a", 20_000, 1_000, gpu=0)
    assert read_rpd(writer.close()).meta["device_numbering"] == "index"


@pytest.mark.parametrize(
    ("column", "numbering"), [("TotalDuration", None), ("TotalDuration_us", "index")]
)
def test_the_view_top_tells_files_of_schema_2_apart_that_count_gpus(tmp_path, column, numbering):
    """The version stayed 2 when rpd began to count GPUs from 0."""
    writer = RpdWriter(tmp_path / "file.rpd")
    writer.connection.execute(f"CREATE VIEW top AS SELECT count(*) AS {column} FROM rocpd_op")
    writer.kernel("a", 20_000, 1_000, gpu=1)
    assert read_rpd(writer.close()).meta.get("device_numbering") == numbering


# Several files

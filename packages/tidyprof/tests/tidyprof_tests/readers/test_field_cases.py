"""Inputs of third parties that readers once got wrong, and siblings of each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof_tests import chrome_writer as chrome
from tidyprof_tests import perfetto_writer as perfetto
from tidyprof_tests import rocprofv3_writer as rocprofv3
from tidyprof_tests import snapshot_writer
from tidyprof_tests.readers.kit import samples

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


def perfetto_trace(path: Path, *work: bytes) -> tidyprof.Profile:
    """Read a trace of rocprofv3 with work on a queue of agent 4 and on a stream of no agent."""
    stream = perfetto.track(77, name='STREAM [" 1 "] ', parent=perfetto.PROCESS)
    perfetto.write_trace(path, perfetto.start(), perfetto.tracks(), stream, *work)
    return tidyprof.read(path)


COPY = "__amd_rocclr_copyBuffer.kd"


@pytest.mark.parametrize(
    ("place", "device"),
    [
        ({"track": 77, "agent": "Agent-4"}, 4),
        ({"track": 77, "agent": "Agent-5"}, 5),
        ({"track": perfetto.QUEUE}, 4),
    ],
)
def test_a_copy_by_a_kernel_is_of_its_agent_or_track(tmp_path, place, device):
    copy = perfetto.slice_(perfetto.BASE, perfetto.BASE + 9, COPY, "kernel_dispatch", **place)
    assert perfetto_trace(tmp_path / "a.pftrace", copy).events["device"].tolist() == [device]


def test_work_of_an_unknown_device_is_no_second_device(tmp_path):
    kernel = perfetto.kernel(perfetto.BASE, perfetto.BASE + 9, "k", 1)
    copy = perfetto.slice_(perfetto.BASE, perfetto.BASE + 5, COPY, "kernel_dispatch", track=77)
    profile = perfetto_trace(tmp_path / "a.pftrace", kernel, copy)
    assert tidyprof.busy(profile)["device"].tolist() == [4]
    assert any("device" in warning for warning in profile.meta["warnings"])


ROCPROFV2 = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,"
    "Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,"
    "End_Timestamp,Correlation_ID"
)


@pytest.mark.parametrize("counters", [{}, {"SQ_WAVES": 1024, "GRBM_COUNT": 77}])
def test_dispatches_of_rocprofv2_are_a_timeline(tmp_path, counters):
    lines = [",".join([ROCPROFV2, *counters])]
    for i, start in enumerate((1_000_000, 1_001_000)):
        row = f'{i},2,1,42,42,65536,256,0,0,64,0,32,64,"k<1, 2> (.kd)",{start},{start + 250},{i}'
        lines.append(",".join([row, *map(str, counters.values())]))
    (tmp_path / "results_42.csv").write_text("\n".join([*lines, ""]))
    profile = tidyprof.read(tmp_path)
    assert profile.meta["tool"] == "rocprofv2"
    assert tidyprof.busy(profile)[["device", "span_ns", "sum_ns"]].values.tolist() == [
        [2, 1_250, 500]
    ]
    assert sorted(profile.counters["name"].unique()) == sorted(counters)


@pytest.mark.parametrize(("flags", "gpu"), [(0x4C, "gfx942"), (0x4F, "gfx950"), (0x3F, "gfx90a")])
def test_a_code_object_without_a_target_states_its_gpu_in_the_header(tmp_path, flags, gpu):
    data = bytearray((CASES / "code-object-v3.co").read_bytes())
    data[48] = flags
    (tmp_path / "k.co").write_bytes(data)
    table = tidyprof.read_assembly(tmp_path / "k.co")
    assert table[["target", "vgprs", "lds_bytes"]].values.tolist() == [[gpu, 512, 65536]]


STATISTICS = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n'


@pytest.mark.parametrize("first", ["", "plain,2,2,1,0.0\n", '"quoted<1, 2>",2,2,1,0.0\n'])
def test_names_without_quotes_in_statistics_of_rocprof_keep_their_commas(tmp_path, first):
    rows = "void k<For<V<int**>, 4u> >(For<b>),2,542000,271000,51.2\nk<int, true>,2,6,3,48.8\n"
    (tmp_path / "results.stats.csv").write_text(STATISTICS + first + rows)
    (tmp_path / "results.csv").write_bytes(samples()["rocprof_v1-results"].content)
    table = tidyprof.read(tmp_path).meta["stats"]["kernel"]
    assert table[["name", "total_ns"]].values.tolist()[-2:] == [
        ["void k<For<V<int**>, 4u> >(For<b>)", 542000],
        ["k<int, true>", 6],
    ]


def idle_trace(path: Path) -> None:
    perfetto.write_trace(path.with_suffix(".pftrace"), perfetto.start(), perfetto.tracks())


def idle_table(path: Path) -> None:
    header = rocprofv3.rows_csv([rocprofv3.Kernel("k", 0, 0, 0)]).partition("\n")[0]
    path.with_name(f"{path.name}_kernel_trace.csv").write_text(f"{header}\n")


def idle_json(path: Path) -> None:
    rocprofv3.write_results(path.with_name(f"{path.name}_results.json"))


def busy_trace(path: Path) -> None:
    perfetto.write_trace(path.with_suffix(".pftrace"), perfetto.small_trace())


def busy_tables(path: Path) -> None:
    rocprofv3.write_small_run(path.parent, path.name)


@pytest.mark.parametrize(
    ("idle", "busy"),
    [(idle_trace, busy_trace), (idle_table, busy_tables), (idle_json, busy_tables)],
)
def test_processes_that_recorded_nothing_are_left_out_and_named(tmp_path, idle, busy):
    idle(tmp_path / "75")
    idle(tmp_path / "76")
    with pytest.raises(tidyprof.ProfileReadError):
        tidyprof.read(tmp_path)
    busy(tmp_path / "77")
    profile = tidyprof.read(tmp_path)
    assert len(profile.device_events)
    assert sorted(Path(file).name[:2] for file in profile.meta["ignored_files"]) == ["75", "76"]


DISPATCHES = [
    ("plan", 40_000),
    ("attention", 16_000_000),
    ("fill", 9_000),
    ("attention", 15_000_000),
]


def workload(folder: Path, factor: float, counted: range = range(4)) -> tidyprof.Profile:
    """Read a workload. Kernels take `factor` times as long with counters, and only some have any."""
    header = "Dispatch_ID,Kernel_Name,GPU_ID,{}Start_Timestamp,End_Timestamp\n"
    tables = {"timestamps.csv": (range(4), 1, ""), "pmc_perf.csv": (counted, factor, "1024,")}
    for name, (rows, times, waves) in tables.items():
        lines = [
            f"{i},{DISPATCHES[i][0]},2,{waves}{10**9 * (i + 1)},"
            f"{10**9 * (i + 1) + int(DISPATCHES[i][1] * times)}\n"
            for i in rows
        ]
        (folder / name).write_text("".join([header.format("SQ_WAVES," * bool(waves)), *lines]))
    (folder / "sysinfo.csv").write_text("gpu_model\nMI300X\n")
    return tidyprof.read(folder)


@pytest.mark.parametrize(("factor", "warnings"), [(0.001, 1), (2.5, 1), (1.05, 0), (1.3, 1)])
def test_times_of_a_workload_are_of_the_run_without_counters(tmp_path, factor, warnings):
    profile = workload(tmp_path, factor)
    assert profile.events["duration_ns"].tolist() == [time for _, time in DISPATCHES]
    assert len(profile.meta["warnings"]) == warnings


def test_dispatches_without_counters_keep_their_times(tmp_path):
    profile = workload(tmp_path, 1.0, range(1, 3))
    assert profile.events["duration_ns"].tolist() == [time for _, time in DISPATCHES]
    assert profile.counters["kernel"].tolist() == ["attention", "fill"]
    assert any("2 of the 4" in warning for warning in profile.meta["warnings"])


@pytest.mark.parametrize("free", ["device_free", "addr"])
def test_a_snapshot_names_the_allocations_that_failed(tmp_path, free, capsys):
    snapshot = snapshot_writer.small_snapshot()
    failed = snapshot["device_traces"][0][-1]
    del failed["device_free"]
    failed |= {free: 5 * 2**20, "frames": [snapshot_writer.TRAIN]}
    path = snapshot_writer.write(tmp_path / "rank3.pickle", snapshot)
    known = {"requested_bytes": 18 * 2**20, "free_bytes": 5 * 2**20, "device": 0, "rank": 3}
    line = "/home/me/train.py(12): step"
    assert tidyprof.read(path).meta["oom"] == [known | {"source_line": line}]
    main(["summary", str(path)])
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("18.0 MiB", "5.0 MiB", line))


@pytest.mark.parametrize(
    ("counter", "zeros", "doubtful"),
    [("SQ_WAVES", 4, True), ("SQ_WAVES", 1, True), ("SQ_WAVES", 0, False), ("SQ_LDS", 4, False)],
)
def test_waves_of_a_kernel_that_ran_are_not_zero(tmp_path, counter, zeros, doubtful):
    table = samples()["rocprofv3_csv-counter_collection"].content.decode()
    table = table.replace("SQ_WAVES", counter).replace("16.0", "0.0", zeros)
    (tmp_path / "1_counter_collection.csv").write_text(table)
    warnings = tidyprof.read(tmp_path).meta["warnings"]
    assert any("SQ_WAVES" in warning for warning in warnings) == doubtful


@pytest.mark.parametrize("content", [bytes(400), bytes(8) + b'{"schemaVersion": 1', b"\x1f\x8b"])
def test_a_rank_whose_file_is_damaged_at_its_start_is_missing(tmp_path, capsys, content):
    events = [chrome.call("hipLaunchKernel", 5_000, 900, 1), chrome.kernel("k", 7_000, 900, 1)]
    for rank in (0, 1, 3):
        header = chrome.HEADER | {"distributedInfo": {"rank": rank, "world_size": 4}}
        chrome.write_trace(tmp_path / f"trace_rank{rank}.json", events, header=header)
    (tmp_path / "trace_rank2.json").write_bytes(content)
    main(["triage", str(tmp_path)])
    assert "rank 2" in capsys.readouterr().out

"""Perfetto traces of rocprofv3: what tidyprof and protobuf read is what the run holds."""

from __future__ import annotations

import json
from collections import Counter

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from cifar_train.errors import UserError
from gpumodel import writers
from gpumodel.run import RankRun, Run
from gpumodel.writers.perfetto.encoding import varint
from gpumodel.writers.perfetto.events import executed_work
from tests.gpumodel.handmade import START_NS, TEMPLATE_KERNEL, WALL_CLOCK_OFFSET_NS, runs, small_run
from tidyprof import read, read_perfetto

REPEATED = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same_device_work(events: pd.DataFrame, rank: RankRun, device: int) -> None:
    """The device events of one process, against the rank's work as the hardware executes it."""
    found = events[(events["process"] == rank.process_id) & events["device"].notna()]
    found = found.sort_values("correlation_id", ignore_index=True)
    work = executed_work(rank).sort_values("correlation_id", ignore_index=True)
    assert found["name"].astype(str).tolist() == work["name"].tolist()
    for column in ("start_ns", "duration_ns", "correlation_id", "stream", "kind"):
        assert found[column].tolist() == work[column].tolist(), column
    is_kernel = work["kernel_id"] > 0
    assert found["queue"][is_kernel].tolist() == work["queue"][is_kernel].tolist()
    assert found["bytes"][~is_kernel].tolist() == work["copy_bytes"][~is_kernel].tolist()
    assert set(found["device"]) <= {device}
    calls = rank.calls.set_index("correlation_id")
    assert found["launch_ns"].tolist() == calls["start_ns"].reindex(work["correlation_id"]).tolist()
    assert found["launch_thread"].tolist() == work["thread_id"].tolist()


def assert_same_host_events(events: pd.DataFrame, rank: RankRun, kind: str, table: pd.DataFrame) -> None:
    found = events[(events["process"] == rank.process_id) & (events["kind"] == kind)]
    columns = ["start_ns", "duration_ns", "name", "thread"]
    expected = table.rename(columns={"thread_id": "thread"}).sort_values(columns)
    found = found.assign(name=found["name"].astype(str)).sort_values(columns)
    for column in columns:
        assert found[column].tolist() == expected[column].tolist(), column


def test_a_handmade_run_comes_back_word_by_word(tmp_path):
    run = small_run(roctx=True)
    paths = writers.write("perfetto", run, tmp_path)
    assert [path.name for path in paths] == ["4200_results.pftrace", "4210_results.pftrace", "modelled.json"]
    profile = read(tmp_path / run.hostname)
    for rank in run.ranks:
        assert_same_device_work(profile.events, rank, rank.agent)
        assert_same_host_events(profile.events, rank, "runtime", rank.calls)
        assert_same_host_events(profile.events, rank, "annotation", rank.annotations)
    assert profile.meta["tool"] == "rocprofv3"
    assert profile.meta["device_numbering"] == "agent"
    assert profile.meta["realtime_offset_ns"] == WALL_CLOCK_OFFSET_NS
    assert profile.meta["commands"][4200] == "python -m cifar_train --max-steps 3 --data-path a b"
    assert profile.meta["warnings"] == []
    assert profile.meta["repairs"] == {}
    assert profile.meta["device_events_without_launch"] == 0


def test_sizes_and_registers_are_arguments_of_the_kernel(tmp_path):
    run = small_run()
    writers.write("perfetto", run, tmp_path, rank=0)
    events = read_perfetto(tmp_path / run.hostname).events
    gemm = events[events["name"].astype(str).str.startswith("Cijk_")].iloc[0]
    # 512 x 4 x 1 work-items, which this tool states as their product.
    assert (gemm["grid"], gemm["block"]) == ("[2048]", "[256]")
    assert (gemm["lds_bytes"], gemm["vgprs"], gemm["accum_vgprs"], gemm["sgprs"]) == (25_600, 128, 64, 96)


def test_copies_within_the_device_and_fills_are_kernels_of_the_runtime(tmp_path):
    run = small_run()
    writers.write("perfetto", run, tmp_path, rank=0)
    events = read_perfetto(tmp_path / run.hostname).events
    # In each of 3 steps one copy from the host, one within the device and one fill; in the end one to the host.
    assert events["kind"].value_counts()[["copy", "fill", "collective"]].tolist() == [3 + 3 + 1, 3, 3]
    names = set(events["name"].astype(str)[events["kind"].isin(["copy", "fill"])])
    assert names == {
        "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST",
        "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned",
    }  # fmt: skip


def test_ranges_are_there_only_if_the_program_makes_them_and_calls_only_if_asked_for(tmp_path):
    run = small_run()
    writers.write("perfetto", run, tmp_path, rank=0, calls=False)
    profile = read_perfetto(tmp_path / run.hostname)
    assert not profile.events["kind"].isin(["annotation", "runtime"]).any()
    assert profile.meta["device_events_without_launch"] == len(run.ranks[0].device_work)


@REPEATED
@given(run=runs())
def test_random_runs_come_back(tmp_path_factory, run: Run):
    folder = tmp_path_factory.mktemp("perfetto")
    writers.write("perfetto", run, folder)
    events = read_perfetto(folder / run.hostname).events
    for rank in run.ranks:
        assert_same_device_work(events, rank, rank.agent)
        assert_same_host_events(events, rank, "runtime", rank.calls)


def test_a_call_and_what_it_launched_share_a_flow(tmp_path):
    """The viewer draws arrows from them."""
    run = small_run()
    path = writers.write("perfetto", run, tmp_path, rank=0)[0]
    begins = [packet.track_event for packet in Trace.FromString(path.read_bytes()).packet]
    begins = [event for event in begins if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    flows = Counter(flow for event in begins for flow in event.flow_ids)
    launching = run.ranks[0].calls["correlation_id"].isin(run.ranks[0].device_work["correlation_id"])
    assert sorted(flows.values()) == [1] * int((~launching).sum()) + [2] * int(launching.sum())


def test_the_same_run_gives_the_same_bytes(tmp_path):
    first = writers.write("perfetto", small_run(), tmp_path / "a", rank=0)[0].read_bytes()
    assert first == writers.write("perfetto", small_run(), tmp_path / "b", rank=0)[0].read_bytes()


def test_the_process_and_the_file_beside_say_that_it_is_modelled(tmp_path):
    run = small_run(seed=7)
    trace, marker = writers.write("perfetto", run, tmp_path, rank=1)
    assert b"modelled, no GPU was measured (kernel time within 20 % of published measurements)" in trace.read_bytes()
    found = json.loads(marker.read_text())["modelled"]
    assert (found["device"], found["seed"], found["error"]) == ("MI300X", 7, run.error)


def test_a_rank_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(UserError, match="no rank 2"):
        writers.write("perfetto", small_run(), tmp_path, rank=2)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (START_NS, None), (-1, "ff" * 9 + "01")],
)
def test_numbers_are_encoded_as_protocol_buffers_say(number, expected):
    """300 = 0b10_0101100 is the example of the format's documentation."""
    encoded = varint(number)
    assert expected is None or encoded.hex() == expected
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded))
    assert value == number % 2**64


def test_names_are_written_in_full(tmp_path):
    path = writers.write("perfetto", small_run(), tmp_path, rank=0)[0]
    assert TEMPLATE_KERNEL.encode() in path.read_bytes()

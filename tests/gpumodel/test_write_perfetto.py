"""Perfetto traces of rocprofv3: what tidyprof and protobuf read is what the run holds."""

from __future__ import annotations

from collections import Counter

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from gpumodel import writers
from gpumodel.writers.perfetto.trace import varint
from tests.gpumodel.handmade import START_NS, TEMPLATE_KERNEL, WALL_CLOCK_OFFSET_NS, small_run
from tidyprof import read, read_perfetto


def test_files_ranges_and_facts_of_the_run(tmp_path):
    run = small_run(roctx=True)
    paths = writers.write("perfetto", run, tmp_path)
    assert [path.name for path in paths] == [
        "4200_results.pftrace",
        "4210_results.pftrace",
        "modelled.json",
    ]
    profile = read(tmp_path / run.hostname)
    ranges = profile.events[profile.events["kind"] == "annotation"]
    assert sorted(ranges["name"]) == sorted(
        [*run.ranks[0].annotations["name"], *run.ranks[1].annotations["name"]]
    )
    assert profile.meta["tool"] == "rocprofv3"
    assert profile.meta["device_numbering"] == "agent"
    assert profile.meta["realtime_offset_ns"] == WALL_CLOCK_OFFSET_NS
    assert profile.meta["commands"][4200] == "python -m cifar_train --max-steps 3 --data-path a b"


def test_sizes_and_registers_are_arguments_of_the_kernel(tmp_path):
    run = small_run()
    writers.write("perfetto", run, tmp_path, rank=0)
    events = read_perfetto(tmp_path / run.hostname).events
    gemm = events[events["name"].astype(str).str.startswith("Cijk_")].iloc[0]
    # 512 x 4 x 1 work-items, which this tool states as their product.
    assert (gemm["grid"], gemm["block"]) == ("[2048]", "[256]")
    assert (gemm["lds_bytes"], gemm["vgprs"], gemm["accum_vgprs"], gemm["sgprs"]) == (
        25_600,
        128,
        64,
        96,
    )


def test_ranges_are_there_only_if_the_program_makes_them_and_calls_only_if_asked_for(tmp_path):
    run = small_run()
    writers.write("perfetto", run, tmp_path, rank=0, calls=False)
    profile = read_perfetto(tmp_path / run.hostname)
    assert not profile.events["kind"].isin(["annotation", "runtime"]).any()
    assert profile.meta["device_events_without_launch"] == len(run.ranks[0].device_work)


def test_a_call_and_what_it_launched_share_a_flow(tmp_path):
    """The viewer draws arrows from them."""
    run = small_run()
    path = writers.write("perfetto", run, tmp_path, rank=0)[0]
    begins = [packet.track_event for packet in Trace.FromString(path.read_bytes()).packet]
    begins = [event for event in begins if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    flows = Counter(flow for event in begins for flow in event.flow_ids)
    launching = (
        run.ranks[0].calls["correlation_id"].isin(run.ranks[0].device_work["correlation_id"])
    )
    assert sorted(flows.values()) == [1] * int((~launching).sum()) + [2] * int(launching.sum())


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

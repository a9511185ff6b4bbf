"""Chrome traces of torch.profiler: what is written is what is read, in the form of real traces."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cifar_train.config import TrainConfig
from gpumodel import ShardedStep, simulate, writers
from gpumodel.play.waits import GATHER, SCATTER
from gpumodel.workload import Training
from tests.gpumodel.handmade import (
    COLLECTIVE_KERNEL,
    GEMM_KERNEL,
    START_NS,
    WALL_CLOCK_OFFSET_NS,
    RankBuilder,
    run_of,
    small_run,
)
from tidyprof import read_torch_trace

REAL_TRACE = "torch-mi300x-resnet-ddp-rank0/resnet_act_checkpoint.json.gz"


def load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def events_of(path: Path, category: str) -> list[dict[str, Any]]:
    return [
        event
        for event in load(path)["traceEvents"]
        if event.get("cat") == category and event["ph"] == "X"
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of both ranks of the small run."""
    target = tmp_path_factory.mktemp("kineto")
    writers.write("kineto", small_run(), target)
    return target


@pytest.fixture
def path(folder: Path) -> Path:
    """The trace of rank 0."""
    return folder / "trace_rank0_of_2.json.gz"


def test_times_count_from_a_quarter_of_a_year(path: Path) -> None:
    trace = load(path)
    # 224 quarters of 7,889,238 s after 1970; the node started 1,767,189,312.123456789 s after it.
    assert trace["baseTimeNanoseconds"] == 224 * 7_889_238 * 10**9
    first = min(event["ts"] for event in events_of(path, "gpu_memcpy"))
    start = START_NS + 12_345 + WALL_CLOCK_OFFSET_NS - trace["baseTimeNanoseconds"]
    assert f'"ts": {start // 1000}.{start % 1000:03d}'.encode() in gzip.decompress(
        path.read_bytes()
    )
    assert first == pytest.approx(start / 1000)


def test_operators_keep_times_threads_and_nesting(folder: Path) -> None:
    events = read_torch_trace(folder, rank=1).events
    found = events[(events["kind"] == "operator")]
    truth = small_run().ranks[1].operators
    truth = truth[~truth["name"].str.startswith("Optimizer.")]
    assert found["name"].tolist() == truth["name"].tolist()
    assert found["thread"].tolist() == truth["thread_id"].tolist()
    assert (found["start_ns"] - WALL_CLOCK_OFFSET_NS).tolist() == truth["start_ns"].tolist()
    assert found["duration_ns"].tolist() == truth["duration_ns"].tolist()


def test_work_is_linked_to_the_operator_that_asked_for_it(folder: Path) -> None:
    events = read_torch_trace(folder, rank=0).device_events
    asked = dict(zip(events["name"], events["operator"], strict=True))
    assert asked[GEMM_KERNEL] == "aten::addmm"
    assert asked["Memset (Device)"] == "aten::fill_"


def test_shapes_are_written_when_asked_for(path: Path, tmp_path: Path) -> None:
    addmm = next(event for event in events_of(path, "cpu_op") if event["name"] == "aten::addmm")
    assert addmm["args"]["Input Dims"] == [[100], [8, 512], [512, 100]]
    assert addmm["args"]["Input type"] == ["float", "float", "float"]
    (path,) = writers.write("kineto", small_run(torch_profile=True), tmp_path)
    assert all("Input Dims" not in event["args"] for event in events_of(path, "cpu_op"))


def test_grids_are_what_the_call_received(path: Path) -> None:
    kernels = {event["name"]: event["args"] for event in events_of(path, "kernel")}
    # 512 x 4 work-items in groups of 256: module launches state work-items, others groups (65,536 /
    # 512 = 128).
    assert kernels[GEMM_KERNEL]["grid"] == [512, 4, 1]
    elementwise = next(arguments for name, arguments in kernels.items() if "vectorized" in name)
    assert (elementwise["grid"], elementwise["block"]) == ([128, 1, 1], [512, 1, 1])


def test_collectives_say_what_they_move(path: Path) -> None:
    arguments = next(
        event["args"] for event in events_of(path, "kernel") if event["name"].startswith("nccl")
    )
    assert arguments["Collective name"] == "allreduce"
    assert arguments["In msg nelems"] == 51_300
    assert (arguments["dtype"], arguments["Group size"]) == ("Float", 2)
    assert arguments["Process Group Ranks"] == "[0, 1]"


def test_what_is_gathered_is_received_whole_and_what_is_scattered_is_sent_whole(
    tmp_path: Path,
) -> None:
    step = ShardedStep(
        layers=1,
        width=256,
        hidden=512,
        key_value=64,
        vocabulary=512,
        tokens=512,
        sequence=256,
        heads=2,
    )
    writers.write("kineto", simulate(step), tmp_path)
    files = sorted(tmp_path.iterdir())
    moved = {
        event["args"]["Collective name"]: event["args"]
        for event in events_of(files[0], "kernel")
        if event["name"].startswith("nccl")
    }
    for kind, whole, share in ((GATHER, "Out", "In"), (SCATTER, "In", "Out")):
        assert moved[kind][f"{whole} msg nelems"] == 8 * moved[kind][f"{share} msg nelems"]
    assert {event["dtype"] for event in moved.values()} == {"BFloat16", "Float"}


def test_work_launched_in_an_annotation_belongs_to_the_operator_around_it(tmp_path: Path) -> None:
    builder = RankBuilder(0, ranks=1)
    shapes = {"input_shapes": ((300,),), "input_types": ("float",)}
    outer = builder.operator("record_param_comms", 1_000, 900, **shapes)
    inner = builder.operator("nccl:all_reduce", 1_100, 700, parent_id=outer, **shapes)
    alone = builder.operator("Optimizer.step#Adam.step", 3_000, 500)
    calls = [builder.call("hipExtLaunchKernel", 1_200, 50, operator=inner)]
    calls += [builder.call("hipLaunchKernel", 3_100, 50, operator=alone)]
    builder.work(
        "collective",
        COLLECTIVE_KERNEL,
        calls[0],
        1_500,
        10,
        operator_id=inner,
        collective="allreduce",
    )
    builder.work("kernel", "update", calls[1], 3_500, 10, operator_id=alone)
    (path,) = writers.write("kineto", run_of(Training(), (builder.finish(),), 5_000), tmp_path)
    (operator,) = events_of(path, "cpu_op")
    reduce, update = (event["args"] for event in events_of(path, "kernel"))
    assert reduce["External id"] == operator["args"]["External id"]
    assert reduce["In msg nelems"] == operator["args"]["In msg nelems"] == 300
    assert "External id" not in update
    bars = [event["name"] for event in events_of(path, "gpu_user_annotation")]
    assert bars == ["nccl:all_reduce", "Optimizer.step#Adam.step"]


def test_every_launch_points_at_its_work(path: Path) -> None:
    flows = defaultdict(list)
    for event in load(path)["traceEvents"]:
        if event.get("cat") == "ac2g":
            flows[event["id"]].append((event["ph"], event["pid"]))
    # 7 pieces of work and one synchronisation in each of 3 steps, and a copy at the end.
    launched = [ends for ends in flows.values() if len(ends) == 2]
    assert len(launched) == 22
    assert all(ends == [("s", 4200), ("f", 2)] for ends in launched)
    assert [ends for ends in flows.values() if len(ends) == 1] == [[("f", 4200)]] * 3


def test_backward_passes_are_linked_to_the_forward_operator(path: Path) -> None:
    links = [event for event in load(path)["traceEvents"] if event.get("cat") == "fwdbwd"]
    by_phase = {phase: [event["tid"] for event in links if event["ph"] == phase] for phase in "sf"}
    assert by_phase == {"s": [4200] * 3, "f": [4205] * 3}


def test_annotations_on_the_device_enclose_the_work_of_their_own(path: Path) -> None:
    bars = [event for event in events_of(path, "gpu_user_annotation") if event["name"] == "forward"]
    # From the product at 130,501 ns to the end of the next kernel at 228,005 ns, and 1 ns more at
    # both ends.
    assert [bar["dur"] for bar in bars] == [97.506] * 3
    assert not [
        event for event in events_of(path, "gpu_user_annotation") if event["name"] == "backward"
    ]


def test_only_the_scheduled_steps_are_recorded(tmp_path: Path) -> None:
    # 3 steps fit 1 of warm-up and 2 recorded ones.
    (path,) = writers.write("kineto", small_run(torch_profile=True), tmp_path)
    assert path.name == "trace_rank0_of_2.json.gz"
    steps = [
        event["name"]
        for event in events_of(path, "user_annotation")
        if event["name"].startswith("Profiler")
    ]
    assert steps == ["ProfilerStep#1", "ProfilerStep#2"]
    assert len(events_of(path, "kernel")) == 2 * 4


def test_all_ranks_are_recorded_when_asked_for(tmp_path: Path) -> None:
    files = writers.write("kineto", small_run(torch_profile=True, profile_all_ranks=True), tmp_path)
    assert [file.name for file in files] == ["trace_rank0_of_2.json.gz", "trace_rank1_of_2.json.gz"]
    only = writers.write("kineto", small_run(torch_profile=True), tmp_path / "other", rank=1)
    assert only == []


def test_every_cycle_gets_a_file(tmp_path: Path) -> None:
    options = {"profile_wait": 0, "profile_warmup": 0, "profile_active": 1, "profile_repeat": 3}
    files = writers.write(
        "kineto", small_run(torch_profile=True, **options), tmp_path, compress=False
    )
    assert [file.name for file in files] == [
        f"trace_rank0_of_2_cycle{cycle}.json" for cycle in (1, 2, 3)
    ]
    assert [len(events_of(file, "gpu_memset")) for file in files] == [1, 1, 1]


def test_work_launched_before_the_window_has_no_operator_and_no_grid(tmp_path: Path) -> None:
    builder = RankBuilder(0, ranks=1)
    builder.annotation("ProfilerStep#0", 1_000, 1_000, 0)
    builder.annotation("ProfilerStep#1", 2_000, 1_000, 1)
    operator = builder.operator("aten::mm", 1_100, 500)
    early = builder.call("hipLaunchKernel", 1_200, 50, operator=operator)
    finished = builder.call("hipLaunchKernel", 1_300, 50, operator=operator)
    size = {
        "grid_x": 64,
        "grid_y": 1,
        "grid_z": 1,
        "workgroup_x": 64,
        "workgroup_y": 1,
        "workgroup_z": 1,
    }
    builder.work("kernel", "before", finished, 1_400, 10, operator_id=operator, **size)
    builder.work("kernel", "late", early, 2_500, 100, operator_id=operator, **size)
    config = TrainConfig(max_steps=2, torch_profile=True, data="synthetic")
    run = run_of(Training(config=config), (builder.finish(),), 5_000)
    (path,) = writers.write("kineto", run, tmp_path)
    (kernel,) = events_of(path, "kernel")
    assert kernel["name"] == "late"
    assert not {"External id", "grid", "block"} & set(kernel["args"])


def test_all_members_are_those_of_a_real_trace(path: Path, recordings: Path) -> None:
    real, ours = load(recordings / REAL_TRACE), load(path)
    known = members_by_category(real)
    for category, members in members_by_category(ours).items():
        assert members <= known[category], category
    optional = {"distributedInfo", "record_shapes", "with_stack"}
    assert set(ours) - optional - {"modelled"} == set(real) - optional
    assert list(ours["deviceProperties"][0]) == list(real["deviceProperties"][0])


def members_by_category(trace: dict[str, Any]) -> dict[str, set[str]]:
    """Members of events and of their arguments; metadata and instants by name."""
    found: dict[str, set[str]] = defaultdict(set)
    for event in trace["traceEvents"]:
        key = event.get("cat") or event["name"]
        found[key] |= set(event) | set(event.get("args", {}))
    return found

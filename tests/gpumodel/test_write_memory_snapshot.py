"""Snapshots of the allocator: torch's own tools read them, and their bytes are those of the
trainer's tensors.
"""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cifar_train.config import TrainConfig
from gpumodel import MatrixProduct, Run, Training, simulate, writers
from gpumodel.play.counters import parameter_bytes
from gpumodel.writers.memory_snapshot import (
    LARGE_SEGMENT,
    LINES,
    ROUNDING,
    SMALL_SEGMENT,
    STATES,
    CachingAllocator,
    OutOfMemoryError,
    frames_of,
)
from tidyprof import memory_blocks, read_memory_snapshot
from tidyprof.errors import UserError

MEBIBYTE = 2**20
STEPS = 3


def played(pathology: str | None = None) -> Run:
    return simulate(
        Training(config=TrainConfig(max_steps=STEPS, data="synthetic", pathology=pathology))
    )


@pytest.fixture(scope="module")
def healthy() -> Run:
    return played()


@pytest.fixture(scope="module")
def path(healthy: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writers.write("memory-snapshot", healthy, tmp_path_factory.mktemp("snapshot"))[0]


def test_torch_reads_the_same_from_it(path: Path) -> None:
    from torch.cuda import _memory_viz

    data = pickle.loads(path.read_bytes())
    blocks = memory_blocks(read_memory_snapshot(path))
    stats = _memory_viz.segsum(data)
    assert f"total_reserved: {_memory_viz.Bytes(int(blocks['bytes'].sum()))}\n" in stats
    taken = int(blocks.query("state == 'active_allocated'")["requested_bytes"].sum())
    assert f"total_allocated: {_memory_viz.Bytes(taken)}\n" in stats
    actions = _memory_viz.trace(data)
    assert actions.count("cudaMalloc(") == blocks["segment"].nunique()
    assert "{'action'" not in actions, "every action is one that torch knows"
    flames = _memory_viz.memory(data, format_flamegraph=str)
    assert "train.py" in flames
    assert "add_local_files(local_files, 'Active Memory Timeline')" in _memory_viz.trace_plot(data)


def test_its_keys_are_those_that_torch_documents(path: Path) -> None:
    data = pickle.loads(path.read_bytes())
    segment, entry = data["segments"][0], data["device_traces"][0][0]
    assert {
        "address",
        "total_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "allocated_size",
    } <= set(segment)
    assert {"size", "requested_size", "address", "state", "frames"} == set(segment["blocks"][0])
    assert {"action", "addr", "size", "stream", "frames", "pool_id", "time_us"} == set(entry)


def test_after_a_step_parameters_states_and_batch_are_left(healthy: Run, path: Path) -> None:
    parameters = parameter_bytes(healthy.steps[0].plan.operators)
    profile = read_memory_snapshot(path)
    blocks = memory_blocks(profile).query("state == 'active_allocated'")
    by_line = blocks.groupby("source_line")["requested_bytes"].sum().to_dict()
    batch = 256 * (3 * 32 * 32 * 4 + 8)
    assert by_line == {
        line(what): size
        for what, size in {
            "model": sum(parameters),
            "optimizer": STATES * sum(parameters),
            "data": batch,
        }.items()
    }
    requested = profile.counters.query("name == 'requested memory'")["value"]
    assert requested.iloc[-1] == sum(by_line.values())
    assert requested.max() > requested.iloc[-1] + sum(
        parameters
    )  # gradients and activations were there meanwhile


def test_each_step_leaves_a_gradient_behind_if_memory_grows(tmp_path: Path, healthy: Run) -> None:
    path = writers.write("memory-snapshot", played("memory-growth"), tmp_path)[0]
    blocks = memory_blocks(read_memory_snapshot(path))
    grown = blocks[blocks["source_line"] == line("growth")]
    assert grown["requested_bytes"].tolist() == STEPS * [
        max(parameter_bytes(healthy.steps[0].plan.operators))
    ]


def line(what: str) -> str:
    ((file, number, function),) = frames_of(what)
    return f"{file}({number}): {function}"


def test_lines_are_those_of_the_trainer() -> None:
    assert all(frames_of(what)[0][1] > 1 for what in LINES)


def test_a_matrix_product_has_no_steps(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="for training runs only"):
        writers.write("memory-snapshot", simulate(MatrixProduct()), tmp_path)


# The allocator


def sizes(snapshot: dict[str, Any], state: str) -> list[int]:
    return [
        block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == state
    ]


@pytest.mark.parametrize(
    ("asked", "block", "segment"),
    [
        (1, ROUNDING, SMALL_SEGMENT),
        (MEBIBYTE, MEBIBYTE, SMALL_SEGMENT),
        (MEBIBYTE + 1, MEBIBYTE + ROUNDING, LARGE_SEGMENT),
        (10 * MEBIBYTE, 10 * MEBIBYTE, 10 * MEBIBYTE),
        (
            15 * MEBIBYTE,
            15 * MEBIBYTE + MEBIBYTE,
            16 * MEBIBYTE,
        ),  # less than 1 MiB more is not split off
    ],
)
def test_sizes_of_blocks_and_segments(asked: int, block: int, segment: int) -> None:
    allocator = CachingAllocator(2**30)
    allocator.allocate(asked)
    snapshot = allocator.snapshot()
    assert sizes(snapshot, "active_allocated") == [block]
    assert [one["total_size"] for one in snapshot["segments"]] == [segment]


def test_free_segments_go_back_before_memory_runs_out() -> None:
    allocator = CachingAllocator(40 * MEBIBYTE)
    allocator.free(allocator.allocate(30 * MEBIBYTE))
    allocator.allocate(32 * MEBIBYTE)
    assert [entry["action"] for entry in allocator.trace].count("segment_free") == 1
    assert allocator.reserved == 32 * MEBIBYTE


def test_two_thirds_free_and_still_out_of_memory() -> None:
    allocator = CachingAllocator(60 * MEBIBYTE)
    addresses = [allocator.allocate(6 * MEBIBYTE + 600 * 1024) for _ in range(9)]
    for address in addresses[::3] + addresses[1::3]:
        allocator.free(address)
    with pytest.raises(OutOfMemoryError, match="can't be had"):
        allocator.allocate(16 * MEBIBYTE)
    assert sum(sizes(allocator.snapshot(), "inactive")) > 2 / 3 * 60 * MEBIBYTE - MEBIBYTE
    assert allocator.trace[-1] | {"frames": []} == {
        "action": "oom",
        "device_free": 0,
        "size": 16 * MEBIBYTE,
        **{"stream": 0, "time_us": 0, "pool_id": (0, 0), "frames": []},
    }


@given(st.lists(st.tuples(st.integers(0, 30 * MEBIBYTE), st.integers(0, 5)), max_size=40))
def test_blocks_add_up_to_segments_and_none_overlap(requests: list[tuple[int, int]]) -> None:
    allocator = CachingAllocator(2**40)
    taken: list[int] = []
    for size, place in requests:
        taken.append(allocator.allocate(size))
        if place < len(taken):
            allocator.free(taken.pop(place))
    for segment in allocator.snapshot()["segments"]:
        blocks = segment["blocks"]
        places = [segment["address"]]
        places += [block["address"] + block["size"] for block in blocks]
        assert [block["address"] for block in blocks] == places[:-1]
        assert places[-1] == segment["address"] + segment["total_size"]
        states = [block["state"] for block in blocks]
        assert not any(pair == ("inactive", "inactive") for pair in pairwise(states))
    assert len(sizes(allocator.snapshot(), "active_allocated")) == len(taken)

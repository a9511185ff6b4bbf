"""Sizes of collectives and what follows from them: by hand, and on recordings against their raw
JSON.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

from tests.tidyprof.chrome_writer import kernel, small_step, write_trace
from tidyprof import collective_bandwidth, read_torch_trace, write_chrome_trace

DDP = "torch-mi300x-resnet-ddp-rank0"
RECORDINGS = (
    f"{DDP}/resnet_act_checkpoint.json.gz",
    "torch-mi300-ddp-4ranks-fused/merged_nccl_only.json.gz",
)
BYTES = {"BFloat16": 2, "Float": 4, "Long": 8}


def collective(
    name: str,
    duration_ns: int,
    sent: object,
    received: object,
    dtype: object,
    ranks: object,
    start: int,
):
    sizes = {"In msg nelems": sent, "Out msg nelems": received, "dtype": dtype, "Group size": ranks}
    return kernel(
        "ncclDevKernel_Generic(int)",
        start,
        duration_ns,
        start,
        **{"Collective name": name},
        **sizes,
    )


def table_of(path: Path, *collectives: tuple) -> pd.DataFrame:
    events = [
        collective(*values, start=1_000_000 * (place + 1))
        for place, values in enumerate(collectives)
    ]
    return collective_bandwidth(
        read_torch_trace(write_trace(path / "trace.json", [*small_step()[:5], *events]))
    )


OPERATIONS = {
    "allreduce": (100, 100, 2 * 3 / 4),
    "_allgather_base": (25, 100, 3 / 4),
    "reduce_scatter_tensor_coalesced": (100, 25, 3 / 4),
    "all_to_allv": (100, 80, 3 / 4),
    "broadcast": (100, 100, 1),
    "_reduce_oop": (100, 100, 1),
    "send": (100, 100, 1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_by_hand(name, tmp_path):
    """100 elements of 2 bytes in 1000 ns and in 500 ns: 200 bytes, 0.2 and 0.4 GB/s."""
    sent, received, factor = OPERATIONS[name]
    ((operation, message, ranks, calls, total, mean, least, algorithm, bus, highest),) = (
        table_of(
            tmp_path, *((name, duration, sent, received, "Half", 4) for duration in (1500, 500))
        )
    ).to_numpy()
    assert (operation, message, ranks, calls, total, mean, least) == (
        name,
        200,
        4,
        2,
        2000,
        1000,
        500,
    )
    assert (algorithm, bus, highest) == pytest.approx((0.2e9, 0.2e9 * factor, 0.4e9 * factor))


@pytest.mark.parametrize(
    ("sent", "received", "dtype", "ranks"),
    [
        (None, 100, "Half", 4),
        (100, "many", "Half", 4),
        (-1, 100, "Half", 4),
        (100, 100, ["Half"], 4),
        (100, 100, "QUInt4x2", 4),
        (2**62, 2**62, "Double", 4),
    ],
)
def test_what_the_file_does_not_say_is_not_known(sent, received, dtype, ranks, tmp_path):
    (row,) = table_of(tmp_path, ("allreduce", 1000, sent, received, dtype, ranks)).itertuples()
    assert row.group_size == 4
    assert all(value is pd.NA for value in (row.message_bytes, row.bus_bytes_per_second))
    assert row.calls == 1


def test_without_a_group_or_of_another_operation_there_is_no_bus(tmp_path):
    table = table_of(
        tmp_path, ("allreduce", 1000, 10, 10, "Float", None), ("barrier", 500, 10, 10, "Float", 8)
    ).set_index("collective")
    assert table["algorithm_bytes_per_second"].tolist() == [40e6, 80e6]
    assert table["bus_bytes_per_second"].isna().all()


def test_a_trace_without_collectives_has_no_rows(tmp_path):
    assert not len(table_of(tmp_path))


def test_sizes_outlast_conversion(tmp_path):
    trace = write_trace(
        tmp_path / "trace.json", [collective("broadcast", 500, 10, 10, "Long", 8, start=7_000)]
    )
    write_chrome_trace(read_torch_trace(trace), tmp_path / "again.json")
    (row,) = collective_bandwidth(read_torch_trace(tmp_path / "again.json")).itertuples()
    assert (row.collective, row.message_bytes, row.group_size) == ("broadcast", 80, 8)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_against_the_raw_file(recordings: Path, recording: str):
    durations = defaultdict(list)
    for event in json.loads(gzip.decompress((recordings / recording).read_bytes()))["traceEvents"]:
        known = event.get("args", {})
        if event.get("cat") == "kernel" and "Collective name" in known:
            assert known["In msg nelems"] == known["Out msg nelems"]
            size = known["In msg nelems"] * BYTES[known["dtype"]]
            durations[known["Collective name"], size, known["Group size"]].append(
                event["dur"] * 1000
            )
    table = collective_bandwidth(read_torch_trace(recordings / recording)).dropna(
        subset="collective"
    )
    assert len(table) == len(durations) > 3
    for row in table.itertuples():
        own = durations[row.collective, row.message_bytes, row.group_size]
        factor = {"allreduce": 2 * (row.group_size - 1) / row.group_size, "broadcast": 1}[
            row.collective
        ]
        assert row.calls == len(own)
        assert row.total_ns == pytest.approx(sum(own))
        bandwidth = row.message_bytes * len(own) / (sum(own) / 1e9)
        assert row.algorithm_bytes_per_second == pytest.approx(bandwidth)
        assert row.bus_bytes_per_second == pytest.approx(bandwidth * factor)
        assert row.highest_bus_bytes_per_second == pytest.approx(
            row.message_bytes * factor / (min(own) / 1e9)
        )


def test_against_a_published_table(recordings: Path):
    """TraceLens's table of the same recording has sizes in MiB and durations in µs."""
    with (recordings / DDP / "reference" / "coll_analysis.csv").open(newline="") as file:
        published = {
            (row["Collective name"], round(float(row["In msg size (MB)_first"]) * 2**20)): row
            for row in csv.DictReader(file)
        }
    table = collective_bandwidth(read_torch_trace(recordings / RECORDINGS[0])).dropna(
        subset="collective"
    )
    assert set(zip(table["collective"], table["message_bytes"], strict=True)) == set(published)
    for row in table.itertuples():
        own = published[row.collective, row.message_bytes]
        assert (row.calls, row.group_size) == (
            int(own["operation_count"]),
            float(own["Group size"]),
        )
        assert row.mean_ns / 1000 == pytest.approx(float(own["dur_mean"]))
        assert row.min_ns / 1000 == pytest.approx(float(own["dur_min"]))


def test_traces_without_sizes(recordings: Path):
    table = collective_bandwidth(read_torch_trace(recordings / "torch-nvidia-hta-2of128-ranks"))
    assert table["calls"].tolist() == [20]
    assert table.drop(columns=["calls", "total_ns", "mean_ns", "min_ns"]).isna().all(axis=None)

"""rpd files: what is written is what is read, in tables and views of schema 3."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gpumodel import writers
from gpumodel.writers.rpd import TRACERS
from tests.gpumodel.handmade import (
    COLLECTIVE_KERNEL,
    GEMM_KERNEL,
    query,
    small_run,
)
from tidyprof import busy, read_rpd
from tidyprof.errors import UserError


def columns_of(path: Path) -> dict[str, list[str]]:
    """Columns of every table and view, in small letters as SQL does not tell them apart."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    names = [
        name
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        )
    ]
    found = {
        name: [row[1].lower() for row in connection.execute(f'PRAGMA table_info("{name}")')]
        for name in names
        if not name.startswith("sqlite_")
    }
    connection.close()
    return found


def test_a_file_is_in_schema_3(tmp_path: Path) -> None:
    (path,) = writers.write("rpd", small_run(), tmp_path)
    columns = columns_of(path)
    assert columns["top"] == ["name", "totalcalls", "totalduration_us", "ave_us", "percentage"]
    assert columns["api"][5:7] == ["domain", "category"]
    assert "ktop" not in columns
    assert read_rpd(path).meta["schema_version"] == 3


def test_views_agree_with_what_the_reader_works_out(tmp_path: Path) -> None:
    (path,) = writers.write("rpd", small_run(), tmp_path)
    profile = read_rpd(path)
    by_name = profile.device_events.groupby("name", observed=True)["duration_ns"].agg(
        ["size", "sum"]
    )
    top = {
        (name, calls, total // 1000, total // calls / 1000)
        for name, calls, total in by_name.itertuples()
    }
    assert top == {row[:4] for row in query(path, "SELECT * FROM top")}
    starts = profile.device_events["start_ns"]
    wall = (starts + profile.device_events["duration_ns"]).max() - starts.min()
    own = [(row.device, row.sum_ns, wall) for row in busy(profile).itertuples()]
    assert own == [row[:3] for row in query(path, "SELECT * FROM busy")]


def test_views_hold_numbers_worked_out_by_hand(tmp_path: Path) -> None:
    (path,) = writers.write("rpd", small_run(), tmp_path, rank=0)
    # 3 all-reduces of 110,027 ns on the GPU
    totals = "SELECT TotalCalls, TotalDuration_us, Ave_us FROM top"
    assert query(path, f"{totals} WHERE Name = '{COLLECTIVE_KERNEL}'") == [(3, 330, 110.027)]
    launched = query(
        path,
        f"SELECT gridX, gridY, workgroupX, stream FROM kernel WHERE kernelName = '{GEMM_KERNEL}'",
    )
    assert launched == [(512, 4, 256, "0x0")] * 3
    assert query(
        path, "SELECT apiName, size, kind FROM copy WHERE pid = 4200 ORDER BY start LIMIT 2"
    ) == [
        ("hipMemcpyWithStream", 98_304, 1),
        ("hipMemcpyWithStream", 205_200, 3),
    ]


@pytest.mark.parametrize("tracer", TRACERS)
def test_gpus_count_from_0(tracer: str, tmp_path: Path) -> None:
    run = small_run()
    (path,) = writers.write("rpd", run, tmp_path, rank=1, tracer=tracer)
    found = query(path, "SELECT DISTINCT gpuId FROM op WHERE opType = 'KernelExecution'")
    assert found == [(run.ranks[1].device,)]
    assert read_rpd(path).meta["device_numbering"] == "index"


def test_large_copies_have_no_size(tmp_path: Path) -> None:
    run = small_run()
    run.ranks[0].device_work.loc[0, "copy_bytes"] = 2**31
    (path,) = writers.write("rpd", run, tmp_path, rank=0)
    assert query(path, "SELECT size FROM copy ORDER BY start LIMIT 1") == [("",)]


def test_a_tracer_on_the_sdk_tells_kernels_and_copies_apart_as_the_hardware_does(
    tmp_path: Path,
) -> None:
    (old,) = writers.write("rpd", small_run(), tmp_path, rank=1, name="old.rpd")
    (new,) = writers.write(
        "rpd", small_run(), tmp_path, rank=1, name="new.rpd", tracer="rocprofiler-sdk"
    )
    count = "SELECT count(*) FROM op WHERE opType "
    # Three of seven copies are within the device: the runtime does them by a kernel of its own.
    assert query(old, count + "LIKE 'Copy%'") == [(7,)]
    assert query(new, count + "LIKE 'Copy%'") == [(0,)]
    assert (
        query(new, count + "<> 'KernelExecution'")
        == query(new, "SELECT count(*) FROM copyop")
        == [(4,)]
    )
    assert query(new, "SELECT DISTINCT opType, gpuId FROM op ORDER BY 1") == [
        ("KernelExecution", 1),
        ("MEMORY_COPY_DEVICE_TO_HOST", 0),
        ("MEMORY_COPY_HOST_TO_DEVICE", 0),
    ]
    assert query(
        new, "SELECT count(*) FROM kernel WHERE kernelName = '__amd_rocclr_copyBuffer'"
    ) == [(3,)]
    assert query(new, "SELECT count(*) FROM op") == query(old, "SELECT count(*) FROM op")
    grid = f"SELECT DISTINCT gridX FROM kernel WHERE kernelName = '{GEMM_KERNEL}'"
    assert (query(old, grid), query(new, grid)) == ([(512,)], [(512,)])


def test_a_file_of_either_tracer_gives_the_same_device_time(tmp_path: Path) -> None:
    times = []
    for tracer in ("roctracer", "rocprofiler-sdk"):
        (path,) = writers.write(
            "rpd", small_run(), tmp_path, rank=0, name=f"{tracer}.rpd", tracer=tracer
        )
        times.append(read_rpd(path).device_events["duration_ns"].sum())
    assert times[0] == times[1] > 0


def test_ranks_share_a_file_or_have_their_own(tmp_path: Path) -> None:
    (common,) = writers.write("rpd", small_run(), tmp_path, name="all.rpd")
    assert read_rpd(common).meta["processes"] == [4200, 4210]
    for rank in (0, 1):
        writers.write("rpd", small_run(), tmp_path / "own", rank=rank, name=f"rank{rank}.rpd")
    assert read_rpd(tmp_path / "own").meta["ranks"] == [0, 1]


def test_clocks_come_back(tmp_path: Path) -> None:
    (path,) = writers.write("rpd", small_run(), tmp_path, rank=0)
    assert read_rpd(path).counters["value"].tolist() == [2_100.0, 2_099.0, 2_098.0]


def test_an_unknown_tracer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="not built on 'cupti'; there are roctracer and rocprofiler-sdk"
    ):
        writers.write("rpd", small_run(), tmp_path, tracer="cupti")

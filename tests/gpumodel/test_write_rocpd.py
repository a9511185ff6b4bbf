"""rocpd databases: what is written is what is read, and the database's own views agree."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from gpumodel import writers
from tests.gpumodel.handmade import (
    COLLECTIVE_KERNEL,
    GEMM_KERNEL,
    query,
    small_run,
)
from tidyprof import read_rocpd


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 0 of the small run, with ranges."""
    (path,) = writers.write(
        "rocpd", small_run(roctx=True), tmp_path_factory.mktemp("rocpd"), rank=0
    )
    return path


def test_ranks_are_told_by_the_environment(tmp_path: Path) -> None:
    files = writers.write("rocpd", small_run(), tmp_path, prefix="p%pid%")
    assert [file.name for file in files] == ["p4200_results.db", "p4210_results.db"]
    assert read_rocpd(tmp_path).meta["ranks"] == [0, 1]
    ((environment,),) = query(files[1], "SELECT environment FROM rocpd_info_process")
    assert json.loads(environment) == {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}


def test_tables_end_in_the_identifier_and_have_views_without_it(database: Path) -> None:
    metadata = dict(query(database, "SELECT tag, value FROM rocpd_metadata"))
    assert metadata["schema_version"] == "3"
    assert metadata["uuid"] == "_" + metadata["guid"].replace("-", "_")
    names = {
        name for (name,) in query(database, "SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    tables = {name.removesuffix(metadata["uuid"]) for name in names - {"sqlite_sequence"}}
    assert all(f"{table}{metadata['uuid']}" in names for table in tables)
    assert len(tables) == 20
    views = {
        name for (name,) in query(database, "SELECT name FROM sqlite_master WHERE type = 'view'")
    }
    assert tables < views
    assert {"kernels", "memory_copies", "regions", "top_kernels", "busy"} < views


def test_numbers_are_those_of_the_system_and_of_the_tool(database: Path) -> None:
    """As rocprofv3 of ROCm 7 writes them."""
    assert query(database, "SELECT id, pid FROM rocpd_info_process") == [(4200, 4200)]
    assert {
        number == thread
        for number, thread in query(database, "SELECT id, tid FROM rocpd_info_thread")
    } == {True}
    agents = query(database, "SELECT id, absolute_index, type FROM rocpd_info_agent ORDER BY id")
    assert agents[:3] == [(0, 0, "CPU"), (1, 1, "CPU"), (2, 2, "GPU")]
    assert query(database, "SELECT id, name FROM rocpd_info_stream")[0] == (0, "Default Stream")
    assert query(database, "SELECT id, name FROM rocpd_info_queue")[:2] == [
        (0, "Default Queue"),
        (1, "Queue 0"),
    ]
    dispatches = query(
        database, "SELECT id, dispatch_id, pid, tid, agent_id FROM rocpd_kernel_dispatch"
    )
    assert {row[0] == row[1] for row in dispatches} == {True}
    assert {row[2] for row in dispatches} == {4200}
    assert {row[4] for row in dispatches} == {2}
    for view in ("kernels", "memory_copies"):
        assert query(database, f"SELECT DISTINCT stack_id = parent_stack_id FROM {view}") == [(1,)]
    copies = query(database, "SELECT DISTINCT queue_id, queue_name, region_name FROM memory_copies")
    assert copies == [(None, None, None)]
    stacks = (
        "SELECT count(*), sum(R.id = E.stack_id) FROM rocpd_region R JOIN rocpd_event E ON E.id ="
        " R.event_id"
    )
    ((regions, same),) = query(database, stacks)
    assert regions == same > 0


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO rocpd_region(nid, pid, tid, start, name_id) VALUES (1, 1, 1, 1, 1)",
        "INSERT INTO rocpd_info_agent(nid, pid, type) VALUES (1, 1, 'DSP')",
        "INSERT INTO rocpd_info_node(hash) VALUES (1)",
    ],
)
def test_a_row_that_the_tools_schema_refuses_is_refused(database: Path, statement: str) -> None:
    ((suffix,),) = query(database, "SELECT value FROM rocpd_metadata WHERE tag = 'uuid'")
    with pytest.raises(sqlite3.IntegrityError, match=r"(NOT NULL|CHECK) constraint failed"):
        query(database, statement.replace("(", f"{suffix}(", 1))


def test_references_and_structure_are_sound(database: Path) -> None:
    assert query(database, "PRAGMA foreign_key_check") == []
    assert query(database, "PRAGMA integrity_check") == [("ok",)]


def test_every_view_can_be_queried(database: Path) -> None:
    views = [
        name for (name,) in query(database, "SELECT name FROM sqlite_master WHERE type = 'view'")
    ]
    empty = {view for view in views if query(database, f'SELECT COUNT(*) FROM "{view}"') == [(0,)]}
    assert {view for view in empty if not view.startswith("rocpd_")} == {
        "region_args",
        "samples",
        "sample_regions",
        "memory_allocations",
        "scratch_memory",
        "events_args",
        "stream_args",
        "pmc_info",
        "pmc_events",
        "counters_collection",
    }


def test_the_view_of_kernels_has_the_documented_columns(database: Path) -> None:
    columns = " ".join(row[1] for row in query(database, "PRAGMA table_info(kernels)"))
    assert (
        columns == "id guid tid category region name nid pid agent_abs_index agent_log_index"
        " agent_type_index agent_type code_object_id kernel_id dispatch_id stream_id queue_id"
        " queue stream start end duration grid_x grid_y grid_z workgroup_x workgroup_y"
        " workgroup_z lds_size scratch_size vgpr_count accum_vgpr_count sgpr_count"
        " static_lds_size static_scratch_size stack_id parent_stack_id corr_id"
    )
    chosen = "pid, tid, agent_abs_index, agent_type_index, name"
    first = query(database, f"SELECT {chosen} FROM kernels ORDER BY start LIMIT 1")
    assert first == [(4200, 4200, 2, 0, GEMM_KERNEL)]


def test_summaries_are_in_microseconds_and_count_the_runtimes_kernels(database: Path) -> None:
    top = {row[0]: row[1:] for row in query(database, "SELECT * FROM top_kernels")}
    # 3 all-reduces of 110,027 ns of 429,276 ns in kernels.
    assert top[COLLECTIVE_KERNEL][:3] == pytest.approx((3, 330.081, 110.027))
    assert top[COLLECTIVE_KERNEL][3] == pytest.approx(100 * 330_081 / 429_276)
    assert top["__amd_rocclr_copyBuffer"][0] == 3
    busy = {kind: (time, wall) for _, kind, time, wall, _ in query(database, "SELECT * FROM busy")}
    # Kernels and 3 copies of 6,789 ns on the GPU; from the first copy (12,345) to the end of the
    # last (3,010,020).
    assert busy["GPU"] == (429_276 + 3 * 6_789, 3_010_020 - 12_345)


def test_only_what_is_asked_for_is_recorded(tmp_path: Path) -> None:
    (path,) = writers.write("rocpd", small_run(roctx=True), tmp_path, rank=0, traces=["kernel"])
    assert query(path, "SELECT COUNT(*) FROM kernels") == [(18,)]
    for view in ("regions", "memory_copies"):
        assert query(path, f"SELECT COUNT(*) FROM {view}") == [(0,)]

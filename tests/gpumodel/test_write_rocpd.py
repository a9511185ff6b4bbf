"""rocpd databases: what is written is what is read, and the database's own views agree."""

from __future__ import annotations

import json
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
    (path,) = writers.write("rocpd", small_run(roctx=True), tmp_path_factory.mktemp("rocpd"), rank=0)
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
    names = {name for (name,) in query(database, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    tables = {name.removesuffix(metadata["uuid"]) for name in names - {"sqlite_sequence"}}
    assert all(f"{table}{metadata['uuid']}" in names for table in tables)
    assert len(tables) == 20
    views = {name for (name,) in query(database, "SELECT name FROM sqlite_master WHERE type = 'view'")}
    assert tables < views
    assert {"kernels", "memory_copies", "regions", "top_kernels", "busy"} < views


def test_references_and_structure_are_sound(database: Path) -> None:
    assert query(database, "PRAGMA foreign_key_check") == []
    assert query(database, "PRAGMA integrity_check") == [("ok",)]


def test_every_view_can_be_queried(database: Path) -> None:
    views = [name for (name,) in query(database, "SELECT name FROM sqlite_master WHERE type = 'view'")]
    empty = {view for view in views if query(database, f'SELECT COUNT(*) FROM "{view}"') == [(0,)]}
    assert {view for view in empty if not view.startswith("rocpd_")} == {
        "region_args", "samples", "sample_regions", "memory_allocations", "scratch_memory", "events_args",
        "stream_args", "pmc_info", "pmc_events", "counters_collection",
    }  # fmt: skip


def test_the_view_of_kernels_has_the_documented_columns(database: Path) -> None:
    columns = " ".join(row[1] for row in query(database, "PRAGMA table_info(kernels)"))
    assert columns == (
        "id guid tid category region name nid pid agent_abs_index agent_log_index agent_type_index agent_type "
        "code_object_id kernel_id dispatch_id stream_id queue_id queue stream start end duration grid_x grid_y grid_z "
        "workgroup_x workgroup_y workgroup_z lds_size scratch_size vgpr_count accum_vgpr_count sgpr_count "
        "static_lds_size static_scratch_size stack_id parent_stack_id corr_id"
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
    # Kernels and 3 copies of 6,789 ns on the GPU; from the first copy (12,345) to the end of the last (3,010,020).
    assert busy["GPU"] == (429_276 + 3 * 6_789, 3_010_020 - 12_345)


def test_only_what_is_asked_for_is_recorded(tmp_path: Path) -> None:
    (path,) = writers.write("rocpd", small_run(roctx=True), tmp_path, rank=0, traces=["kernel"])
    assert query(path, "SELECT COUNT(*) FROM kernels") == [(18,)]
    for view in ("regions", "memory_copies"):
        assert query(path, f"SELECT COUNT(*) FROM {view}") == [(0,)]

"""The rocpd reader against databases written in the documented schema (no file of the real tool is
public here).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof import ProfileReadError
from tidyprof.analyses import launches
from tidyprof.readers.rocpd.reader import read_rocpd
from tidyprof_tests.damage import refusal
from tidyprof_tests.rocpd_writer import (
    CPU_AGENT,
    GPU_AGENTS,
    GUID,
    START_NS,
    RocpdWriter,
    small_database,
)

OTHER_GUID = "0000ddb5-8903-7903-b269-cd8d3745bb8b"


def after_start(times: pd.Series) -> list:
    return [time if pd.isna(time) else time - START_NS for time in times]


def test_a_small_database(tmp_path):
    profile = read_rocpd(small_database(tmp_path / "4242_results.db"))
    device = profile.device_events
    assert device["name"].tolist() == [
        "MEMORY_COPY_HOST_TO_DEVICE",
        "gemm<float>",
        "relu",
        "MEMORY_COPY_DEVICE_TO_HOST",
    ]
    assert device["kind"].tolist() == ["copy", "kernel", "kernel", "copy"]
    assert device["device"].tolist() == [0, 0, 1, 1]
    assert after_start(device["start_ns"]) == [10_000, 20_000, 60_000, 70_000]
    assert device["duration_ns"].tolist() == [4_000, 30_000, 5_000, 2_000]
    assert after_start(device["launch_ns"]) == [5_000, 15_000, 55_000, 65_000]
    assert device["launch_thread"].tolist() == [4242, 4242, 4300, 4242]
    assert device["bytes"].tolist() == [1_000_000, pd.NA, pd.NA, 512]
    assert device["stream"].tolist() == [0, 0, 3, 0]
    assert device["queue"].tolist() == [pd.NA, 1, 1, pd.NA]
    assert device["source_category"].tolist() == [
        "MEMORY_COPY",
        "KERNEL_DISPATCH",
        "KERNEL_DISPATCH",
        "MEMORY_COPY",
    ]
    assert device["source_device"].tolist() == [pd.NA, pd.NA, pd.NA, 1]
    assert device["destination_device"].tolist() == [0, pd.NA, pd.NA, pd.NA]
    kernel = device[device["kind"] == "kernel"]
    assert kernel["grid"].tolist() == ["[2560, 3, 1]"] * 2
    assert kernel["block"].tolist() == ["[256, 1, 1]"] * 2
    for column, value in {
        "lds_bytes": 2048,
        "scratch_bytes": 16,
        "vgprs": 64,
        "accum_vgprs": 4,
        "sgprs": 112,
    }.items():
        assert kernel[column].tolist() == [value] * 2


def test_host_events_of_a_small_database(tmp_path):
    events = read_rocpd(small_database(tmp_path / "4242_results.db")).events
    host = events[events["device"].isna()]
    assert host["name"].tolist() == [
        "step 1",
        "begin",
        "ALLOC",
        "hipMemcpyAsync",
        "hipLaunchKernel",
        "hipLaunchKernel",
        "hipMemcpyAsync",
    ]
    assert host["kind"].tolist() == ["annotation", "sample", *["runtime"] * 5]
    assert host["process"].tolist() == [4242] * 7
    assert host["thread"].tolist() == [4242, 4242, 4242, 4242, 4242, 4300, 4242]
    assert host["correlation_id"].tolist() == [1, 2, pd.NA, 3, 4, 5, 6]
    assert host["memory_device"].tolist() == [pd.NA, pd.NA, 0, *[pd.NA] * 4]
    assert host["bytes"].tolist() == [pd.NA, pd.NA, 65_536, *[pd.NA] * 4]


def test_identifiers_of_rows_are_no_numbers_of_the_operating_system(tmp_path):
    """The writer gives processes the row 1 and threads rows of a million more than their number."""
    events = read_rocpd(small_database(tmp_path / "x.db", pid=77)).events
    assert set(events["process"].dropna()) == {77}
    assert set(events["thread"].dropna()) == {4242, 4300}


def test_counters_are_added_up_over_the_instances_of_a_block(tmp_path):
    counters = read_rocpd(small_database(tmp_path / "x.db")).counters
    columns = ["name", "value", "device", "kernel", "duration_ns", "correlation_id"]
    assert counters[columns].to_numpy().tolist() == [
        ["SQ_WAVES", 128.0, 0, "gemm<float>", 30_000, 4]
    ]
    assert after_start(counters["time_ns"]) == [20_000]
    assert counters["unit"].isna().all()


def test_counters_sampled_over_time(tmp_path):
    """rocprofiler-systems attaches the values of the GPU's sensors to samples."""
    writer = RocpdWriter(tmp_path / "x.db")
    track = writer.insert("track", name_id=writer.string("device_busy_gfx"), pid=1)
    for time, value in ((1_000, 25.0), (2_000, 75.0)):
        event = writer.event("amd_smi", 0)
        writer.insert("sample", track_id=track, timestamp=START_NS + time, event_id=event)
        writer.counter("device_busy_gfx", event, [value], units="%", agent=GPU_AGENTS[1])
    writer.kernel("a", 10_000, 1_000)
    profile = read_rocpd(writer.close())
    assert after_start(profile.counters["time_ns"]) == [1_000, 2_000]
    assert profile.counters[["device", "name", "value", "unit"]].to_numpy().tolist() == [
        [1, "device_busy_gfx", 25.0, "%"],
        [1, "device_busy_gfx", 75.0, "%"],
    ]
    assert profile.counters["kernel"].isna().all()
    assert "sample" not in set(profile.events["kind"])


def test_periodic_samples_of_hardware_counters_are_not_added_to_a_dispatch(tmp_path):
    """Schema 3.0.3 marks them with a sample_id."""
    writer = RocpdWriter(
        tmp_path / "x.db", version="3.0.3", extra_columns={"pmc_event": "sample_id"}
    )
    writer.counter("SQ_WAVES", writer.kernel("a", 10_000, 1_000), [5.0])
    writer.execute(
        "INSERT INTO {pmc_event} (event_id, pmc_id, value, sample_id) SELECT event_id, pmc_id, 99,"
        " 1 FROM {pmc_event}"
    )
    assert read_rocpd(writer.close()).counters["value"].tolist() == [5.0]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("HIP_RUNTIME_API", "runtime"),
        ("HIP_COMPILER_API_EXT", "runtime"),
        ("HSA_CORE_API", "runtime"),
        ("RCCL_API", "runtime"),
        ("KFD_PAGE_FAULT", "runtime"),
        ("rocm_hip_api", "runtime"),
        ("MARKER_CORE_API", "annotation"),
        ("rocm_marker_api", "annotation"),
        ("python", "annotation"),
        ("user", "annotation"),
    ],
)
def test_kinds_of_categories(tmp_path, category, kind):
    writer = RocpdWriter(tmp_path / "x.db")
    writer.call("f", 1_000, 10, category=category)
    assert read_rocpd(writer.close()).events["kind"].tolist() == [kind]


def test_a_copy_between_gpus_is_on_its_target(tmp_path):
    writer = RocpdWriter(tmp_path / "x.db")
    writer.copy("DEVICE_TO_DEVICE", 10_000, 1_000, 64, GPU_AGENTS[0], GPU_AGENTS[1])
    writer.copy("HOST_TO_HOST", 20_000, 1_000, 64, CPU_AGENT, CPU_AGENT)
    assert read_rocpd(writer.close()).device_events["device"].tolist() == [1, pd.NA]


# Several processes


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"PMI_RANK": "1"}, 1),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, 5),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, pd.NA),
        ({"RANK": "first"}, pd.NA),
        ({}, pd.NA),
    ],
)
def test_the_environment_states_the_rank(tmp_path, environment, rank):
    profile = read_rocpd(small_database(tmp_path / "x.db", environment=environment))
    assert profile.events["rank"].unique().tolist() == [rank]
    assert profile.counters["rank"].unique().tolist() == [rank]


def job(folder: Path, ranks: int = 2) -> Path:
    """What rocprofv3 writes for a job on one node: OUT/HOST/PID_results.db."""
    (folder / "node17").mkdir(parents=True)
    for rank in range(ranks):
        small_database(
            folder / "node17" / f"{4000 + rank}_results.db",
            guid=GUID[:-1] + str(rank),
            pid=4000 + rank,
            environment={"RANK": str(rank), "WORLD_SIZE": str(ranks)},
        )
    return folder


def test_a_folder_with_a_database_per_process(tmp_path):
    profile = tidyprof.read(job(tmp_path / "out"))
    assert profile.meta["ranks"] == [0, 1]
    assert profile.meta["processes"] == [4000, 4001]
    assert profile.events.groupby("rank").size().tolist() == [11, 11]
    assert len(profile.meta["files"]) == 2
    assert profile.meta["gpu"] == "AMD Instinct MI300X"
    assert read_rocpd(tmp_path / "out", rank=1).meta["rank"] == 1
    with pytest.raises(ProfileReadError, match="no rank 9, only 0, 1"):
        read_rocpd(tmp_path / "out", rank=9)


def test_two_gpu_processes_must_state_their_ranks(tmp_path):
    small_database(tmp_path / "1_results.db")
    small_database(tmp_path / "2_results.db", guid=OTHER_GUID)
    with pytest.raises(ProfileReadError, match=r"2 .* rank"):
        read_rocpd(tmp_path)


def test_a_copy_of_a_database_is_not_counted_twice(tmp_path):
    path = small_database(tmp_path / "rank0_results.db")
    (tmp_path / "rank1_results.db").write_bytes(path.read_bytes())
    with pytest.raises(ProfileReadError, match="2 times"):
        read_rocpd(tmp_path)


def test_two_processes_in_one_database(tmp_path):
    """A merged database has the tables of each process, with their own suffix."""
    path = small_database(tmp_path / "a.db", environment={"RANK": "0"}, views=False)
    other = small_database(
        tmp_path / "b.db", guid=OTHER_GUID, pid=99, environment={"RANK": "1"}, views=False
    )
    connection = sqlite3.connect(path)
    connection.execute("ATTACH ? AS other", (str(other),))
    for name, sql in connection.execute(
        "SELECT name, sql FROM other.sqlite_master WHERE type = 'table'"
    ).fetchall():
        connection.execute(sql)
        connection.execute(f'INSERT INTO main."{name}" SELECT * FROM other."{name}"')
    connection.commit()
    connection.close()
    profile = read_rocpd(path)
    assert profile.meta["ranks"] == [0, 1]
    assert profile.meta["processes"] == [99, 4242]
    assert profile.meta["files"] == [str(path)]
    assert len(profile.events) == 22


# Bad input


def changed(*statements: str) -> Callable[[Path], None]:
    """The small database after some SQL, in which {table} stands for a full name."""

    def write(path: Path) -> None:
        small_database(path)
        writer = object.__new__(RocpdWriter)
        writer.suffix = f"_{GUID.replace('-', '_')}"
        writer.connection = sqlite3.connect(path)
        for statement in statements:
            writer.execute(statement)
        writer.connection.commit()
        writer.connection.close()

    return write


def half(path: Path) -> None:
    data = small_database(path).read_bytes()
    path.write_bytes(data[: len(data) // 2])


BAD_FILES = {
    "CSV": lambda path: path.write_text('"Kind","Agent_Id"\n'),
    "half a file": half,
    "nothing recorded": lambda path: RocpdWriter(path).close(),
    "schema 4": changed("UPDATE {metadata} SET value = '4.1.0' WHERE tag = 'schema_version'"),
    "no version": changed("DELETE FROM {metadata}"),
    "a table misspelt": (
        changed(
            "DROP VIEW kernels",
            "DROP VIEW rocpd_region",
            "ALTER TABLE {region} RENAME TO {regions}",
        )
    ),
    "a column misspelt": (
        changed(
            "DROP VIEW kernels", "ALTER TABLE {kernel_dispatch} RENAME COLUMN agent_id TO agents_id"
        )
    ),
    "views without tables": (
        changed(
            "DROP VIEW kernels",
            "DROP VIEW rocpd_kernel_dispatch",
            "DROP TABLE {kernel_dispatch}",
            "CREATE VIEW rocpd_kernel_dispatch AS SELECT 1",
        )
    ),
    "times as fractions": changed("UPDATE {kernel_dispatch} SET start = start + 0.5"),
    "times in microseconds": changed(
        "UPDATE {kernel_dispatch} SET start = start / 1000.0, end = end / 1000.0"
    ),
    "kernels without a name": changed("DELETE FROM {info_kernel_symbol}"),
    "dispatches twice": (
        changed(
            "DROP VIEW kernels",
            "DROP VIEW rocpd_kernel_dispatch",
            "CREATE TABLE copy AS SELECT * FROM {kernel_dispatch}",
            "DROP TABLE {kernel_dispatch}",
            "ALTER TABLE copy RENAME TO {kernel_dispatch}",
            "INSERT INTO {kernel_dispatch} SELECT * FROM {kernel_dispatch}",
        )
    ),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_files(tmp_path, what):
    write = BAD_FILES[what]
    path = tmp_path / "x_results.db"
    write(path)
    refusal(path, read_rocpd)


def test_values_of_the_wrong_sort_are_missing_not_invented(tmp_path):
    path = tmp_path / "x.db"
    changed(
        "UPDATE {kernel_dispatch} SET queue_id = 'one', grid_size_x = 2.5, stream_id = NULL,"
        " agent_id = 77",
        "UPDATE {memory_copy} SET size = 1e300",
        "UPDATE {info_agent} SET product_name = NULL",
        "UPDATE {pmc_event} SET value = 'many' WHERE id = 2",
        "UPDATE {info_process} SET environment = '[1, 2'",
    )(path)
    profile = read_rocpd(path)
    kernel = profile.events[profile.events["kind"] == "kernel"]
    for column in ("queue", "stream", "grid", "device"):
        assert kernel[column].isna().all()
    assert profile.events["bytes"].dropna().tolist() == [65_536]
    assert profile.counters["value"].tolist() == [100.0]
    assert "gpu" not in profile.meta


_FIRST_KERNEL = "event_id = (SELECT min(event_id) FROM {kernel_dispatch})"
LOSSES = {
    "a kernel": (
        f"DELETE FROM {{kernel_dispatch}} WHERE {_FIRST_KERNEL}",
        "event",
        "belong to no dispatch",
        "1 of 11",
    ),
    "a copy": (
        "DELETE FROM {memory_copy} WHERE id = 1",
        "event",
        "belong to no dispatch",
        "1 of 11",
    ),
    "a call": ("DELETE FROM {region} WHERE id = 1", "event", "belong to no dispatch", "1 of 11"),
    "a sample": ("DELETE FROM {sample}", "event", "belong to no dispatch", "1 of 11"),
    "events of calls": (
        "DELETE FROM {event} WHERE id = 1",
        "region",
        "missing events",
        "1 of 5",
    ),
    "a GPU": (
        "DELETE FROM {info_agent} WHERE id = 5",
        "kernel_dispatch",
        "missing agents",
        "1 of 2",
    ),
    "a GPU of copies": (
        "DELETE FROM {info_agent} WHERE id = 5",
        "memory_copy",
        "missing agents",
        "1 of 2",
    ),
    "a thread": (
        "DELETE FROM {info_thread} WHERE tid = 4300",
        "region",
        "missing threads",
        "1 of 5",
    ),
    "the process": (
        "DELETE FROM {info_process}",
        "region",
        "missing processes",
        "5 of 5",
    ),
    "a counter": (
        "DELETE FROM {info_pmc}",
        "pmc_event",
        "missing counters",
        "2 of 2",
    ),
    "a category": (
        "DELETE FROM {string} WHERE string = 'HIP_RUNTIME_API_EXT'",
        "event",
        "missing strings",
        "4 of 11",
    ),
}


@pytest.mark.parametrize("what", LOSSES)
def test_rows_that_name_what_is_gone_are_told_first(tmp_path, what):
    path = tmp_path / "x.db"
    assert not read_rocpd(small_database(path)).meta["warnings"]
    path.unlink()
    statement, table, expected, count = LOSSES[what]
    changed(statement)(path)
    warning = read_rocpd(path).meta["warnings"][0]
    assert any(
        found.startswith(f"{count} rows of rocpd_{table}_") and expected in found
        for found in lost_parts(warning)
    )


def lost_parts(warning: str) -> list[str]:
    return warning.partition(": ")[2].split("; ")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DELETE FROM {event}", "rows of rocpd_kernel_dispatch"),
        ("UPDATE {event} SET id = id + 1000", "belong to no dispatch, copy, call or other record"),
    ],
)
def test_a_database_without_nearly_all_events_that_it_names_is_refused(
    tmp_path, statement, expected
):
    path = tmp_path / "x.db"
    changed(statement)(path)
    refusal(path, read_rocpd)


@pytest.mark.parametrize(
    ("table", "column", "name"),
    [
        ("event", "category_id", "source_category"),
        ("event", "stack_id", "correlation_id"),
        ("kernel_dispatch", "queue_id", "queue"),
    ],
)
@pytest.mark.parametrize("sort", ["BLOB", "REAL"])
def test_identifiers_that_are_no_whole_numbers_are_told(tmp_path, table, column, name, sort):
    path = tmp_path / "x.db"
    changed(
        "DROP VIEW kernels",
        f"ALTER TABLE {{{table}}} DROP COLUMN {column}" if sort == "REAL" else "SELECT 1",
        (
            f"ALTER TABLE {{{table}}} ADD COLUMN {column} REAL DEFAULT 1.5"
            if sort == "REAL"
            else "SELECT 1"
        ),
        f"UPDATE {{{table}}} SET {column} = CAST(coalesce({column}, 1) AS {sort})",
    )(path)
    warnings = read_rocpd(path).meta["warnings"]
    assert any(f"2 values for the column {name} aren't" in warning for warning in warnings)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b<int>", "ncclKernel"]),
            st.integers(6_000, 10**6),
            st.integers(1, 10**5),
            st.booleans(),
        ),
        min_size=1,
        unique_by=lambda row: row[1],  # what is there twice is damage to the reader
    )
)
def test_any_kernels(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "any.db"
    path.unlink(missing_ok=True)
    writer = RocpdWriter(path)
    for stream, (name, start, duration, second) in enumerate(rows, 1):
        writer.kernel(name, start, duration, gpu=int(second), stream=stream)
    profile = read_rocpd(writer.close())
    device = profile.device_events
    found = zip(
        device["name"],
        after_start(device["start_ns"]),
        device["duration_ns"],
        device["device"],
        strict=True,
    )
    assert Counter(found) == Counter(
        (name, start, duration, int(second)) for name, start, duration, second in rows
    )
    assert launches(profile)["delay_ns"].tolist() == [5_000] * len(rows)

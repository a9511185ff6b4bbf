"""Workload folders that are none, or damaged: one line that says what was found, never another
exception.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof import Profile, ProfileReadError, analyses
from tidyprof.analyses.roofline import roofline_ceilings, roofline_points
from tidyprof.analyses.speed_of_light import speed_of_light
from tidyprof.readers.rocprof_compute.reader import read_rocprof_compute
from tidyprof_tests.compute_writer import (
    SYSINFO,
    long_rows,
    two_kernels,
    wide_rows,
    write_csv,
    write_folder,
)
from tidyprof_tests.damage import fuzzed, mutations, one_line, refusal, text_mutations

WIDE = wide_rows(two_kernels())
LONG = long_rows(two_kernels())


def text_of(rows: list[dict], tmp_path: Path) -> bytes:
    return write_csv(tmp_path / "text.csv", rows).read_bytes()


def changed(rows: list[dict], place: int, **cells: object) -> list[dict]:
    return [row | cells if number == place else row for number, row in enumerate(rows)]


BAD_ROWS = {
    "no dispatch number": [{k: v for k, v in row.items() if k != "Dispatch_ID"} for row in WIDE],
    "no kernel name": [{k: v for k, v in row.items() if k != "Kernel_Name"} for row in WIDE],
    "another tool's columns": [{"Kind": "K", "Agent_Id": 1}],
    "an empty number": changed(WIDE, 1, Dispatch_ID=""),
    "an empty name": changed(LONG, 1, Kernel_Name=""),
    "a text for a number": changed(WIDE, 1, Dispatch_ID="two"),
    "a text for a time": changed(WIDE, 0, Start_Timestamp="soon"),
    "a time beyond time": changed(LONG, 0, End_Timestamp="9" * 19),
    "an infinite time": changed(WIDE, 0, End_Timestamp="inf"),
    "a text for a counter": changed(WIDE, 0, SQ_WAVES="many"),
    "the same dispatch twice": [*WIDE, WIDE[0]],
    "the same counter twice": [*LONG, LONG[0]],
    "times that are missing": changed(WIDE, 0, Start_Timestamp=""),
    "infinite counters": changed(WIDE, 0, SQ_WAVES="inf"),
    "counters that are NaN": changed(LONG, 0, Counter_Value="nan"),
    "counters without a value": changed(LONG, 0, Counter_Value=""),
    "counters without a name": changed(LONG, 0, Counter_Name=""),
    "negative counters": changed(LONG, 2, Counter_Value=-1),
    "huge counters": changed(WIDE, 0, SQ_WAVES="1e999"),
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_bad_rows(tmp_path, what):
    rows = BAD_ROWS[what]
    folder = write_folder(tmp_path / "workload", rows)
    refusal(folder, read_rocprof_compute)


BAD_TEXT = {
    "empty": lambda text: b"",
    "only spaces": lambda text: b" \n \n",
    "only the header": lambda text: text.partition(b"\n")[0] + b"\n",
    "cut within a row": lambda text: text[:-20],
    "cut within a number": lambda text: text[:-1],
    "a row too short": lambda text: text + b"1,2\n",
    "a row too long": lambda text: text + text.splitlines()[-1] + b",5\n",
    "an open quote": lambda text: text + b'"' + text,
    "a header twice": lambda text: text.replace(b"Grid_Size", b"SGPR", 1),
    "binary": lambda text: bytes(range(256)) * 10 + b"\n",
    "JSON": lambda text: b'{"traceEvents": []}\n',
    "a damaged gzip": lambda text: gzip.compress(text)[:-9],
}


@pytest.mark.parametrize("rows", [WIDE, LONG], ids=["wide", "long"])
@pytest.mark.parametrize("what", BAD_TEXT)
def test_bad_text(tmp_path, what, rows):
    change = BAD_TEXT[what]
    folder = write_folder(tmp_path / "workload", rows)
    (folder / "pmc_perf.csv").write_bytes(change(text_of(rows, tmp_path)))
    with pytest.raises(ProfileReadError) as caught:
        read_rocprof_compute(folder)
    one_line(caught.value, folder)


SMALL_FILES = {
    "two machines": ("sysinfo.csv", b"gpu_arch\ngfx942\ngfx942\n"),
    "no machine": ("sysinfo.csv", b"gpu_arch\n"),
    "an empty machine": ("sysinfo.csv", b""),
    "a machine half written": ("sysinfo.csv", b"gpu_arch,cu_per_gpu\ngfx942,30"),
    "a machine cut off": ("sysinfo.csv", b"gpu_arch,cu_per_gpu\ngfx942\n"),
    "ceilings in words": ("roofline.csv", b"device,HBMBw\n0,much\n"),
    "negative ceilings": ("roofline.csv", b"device,HBMBw\n0,-5\n"),
    "no ceilings": ("roofline.csv", b"device,HBMBw\n"),
    "an open quote": ("2.1_Speed-of-Light.csv", b'Metric,Avg\n"VALU,5\n'),
    "a bad table of dispatches": ("pmc_dispatch_info.csv", b"a,b\n1\n"),
}


@pytest.mark.parametrize("what", SMALL_FILES)
def test_bad_small_files(tmp_path, what):
    name, content = SMALL_FILES[what]
    folder = write_folder(tmp_path, WIDE)
    (folder / name).write_bytes(content)
    with pytest.raises(ProfileReadError) as caught:
        read_rocprof_compute(folder)
    one_line(caught.value, folder / name)


# Databases


@pytest.fixture
def database(recordings, tmp_path) -> Path:
    (source,) = (recordings / "rocprof-compute-db-mi350-montecarlo").glob("*.db")
    return Path(shutil.copy(source, tmp_path / "analysis.db"))


SQL = {
    "no dispatches": "DELETE FROM compute_dispatch",
    "no workload": "DELETE FROM compute_workload",
    "no kernels": "DELETE FROM compute_kernel WHERE kernel_uuid = 4",
    "no such table": "DROP TABLE compute_dispatch",
    "another schema": "ALTER TABLE compute_kernel RENAME COLUMN kernel_name TO title",
    "text for a time": "UPDATE compute_dispatch SET start_timestamp = 'soon'",
    "negative durations": "UPDATE compute_dispatch SET end_timestamp = 5",
    "a repeated dispatch": "UPDATE compute_dispatch SET dispatch_id = 1",
    "damaged JSON": "UPDATE compute_workload SET sys_info_extdata = '{\"a\"'",
    "a list for a machine": "UPDATE compute_workload SET sys_info_extdata = '[1]'",
}


@pytest.mark.parametrize("what", SQL)
def test_bad_databases(database, what):
    statement = SQL[what]
    with sqlite3.connect(database) as connection:
        connection.execute("DROP VIEW IF EXISTS compute_kernel_view")
        connection.execute("DROP VIEW IF EXISTS compute_kernel_metric_view")
        connection.execute(statement)
    connection.close()
    with pytest.raises(ProfileReadError) as caught:
        read_rocprof_compute(database)
    one_line(caught.value, database)


def test_metrics_that_only_seem_to_be_absent_are_told(database):
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute(
            "ALTER TABLE compute_kernel_metric_value RENAME TO compute_kernel_metric_vaIue"
        )
    connection.close()
    (told,) = (
        warning
        for warning in read_rocprof_compute(database).meta["warnings"]
        if "content was left out" in warning
    )
    assert "the table compute_kernel_metric_value (" in told
    assert "'compute_kernel_metric_vaIue'" in told


def test_a_database_without_metrics_still_has_its_dispatches(database):
    with sqlite3.connect(database) as connection:
        for view in ("compute_kernel_metric_view", "compute_workload_metric_view"):
            connection.execute(f"DROP VIEW {view}")
        for table in ("compute_kernel_metric_value", "compute_kernel_roofline_data"):
            connection.execute(f"DROP TABLE {table}")
    connection.close()
    profile = read_rocprof_compute(database)
    assert not [
        warning for warning in profile.meta["warnings"] if "content was left out" in warning
    ]
    assert len(profile.events) == 10
    assert len(profile.counters) == 0


# Fuzzing


def assert_reads_or_refuses(path: Path, read=read_rocprof_compute) -> Profile | None:
    try:
        profile = read(path)
    except ProfileReadError as error:
        one_line(error, path)
        return None
    assert (profile.events["duration_ns"] > 0).all()
    return profile


def damaged_folder(
    folder: Path, changes: list[Callable[[bytes], bytes]], name: str, rows: list[dict]
) -> Path:
    """A folder with every file that the reader looks at, one of them changed."""
    write_folder(folder, rows, SYSINFO)
    (folder / "roofline.csv").write_text(
        "device,HBMBw,L2Bw,L1Bw,FP32Flops,MFMAF16Flops\n0,4168,25768,33417,129010,925525\n"
    )
    write_csv(folder / "timestamps.csv", WIDE)
    extra = [
        row | {"SQ_LEVEL_WAVES": 1, "SQ_ACCUM_PREV_HIRES": 5, "GRBM_GUI_ACTIVE": 9} for row in WIDE
    ]
    write_csv(folder / "SQ_LEVEL_WAVES.csv", extra)
    data = (folder / name).read_bytes()
    for change in changes:
        data = change(data)
    (folder / name).write_bytes(data)
    return folder


several_changes = st.lists(text_mutations(1500), min_size=1, max_size=4)
FILES = ["pmc_perf.csv", "sysinfo.csv", "roofline.csv", "timestamps.csv", "SQ_LEVEL_WAVES.csv"]


@fuzzed(50)
@given(
    several_changes,
    st.sampled_from(FILES),
    st.sampled_from([WIDE, LONG, wide_rows(two_kernels(), times=False)]),
)
def test_a_damaged_folder_reads_or_refuses(tmp_path_factory, changes, name, rows):
    assert_reads_or_refuses(
        damaged_folder(tmp_path_factory.getbasetemp() / "fuzz", changes, name, rows)
    )


@settings(max_examples=40)
@given(several_changes, st.sampled_from(FILES[:3]), st.sampled_from([WIDE, LONG]))
def test_analyses_of_a_damaged_folder_answer_or_refuse(tmp_path_factory, changes, name, rows):
    profile = assert_reads_or_refuses(
        damaged_folder(tmp_path_factory.getbasetemp() / "fuzz", changes, name, rows)
    )
    if profile is not None:
        for analysis in (analyses.kernels, speed_of_light, roofline_points, roofline_ceilings):
            with contextlib.suppress(ValueError):
                analysis(profile)


@fuzzed(20)
@given(
    st.lists(mutations(1_712_128), min_size=1, max_size=3),
    st.sampled_from([read_rocprof_compute, tidyprof.read]),
)
def test_a_damaged_database_reads_or_refuses(tmp_path_factory, recordings, changes, read):
    (source,) = (recordings / "rocprof-compute-db-mi350-montecarlo").glob("*.db")
    data = source.read_bytes()
    for change in changes:
        data = change(data)
    path = tmp_path_factory.getbasetemp() / "fuzz.db"
    path.write_bytes(data)
    assert_reads_or_refuses(path, read)


@fuzzed(20)
@given(st.lists(text_mutations(38_000), min_size=1, max_size=4))
def test_a_damaged_recording_reads_or_refuses(tmp_path_factory, recordings, changes):
    data = (recordings / "rocprof-compute-mi308x-montecarlo" / "pmc_perf.csv").read_bytes()
    for change in changes:
        data = change(data)
    path = tmp_path_factory.getbasetemp() / "fuzz_recorded" / "pmc_perf.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    assert_reads_or_refuses(path)

"""`read` picks a reader by content: no file may be without a claimant, and none have two."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

from tests.tidyprof.compute_writer import Dispatch, long_rows, wide_rows, write_csv
from tidyprof.io.byte_stream import ByteStream
from tidyprof.io.errors import ProfileReadError
from tidyprof.readers import registry as reading
from tidyprof.readers.registry import HEAD_BYTES, read, readers


def claimants(path):
    """The names of the readers that recognise a path."""
    try:
        head = b"" if path.is_dir() else ByteStream(path).head(HEAD_BYTES)
    except ProfileReadError:
        return []
    return [reader.name for reader in readers() if reader.recognises(path, head)]


def test_no_file_of_the_recordings_is_claimed_twice(recordings):
    claimed = {path: claimants(path) for path in sorted(recordings.rglob("*")) if path.is_file()}
    assert {path: names for path, names in claimed.items() if len(names) > 1} == {}


@pytest.mark.parametrize("imported_first", ["perfetto", "rocprof_sys"])
def test_of_several_formats_in_a_folder_the_one_that_says_most_is_read(recordings, imported_first):
    """In whatever order the readers were imported."""
    folder = recordings / "rocprof-sys-cpu" / "rocprofsys-python-output"
    code = (
        f"import tidyprof.readers.{imported_first}.reader, tidyprof\n"
        f"assert 'tables' in tidyprof.read({str(folder)!r}).meta"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_recording_has_a_reader(recordings):
    entries = json.loads((recordings / "manifest.json").read_text())
    files = {
        entry["name"]: [file["path"] for file in entry["files"] if file["role"] == "recording"] for entry in entries
    }
    assert [name for name, paths in files.items() if not any(claimants(recordings / path) for path in paths)] == []


def test_counter_tables_of_rocprof_compute_are_not_taken_for_rocprofv3(tmp_path):
    dispatches = [Dispatch(1, "copy", 0, 5, {"SQ_WAVES": 1})]
    for name, rows in (("wide.csv", wide_rows(dispatches)), ("long.csv", long_rows(dispatches))):
        assert claimants(write_csv(tmp_path / name, rows)) == ["rocprof-compute (workload folder or analysis database)"]


def test_single_runs_of_rocprof_compute_in_a_folder_are_not_taken_for_rocprofv3(tmp_path):
    write_csv(tmp_path / "pmc_perf_0.csv", long_rows([Dispatch(1, "copy", 0, 5, {"SQ_WAVES": 1})]))
    assert claimants(tmp_path) == ["rocprof-compute (workload folder or analysis database)"]


def test_of_a_folder_with_one_recording_that_one_is_read(recordings):
    database = recordings / "rocprof-compute-db-mi350-montecarlo" / "rocprof_compute_23ed6f36.db"
    profile = read(database.parent)
    assert profile.meta["files"] == [str(database)]
    pd.testing.assert_frame_equal(profile.events, read(database).events)


def test_one_recording_among_too_many_entries_to_look_at_is_not_read(recordings, tmp_path):
    database = recordings / "rocprof-compute-db-mi350-montecarlo" / "rocprof_compute_23ed6f36.db"
    (tmp_path / "a.db").symlink_to(database)
    assert len(read(tmp_path).events)
    for number in range(100):
        (tmp_path / f"{number}.txt").write_text("nothing")
    with pytest.raises(ProfileReadError, match="none of the first 64 known"):
        read(tmp_path)
    (tmp_path / "0.db").symlink_to(database)
    with pytest.raises(ProfileReadError, match="holds a recording among 102 entries"):
        read(tmp_path)


def test_the_error_about_a_folder_names_the_recordings_in_it(recordings):
    folder = recordings / "rocprofv1-mi210-torch-add"
    with pytest.raises(ProfileReadError, match=r"holds 2 recordings \('HIP_trace', 'HSA_trace'\)") as caught:
        read(folder)
    assert caught.value.next_step == f"pass one of them, such as {folder / 'HIP_trace'}"
    for name in ("HIP_trace", "HSA_trace"):
        read(folder / name)


def test_a_huge_unknown_folder_is_not_searched_to_its_end(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(reading, "_is_recording", lambda path, known: tried.append(path))
    for number in range(1000):
        (tmp_path / f"{number}.txt").write_text("nothing")
    with pytest.raises(ProfileReadError, match=r"1000 entries .* none of the first 64 known"):
        read(tmp_path)
    assert len(tried) == 64


def test_what_may_not_be_looked_into_is_no_recording(tmp_path, monkeypatch):
    def refuse(path, head):
        if path != tmp_path:
            raise PermissionError(13, "Permission denied")
        return False

    (tmp_path / "another").mkdir()
    monkeypatch.setattr(reading, "readers", lambda: (reading.Reader("strict", refuse, read),))
    with pytest.raises(ProfileReadError, match=r"1 entry \('another'\), none of them known"):
        read(tmp_path)

"""`read` picks a reader by content: none may be without a claimant, and none have two."""

from __future__ import annotations

import json

from tests.tidyprof.compute_writer import Dispatch, long_rows, wide_rows, write_csv
from tidyprof._byte_stream import ByteStream
from tidyprof.errors import ProfileReadError
from tidyprof.reading import HEAD_BYTES, readers


def claimants(path):
    """The names of the readers that recognise a path."""
    try:
        head = b"" if path.is_dir() else ByteStream(path).head(HEAD_BYTES)
    except ProfileReadError:
        return []
    return [reader.name for reader in readers() if reader.recognises(path, head)]


def test_no_file_or_folder_of_the_recordings_is_claimed_twice(recordings):
    claimed = {path: claimants(path) for path in sorted(recordings.rglob("*"))}
    assert {path: names for path, names in claimed.items() if len(names) > 1} == {}


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

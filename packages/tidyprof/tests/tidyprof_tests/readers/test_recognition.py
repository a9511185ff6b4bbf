"""`read` picks a reader by content: no file may be without a claimant, and none have two."""

from __future__ import annotations

import pandas as pd
import pytest

import tidyprof.readers
from tidyprof.analyses import kernels
from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream
from tidyprof.readers import registry as reading
from tidyprof.readers.registry import FORMATS, read
from tidyprof_tests.compute_writer import Dispatch, long_rows, write_csv


def claimants(path):
    """The names of the readers that recognize a path."""
    try:
        head = b"" if path.is_dir() else ByteStream(path).head(HEAD_BYTES)
    except ProfileReadError:
        return []
    return [reader.name for reader in FORMATS if reader.recognizes(path, head)]


def test_no_file_of_the_recordings_is_claimed_twice(recordings):
    claimed = {
        path: claimants(path) for path in sorted(recordings.whole().rglob("*")) if path.is_file()
    }
    assert {path: names for path, names in claimed.items() if len(names) > 1} == {}


def test_of_several_formats_in_a_folder_the_one_that_says_most_is_read(recordings):
    assert "tables" in read(recordings / "rocprof-sys-cpu" / "rocprofsys-python-output").meta


READER_OF_A_MADE_UP_FORMAT = """\
import numpy as np

from tidyprof.tables.codes import Codes
from tidyprof.tables.damage import without_damage
from tidyprof.tables.codes import KIND_CODE
from tidyprof.tables.profiles import Part, profile_of
from tidyprof.tables.records import Records


def read_ticks(path, *, origin=None):
    texts, rows = Codes(), [line.rsplit(maxsplit=2) for line in path.read_text().splitlines()[1:]]
    records = Records(
        {
            "name": texts.of(name for name, _, _ in rows),
            "start_ns": np.array([int(start) for _, start, _ in rows]),
            "duration_ns": np.array([int(duration) for _, _, duration in rows]),
            "kind": np.full(len(rows), KIND_CODE["kernel"], np.int8),
        }
    )
    without_damage(path, records)
    return profile_of([Part(path, records, facts={"tool": "ticks"})], texts, origin=origin)
"""


def test_a_new_format_is_one_folder_and_one_line(tmp_path, monkeypatch):
    """As CONTRIBUTING says: what is not there has nothing to do with it."""
    folder = tmp_path / "readers" / "ticks"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "recognition.py").write_text(
        "def recognizes(path, head):\n    return head.startswith(b'ticks 1\\n')\n"
    )
    (folder / "reader.py").write_text(READER_OF_A_MADE_UP_FORMAT)
    monkeypatch.setattr(
        tidyprof.readers, "__path__", [*tidyprof.readers.__path__, str(folder.parent)]
    )
    monkeypatch.setattr(
        reading, "FORMATS", (*FORMATS, reading.Format("made-up ticks", "ticks", "read_ticks"))
    )
    (tmp_path / "a.ticks").write_text("ticks 1\nvoid gemm<float>(int) 2000 50\nrelu 1000 10\n")
    profile = read(tmp_path / "a.ticks")
    assert profile.events["name"].tolist() == ["relu", "void gemm<float>(int)"]
    assert profile.events["short_name"].tolist() == ["relu", "gemm fp32"]
    assert (profile.meta["tool"], kernels(profile)["total_ns"].tolist()) == ("ticks", [50, 10])
    (tmp_path / "lost.ticks").write_text("ticks 1\nrelu 0 10\n")
    with pytest.raises(
        ProfileReadError, match=r"1 of 1 device events are unusable \(1 at time zero\)"
    ):
        read(tmp_path / "lost.ticks")


def test_every_recording_has_a_reader(recordings, manifest):
    files = {
        name: [file["path"] for file in entry["files"] if file["role"] == "recording"]
        for name, entry in manifest.items()
    }
    assert [
        name
        for name, paths in files.items()
        if not any(claimants(recordings / path) for path in paths)
    ] == []


def test_single_runs_of_rocprof_compute_in_a_folder_are_not_taken_for_rocprofv3(tmp_path):
    write_csv(tmp_path / "pmc_perf_0.csv", long_rows([Dispatch(1, "copy", 0, 5, {"SQ_WAVES": 1})]))
    assert claimants(tmp_path) == []
    assert read(tmp_path).meta["tool"] == "rocprof-compute"


def test_of_a_folder_with_one_recording_that_one_is_read(recordings):
    database = recordings / "rocprof-compute-db-mi350-montecarlo" / "rocprof_compute_23ed6f36.db"
    profile = read(database.parent)
    assert profile.meta["files"] == [str(database)]
    pd.testing.assert_frame_equal(profile.events, read(database).events)

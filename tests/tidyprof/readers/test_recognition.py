"""`read` picks a reader by content: no file may be without a claimant, and none have two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import tidyprof.readers
from gpumodel import writers
from tests.gpumodel.handmade import small_run
from tests.tidyprof.compute_writer import Dispatch, long_rows, wide_rows, write_csv
from tidyprof.analyses import kernels
from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream
from tidyprof.readers import registry as reading
from tidyprof.readers.registry import FORMATS, read


def claimants(path):
    """The names of the readers that recognise a path."""
    try:
        head = b"" if path.is_dir() else ByteStream(path).head(HEAD_BYTES)
    except ProfileReadError:
        return []
    return [reader.name for reader in FORMATS if reader.recognises(path, head)]


def test_no_file_of_the_recordings_is_claimed_twice(recordings):
    claimed = {
        path: claimants(path) for path in sorted(recordings.whole().rglob("*")) if path.is_file()
    }
    assert {path: names for path, names in claimed.items() if len(names) > 1} == {}


def test_of_several_formats_in_a_folder_the_one_that_says_most_is_read(recordings):
    assert "tables" in read(recordings / "rocprof-sys-cpu" / "rocprofsys-python-output").meta


FORMATS_IN_FOLDERS = (
    "kineto",
    "rocprofv3-csv",
    "rocprofv3-json",
    "rocpd",
    "rpd",
    "perfetto",
    "rocprof-sys",
)


@pytest.mark.parametrize("name", FORMATS_IN_FOLDERS)
def test_what_is_being_written_into_a_folder_is_not_read(name, tmp_path):
    files = writers.write(name, small_run(), tmp_path)
    events = len(read(tmp_path).events)
    assert events
    for place in {tmp_path, *(file.parent for file in files)}:
        (place / ".unfinished-1").mkdir()
        for file in files:
            (place / ".unfinished-1" / file.name).write_bytes(file.read_bytes()[:-1])
    assert len(read(tmp_path).events) == events


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
        "def recognises(path, head):\n    return head.startswith(b'ticks 1\\n')\n"
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


def test_counter_tables_of_rocprof_compute_are_not_taken_for_rocprofv3(tmp_path):
    dispatches = [Dispatch(1, "copy", 0, 5, {"SQ_WAVES": 1})]
    for name, rows in (("wide.csv", wide_rows(dispatches)), ("long.csv", long_rows(dispatches))):
        assert claimants(write_csv(tmp_path / name, rows)) == [
            "rocprof-compute (workload folder or analysis database)"
        ]


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
    with pytest.raises(
        ProfileReadError, match=r"holds 2 recordings \('HIP_trace', 'HSA_trace'\)"
    ) as caught:
        read(folder)
    assert caught.value.next_step == f"pass one of them, such as {folder / 'HIP_trace'}"
    for name in ("HIP_trace", "HSA_trace"):
        read(folder / name)


def test_a_folder_of_all_kinds_is_told_what_lies_in_it(recordings, tmp_path):
    for name in (
        "rocprof-compute-mi200-vcopy",
        "rocprof-compute-mi300x-vcopy",
        "torch-mi210-gpu-only",
    ):
        (tmp_path / name).symlink_to(recordings / name)
    with pytest.raises(
        ProfileReadError, match=r"holds 3 recordings \('rocprof-compute-mi200-vcopy', "
    ) as caught:
        read(tmp_path)
    kinds = "2 of rocprof-compute, 1 of torch.profiler"
    assert caught.value.cause == f"each file or folder in it is a recording of its own: {kinds}"


def test_a_huge_unknown_folder_is_not_searched_to_its_end(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(reading, "_format_of", lambda path: tried.append(path))
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
    monkeypatch.setattr(reading, "FORMATS", (SimpleNamespace(name="strict", recognises=refuse),))
    with pytest.raises(ProfileReadError, match=r"1 entry \('another'\), none of them known"):
        read(tmp_path)


def thread_trace(folder: Path) -> list[Path]:
    """What `rocprofv3 --att` leaves: a table, a folder of the viewer, and code objects; and the
    folder of all.
    """
    place = folder / "att"
    viewer = place / "ui_output_agent_43452_dispatch_1"
    viewer.mkdir(parents=True)
    table = place / "stats_ui_output_agent_43452_dispatch_1.csv"
    header = '"CodeObj","Vaddr","Instruction","Hitcount","Latency","Stall","Idle","Source"'
    table.write_text(f'{header}\n2,8960,"s_nop",4,9,5,0,""\n')
    (viewer / "code.json").write_text('{"code": [["s_nop", 0, 1, "", 2, 8960, 4, 9, 5, 0]]}')
    (viewer / "filenames.json").write_text("{}")
    (place / "28_gfx942_code_object_id_2.out").write_bytes(b"\x7fELF\x02")
    (place / "28_shader_engine_0_1.att").write_bytes(b"\x01\x02")
    renamed = folder / "kept.csv"
    renamed.write_text(table.read_text())
    return [place, viewer, renamed, *place.glob("*.*"), *viewer.iterdir()]


def test_a_thread_trace_is_named_with_what_opens_it(tmp_path):
    for path in thread_trace(tmp_path):
        with pytest.raises(
            ProfileReadError, match=r"a thread trace of rocprofv3 --att.*ROCprof Compute Viewer"
        ):
            read(path)


def test_recognition_needs_neither_numpy_nor_an_engine():
    """Each is asked about every file, those of many ranks too."""
    modules = [f"tidyprof.readers.{known.folder}.recognition" for known in FORMATS]
    heavy = (
        "numpy",
        "pandas",
        "pyarrow",
        "msgspec",
        "sqlite3",
        "adbc_driver_sqlite",
        "google.protobuf",
        "perfetto",
    )
    code = (
        f"import sys, {', '.join(modules)}; print([name for name in {heavy} if name in"
        " sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

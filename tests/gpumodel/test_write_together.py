"""Any run in every format with device events: what is written is what is read, and the tools'
definitions differ.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings

from gpumodel import writers
from gpumodel.run import Run
from tests.gpumodel.handmade import WALL_CLOCK_OFFSET_NS, query, runs, small_run
from tests.tidyprof.contract_run import FORMATS
from tidyprof import Profile, read
from tidyprof.errors import UserError

SEES_RANGES = ("rocprofv3-csv", "rocprofv3-json", "rocpd", "rpd", "perfetto")
SEES_RUNTIME_KERNELS = ("rocprofv3-csv", "rocprofv3-json", "rocpd", "perfetto", "rocprof-sys")


def written(name: str, run: Run, folder: Path) -> Profile:
    """The run as it comes back from a format."""
    files = writers.write(name, run, folder)
    return read(files[0] if name == "rpd" else files[0].parent)


def true_work(run: Run) -> pd.DataFrame:
    """What a reader must find on the devices, in order of process and launch."""
    tables = []
    for rank in run.ranks:
        work = rank.device_work
        begin = work["correlation_id"].map(rank.calls.set_index("correlation_id")["start_ns"])
        place = {"process": rank.process_id, "agent": rank.agent, "index": rank.device}
        tables.append(work.assign(**place, launch_ns=begin).sort_values("launch_ns"))
    return pd.concat(tables, ignore_index=True)


def assert_same_work(name: str, run: Run, folder: Path) -> None:
    profile, true = written(name, run, folder), true_work(run)
    found = profile.device_events.sort_values(["process", "launch_ns"], ignore_index=True)
    base = WALL_CLOCK_OFFSET_NS if name == "kineto" else 0
    for column in ("start_ns", "launch_ns"):
        assert (found[column] - base).tolist() == true[column].tolist(), column
    for column in ("duration_ns", "process", "kind"):
        assert found[column].tolist() == true[column].tolist(), column
    kernels = true["kind"].isin(["kernel", "collective"])
    assert found["name"][kernels].tolist() == true["name"][kernels].tolist()
    # rpd has no place for the stream of a fill.
    streams = kernels if name == "rpd" else true["kind"] != ""
    assert found["stream"][streams].tolist() == true["stream"][streams].tolist()
    # In rocprof-sys copies tell the number of the agent, kernels that of the GPU.
    devices = kernels if name == "rocprof-sys" else true["kind"] != ""
    # Ranks of rocprof-sys that differ say nothing.
    numbering = profile.meta.get("device_numbering", "index")
    assert found["device"][devices].tolist() == true[numbering][devices].tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_the_handmade_run_comes_back_to_the_nanosecond(tmp_path: Path, name: str) -> None:
    assert_same_work(name, small_run(), tmp_path)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=6)
@given(run=runs())
def test_any_run_comes_back_to_the_nanosecond(name: str, run: Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_same_work(name, run, Path(folder))


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    """The small run as it comes back from each format."""
    folder = tmp_path_factory.mktemp("formats")
    return {name: written(name, small_run(), folder / name) for name in FORMATS}


@pytest.mark.parametrize("name", SEES_RUNTIME_KERNELS)
def test_copies_within_the_device_and_fills_are_kernels_of_the_runtime(
    profiles: dict[str, Profile], name: str
) -> None:
    events = profiles[name].device_events
    assert set(events["name"][events["kind"].isin(["copy", "fill"])]) == {
        "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST",
        "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned",
    }  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_run_gives_the_same_bytes_and_replaces_what_is_there(
    tmp_path: Path, name: str
) -> None:
    contents = []
    for place in ("first", "other", "first"):
        files = writers.write(name, small_run(), tmp_path / place)
        contents.append(
            {file.relative_to(tmp_path / place): _content(file, tmp_path / place) for file in files}
        )
    assert contents[0] == contents[1] == contents[2]


def _content(path: Path, folder: Path) -> bytes:
    """The bytes of a file; its own path, which some state, is taken out."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).replace(
        str(folder).encode(), b""
    )


@pytest.mark.parametrize("name", SEES_RANGES)
def test_ranges_of_roctx_are_the_phases_if_the_trainer_marks_them(
    tmp_path: Path, name: str
) -> None:
    events = written(name, small_run(roctx=True), tmp_path / "marked").events
    for rank, ranges in events[events["kind"] == "annotation"].groupby("rank"):
        assert ranges["name"].tolist() == ["data", "forward", "loss", "backward", "optimizer"] * 3
        assert ranges["duration_ns"].tolist()[:5] == [90_001, 200_005, 20_009, 400_013, 250_019]
        if name.startswith("rocprofv3"):
            assert not set(ranges["correlation_id"]) & set(
                small_run().ranks[rank].calls["correlation_id"]
            )
    assert "annotation" not in set(written(name, small_run(), tmp_path / "unmarked").events["kind"])


def marks(files: list[Path]) -> list[dict[str, Any]]:
    """What the files say of who computed them: inside, where their format has a place for it, or
    beside.
    """
    found = []
    for path in files:
        if path.suffix in (".db", ".rpd"):
            found.append(
                json.loads(dict(query(path, "SELECT tag, value FROM rocpd_metadata"))["modelled"])
            )
        elif path.name.endswith(("_results.json", ".json.gz")):
            trace = json.loads(
                gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            )
            found.append(
                trace.get("modelled") or trace["rocprofiler-sdk-tool"][0]["metadata"]["modelled"]
            )
        elif path.name.endswith("modelled.json"):
            found.append(json.loads(path.read_text(encoding="utf-8"))["modelled"])
        elif path.suffix in (".pftrace", ".proto"):
            assert b"modelled, no GPU was measured (kernel time within 20 %" in path.read_bytes()
    return found


@pytest.mark.parametrize("name", writers.formats())
def test_files_say_that_they_are_modelled(tmp_path: Path, name: str) -> None:
    found = marks(writers.write(name, small_run(seed=3), tmp_path))
    assert found
    for mark in found:
        assert (mark["by"], mark["device"], mark["seed"]) == ("gpumodel", "MI300X", 3)
        assert mark["error"] == "kernel time within 20 % of published measurements"


@pytest.mark.parametrize("name", writers.formats())
def test_a_rank_that_there_is_not_is_refused_and_leaves_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="no rank 7"):
        writers.write(name, small_run(), tmp_path, rank=7)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["rocprofv3-csv", "rocprofv3-json", "rocpd"])
def test_an_unknown_domain_is_refused_and_leaves_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="no domain 'gpu'; there are"):
        writers.write(name, small_run(), tmp_path, traces=["gpu"])
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="no writer for the format 'nsys'; there are kineto, rocprofv3-csv"
    ):
        writers.write("nsys", small_run(), tmp_path)


def test_importing_the_writers_imports_no_writer() -> None:
    code = (
        "import sys, gpumodel.writers as w; print(w.formats()[0], 'gpumodel.writers.kineto.writer'"
        " in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["kineto", "False"]


@pytest.mark.parametrize("name", writers.formats())
def test_until_a_file_is_whole_the_one_before_it_stays(name, tmp_path, monkeypatch):
    """Somebody else may be reading it, and a disk may be full."""
    before = {path: path.read_bytes() for path in writers.write(name, small_run(), tmp_path)}
    monkeypatch.setattr(
        Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space"):
        writers.write(name, small_run(), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

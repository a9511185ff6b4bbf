"""One run in several formats: readers agree on it, and differ only where the tools' definitions do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cifar_train.errors import UserError
from gpumodel import writers
from gpumodel.run import Run
from tests.gpumodel.handmade import small_run
from tidyprof import Profile, busy, read, reconcile
from tidyprof.analyses.reconcile import AGREE

FORMATS = ("kineto", "rocprofv3-csv", "rocprofv3-json", "rocpd", "rpd")
SEES_RUNTIME_KERNELS = ("rocprofv3-csv", "rocprofv3-json", "rocpd")


@pytest.fixture(scope="module")
def run() -> Run:
    """The small run."""
    return small_run()


@pytest.fixture(scope="module")
def profiles(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    """The run as it comes back from each format."""
    folder = tmp_path_factory.mktemp("formats")
    found = {}
    for name in FORMATS:
        files = writers.write(name, run, folder / name)
        found[name] = read(files[0] if name == "rpd" else folder / name)
    return found


def test_every_format_is_recognised(profiles: dict[str, Profile]) -> None:
    tools = {name: profile.meta["tool"] for name, profile in profiles.items()}
    assert tools == {
        "kineto": "torch.profiler", "rocprofv3-csv": "rocprofv3", "rocprofv3-json": "rocprofv3", "rocpd": "rocpd",
        "rpd": "rocmProfileData",
    }  # fmt: skip


def test_no_reader_repairs_or_warns(profiles: dict[str, Profile]) -> None:
    for profile in profiles.values():
        assert (profile.meta["repairs"], profile.meta["warnings"]) == ({}, [])


def test_kinds_calls_and_total_times_are_equal_in_all_formats(run: Run, profiles: dict[str, Profile]) -> None:
    work = [rank.device_work for rank in run.ranks]
    truth = {kind: sum(int(table[table["kind"] == kind]["duration_ns"].sum()) for table in work) for kind in
             ("kernel", "copy", "fill", "collective")}  # fmt: skip
    for profile in profiles.values():
        events = profile.device_events
        found = events.groupby(events["kind"].astype(str))["duration_ns"].sum().to_dict()
        assert found == truth
        assert len(events) == sum(len(table) for table in work)


def test_devices_are_equally_busy_in_all_formats(profiles: dict[str, Profile]) -> None:
    tables = {name: busy(profile)["union_ns"].tolist() for name, profile in profiles.items()}
    assert tables == dict.fromkeys(FORMATS, tables["kineto"])


def test_tools_differ_only_in_how_they_list_copies_and_fills(profiles: dict[str, Profile]) -> None:
    table = reconcile(profiles)
    differing = table[table["reason"] != AGREE]
    assert set(differing["category"]) == {"copy"}
    assert differing["reason"].str.contains("copies|fills|copy|fill").all()
    agreeing = table[table["reason"] == AGREE]
    assert agreeing["calls_kineto"].tolist() == [6, 6, 6, 6]
    assert set(agreeing["difference_ns"]) == {0}


def test_tools_that_see_the_runtimes_kernels_agree_on_everything(profiles: dict[str, Profile]) -> None:
    table = reconcile({name: profiles[name] for name in SEES_RUNTIME_KERNELS})
    assert set(table["reason"]) == {AGREE}


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_run_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    first, second = (writers.write(name, small_run(), tmp_path / place) for place in ("first", "other"))
    strip = [len(str(tmp_path / place)) for place in ("first", "other")]
    assert [str(file)[strip[0] :] for file in first] == [str(file)[strip[1] :] for file in second]
    for one, other in zip(first, second, strict=True):
        assert _content(one, tmp_path / "first") == _content(other, tmp_path / "other")


def _content(path: Path, folder: Path) -> bytes:
    """The bytes of a file; a trace states its own path, which is taken out."""
    if path.suffix == ".gz":
        import gzip

        return gzip.decompress(path.read_bytes()).replace(str(folder).encode(), b"")
    return path.read_bytes()


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no writer for the format 'nsys'; there are kineto, rocprofv3-csv"):
        writers.write("nsys", small_run(), tmp_path)


def test_importing_the_writers_imports_no_writer() -> None:
    import subprocess
    import sys

    code = "import sys, gpumodel.writers as w; print(w.formats()[0], 'gpumodel.writers.kineto.writer' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["kineto", "False"]

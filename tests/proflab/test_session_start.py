"""The first cell of a lesson: the table, the folder, the PATH, the GPU found in the kernel's
files.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pytest

import proflab
from proflab import session
from proflab.errors import CourseError
from proflab.lessons import lessons
from proflab.recordings import cache_folder
from proflab.tapes import append_to_path
from tidyprof.plots import style


def command(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def topology(root: Path, *gpus: int) -> Path:
    """A node folder per processor, the first being the CPU, as the kernel driver writes them."""
    for place, version in enumerate((0, *gpus)):
        node = root / str(place)
        node.mkdir(parents=True)
        simd_count = 1216 if version else 0
        (node / "properties").write_text(
            f"cpu_cores_count 0\nsimd_count {simd_count}\ngfx_target_version {version}\n"
        )
    return root


def test_start_shows_what_is_here(
    bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = command(tmp_path / "opt/rocm-6.4.1/bin/rocprofv3")
    (tool.parents[1] / ".info").mkdir()
    (tool.parents[1] / ".info/version").write_text("6.4.1-83\n")
    monkeypatch.setenv("PATH", str(tool.parent))
    monkeypatch.setattr(session, "gpu_architectures", lambda: ())
    begun = proflab.start("04")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rocprofv3", "ROCm", "6.4.1-83", "real"] in rows
    assert ["AMD", "GPU", "missing"] in rows
    assert begun.folder == bench / "04"
    assert begun.folder.is_dir()
    assert begun.minutes == lessons()["04"].minutes
    assert not begun.has_gpu


def test_start_says_where_numbers_come_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setattr(session, "gpu_architectures", lambda: ())
    proflab.start("02")
    assert "`recorded` on a named machine or `modelled`, never measured" in capsys.readouterr().out
    monkeypatch.setattr(session, "gpu_architectures", lambda: ("gfx942",) * 8)
    proflab.start("02")
    out = capsys.readouterr().out
    assert "What you run here is `measured`" in out
    assert "8 x gfx942" in out


WATCHED = """
import proflab
begun = proflab.start("02")
import torch
from torch.profiler import ProfilerActivity, profile
old = torch.ones(1000)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True):
    del old
"""


def test_without_a_gpu_the_profiler_writes_nothing_in_red() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in session.QUIET}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_with_a_gpu_its_reports_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    for name in session.QUIET:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    monkeypatch.setattr(session, "gpu_architectures", lambda: ("gfx942",))
    proflab.start("02")
    assert not os.environ.keys() & session.QUIET.keys()
    monkeypatch.setattr(session, "gpu_architectures", lambda: ())
    monkeypatch.setenv("KINETO_LOG_LEVEL", "1")
    proflab.start("02")
    assert os.environ["KINETO_LOG_LEVEL"] == "1"


def test_learners_own_plots_get_the_courses_style(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        proflab.start("02")
        found = {name: matplotlib.rcParams[name] for name in style.SETTINGS}
    with matplotlib.rc_context(style.SETTINGS):
        assert found == {name: matplotlib.rcParams[name] for name in style.SETTINGS}


def test_a_missing_tool_gets_its_player_and_the_table_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    proflab.start("05")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rocprof-compute", "replay"] in rows
    subprocess.run(["sh", "-c", "rocprof-compute --version"], capture_output=True, check=True)


def test_missing_package_is_shown_as_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(session, "PACKAGES", ("torch", "no-such-package"))
    proflab.start("05")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["no-such-package", "missing"] in rows


def test_unknown_lesson_is_one_line() -> None:
    for unknown in ("42", 2, None, [2]):
        with pytest.raises(CourseError, match="there is no lesson"):
            proflab.start(unknown)


def test_python_of_the_course_comes_first_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join(["/usr/bin", home, "/bin", ""]))
    for _ in range(2):
        session.put_python_first()
        assert os.environ["PATH"] == os.pathsep.join([home, "/usr/bin", "/bin"])
    found = subprocess.run(
        ["bash", "-c", "command -v python"], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(Path(home) / "python")


def test_gpus_are_the_processors_with_simd_units(tmp_path: Path) -> None:
    device = tmp_path / "kfd"
    nodes = topology(tmp_path / "nodes", 90402, 90010, 110501)
    assert session.gpu_architectures(device, nodes) == ()
    device.write_text("")
    assert session.gpu_architectures(device, nodes) == ("gfx942", "gfx90a", "gfx1151")
    assert session.gpu_architectures(device, tmp_path / "none") == ()


def test_version_of_a_tool_without_a_release_file_is_not_invented(tmp_path: Path) -> None:
    assert session.tool_version(command(tmp_path / "bin/runTracer.sh")) == ""


def test_commands_know_the_folder_for_results_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / "elsewhere"))
    folder = proflab.start("03").folder
    assert Path(os.environ["FOLDER"]) == folder == tmp_path / "elsewhere" / "03"


@pytest.mark.parametrize("variable", ["PROFLAB_RUNS", "PROFLAB_CACHE"])
def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, str(tmp_path / "file" / "below"))
    monkeypatch.setenv("PATH", str(tmp_path))  # so that every tool needs the player
    with pytest.raises(CourseError, match=f"Not a directory.*{variable}"):
        proflab.start("00")


def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that was given the number of a user whom it does not know."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def unwritable_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)


@pytest.mark.parametrize("trouble", [no_home, unwritable_home])
def test_without_a_home_to_write_to_the_cache_is_below_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], None]
) -> None:
    monkeypatch.delenv("PROFLAB_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trouble(monkeypatch)
    with pytest.warns(UserWarning, match="HOME cannot be written; downloads are kept in"):
        folder = cache_folder()
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    folder.chmod(0o777)
    with pytest.raises(CourseError, match=r"can be changed by others.*PROFLAB_CACHE"):
        cache_folder()


def test_a_notebook_that_begins_beside_another_takes_its_players(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other makes each link in the moment in which this one finds none."""
    make = Path.symlink_to

    def too_late(link: Path, target: Path) -> None:
        os.symlink(target, link)
        make(link, target)

    monkeypatch.setattr(Path, "symlink_to", too_late)
    found = append_to_path({"PATH": ""})
    assert all(tool.kind == "player" and tool.path.exists() for tool in found)

"""The first cell of a lesson: the table, the folder, PATH, and the GPU found in the kernel's
files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

import proflab
from proflab import session
from proflab.errors import CourseError
from proflab.lessons import lessons
from tidyprof.plots import style

FIND_GPUS = session.gpu_architectures


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(session, "gpu_architectures", lambda: ())


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_start_shows_what_is_here(bench: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    tool = tmp_path / "opt/rocm-6.4.1/bin/rocprofv3"
    release = tool.parents[1] / ".info/version"
    for file, text in ((tool, "#!/bin/sh\n"), (release, "6.4.1-83\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    monkeypatch.setattr(session, "PACKAGES", ("torch", "no-such-package"))
    begun = proflab.start("04")
    shown = rows(capsys)
    assert ["rocprofv3", "ROCm", "6.4.1-83", "real"] in shown
    assert ["AMD", "GPU", "missing"] in shown
    assert ["no-such-package", "missing"] in shown
    assert begun.folder == bench / "04" == Path(os.environ["FOLDER"])
    assert begun.folder.is_dir()
    assert begun.minutes == lessons()["04"].minutes
    assert not begun.has_gpu


def test_a_missing_tool_is_found_all_the_same(capsys) -> None:
    proflab.start("05")
    (row,) = [row for row in rows(capsys) if row[:1] == ["rocprof-compute"]]
    assert row[-1] not in ("real", "missing")
    done = subprocess.run(["sh", "-c", "rocprof-compute --version"], capture_output=True)
    assert done.returncode == 0


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
    environment = {
        name: value for name, value in os.environ.items() if name not in session.SILENCED_LOGS
    }
    command = [sys.executable, "-c", WATCHED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_with_a_gpu_its_reports_stay(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for name in session.SILENCED_LOGS:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    monkeypatch.setattr(session, "gpu_architectures", lambda: ("gfx942",) * 8)
    assert proflab.start("02").has_gpu
    assert ["AMD", "GPU", "8", "x", "gfx942", "real"] in rows(capsys)
    assert not os.environ.keys() & session.SILENCED_LOGS.keys()
    monkeypatch.setattr(session, "gpu_architectures", lambda: ())
    monkeypatch.setenv("KINETO_LOG_LEVEL", "1")
    proflab.start("02")
    assert os.environ["KINETO_LOG_LEVEL"] == "1"


def test_learners_own_plots_get_the_courses_style() -> None:
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
    assert os.environ["PATH"].count("tapes/bin") == 1
    subprocess.run(["sh", "-c", "rocprof-compute --version"], capture_output=True, check=True)


@pytest.mark.parametrize("unknown", ["42", 2, None, [2]])
def test_unknown_lesson_is_refused(unknown: object) -> None:
    with pytest.raises(CourseError):
        proflab.start(unknown)


def test_python_of_the_course_comes_first_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join(["/usr/bin", home, "/bin", ""]))
    for _ in range(2):
        session.put_python_first()
        assert os.environ["PATH"] == os.pathsep.join([home, "/usr/bin", "/bin"])


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / "file" / "below"))
    with pytest.raises(CourseError, match="PROFLAB_RUNS"):
        proflab.start("00")


def test_sections_of_several_lessons_share_their_folder(bench: Path) -> None:
    folders = [proflab.start(number, within="ninety").folder for number in ("00", "02")]
    assert folders == [bench / "ninety"] * 2


def test_gpus_are_the_processors_with_simd_units(tmp_path: Path) -> None:
    device, nodes = tmp_path / "kfd", tmp_path / "nodes"
    for place, version in enumerate((0, 90402, 90010, *[0] * 7, 110501)):
        (nodes / str(place)).mkdir(parents=True)
        text = f"simd_count {1216 if version else 0}\ngfx_target_version {version}\n"
        (nodes / str(place) / "properties").write_text(text)
    assert FIND_GPUS(device, nodes) == ()
    device.write_text("")
    assert FIND_GPUS(device, nodes) == ("gfx942", "gfx90a", "gfx1151")
    assert FIND_GPUS(device, tmp_path / "none") == ()

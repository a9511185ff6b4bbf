"""Stand-ins as programs: how they start, what they load, and that a real tool always wins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proflab.standins import append_to_path
from proflab.standins.__main__ import main
from proflab.standins.path import LAUNCHERS
from proflab.standins.tools import MODULE_OF_TOOL


@pytest.fixture
def empty_path(tmp_path):
    """An environment whose PATH has one empty folder."""
    folder = tmp_path / "first"
    folder.mkdir()
    return {"PATH": str(folder)}, folder


def test_every_tool_has_an_executable_launcher_and_no_other_file_is_there():
    assert sorted(path.name for path in LAUNCHERS.iterdir()) == sorted(MODULE_OF_TOOL)
    for tool in MODULE_OF_TOOL:
        text = (LAUNCHERS / tool).read_text()
        assert os.access(LAUNCHERS / tool, os.X_OK)
        assert text.startswith("#!/bin/sh\n")
        assert '-m proflab.standins "${0##*/}" "$@"' in text


def test_missing_tools_are_found_behind_everything_else(empty_path):
    environ, folder = empty_path
    found = append_to_path(environ)
    assert {entry.kind for entry in found} == {"stand-in"}
    parts = environ["PATH"].split(os.pathsep)
    assert parts[0] == str(folder)
    assert sorted(path.name for path in Path(parts[-1]).iterdir()) == sorted(MODULE_OF_TOOL)
    assert environ["PROFLAB_PYTHON"] == sys.executable


def test_a_cell_that_changes_its_folder_still_finds_them(empty_path, tmp_path, monkeypatch):
    environ, _ = empty_path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROFLAB_CACHE", "relative")
    append_to_path(environ)
    assert Path(environ["PATH"].split(os.pathsep)[-1]).is_absolute()


def test_a_real_tool_wins_and_has_no_stand_in_beside_it(empty_path):
    environ, folder = empty_path
    real = folder / "rocprofv3"
    real.write_text("#!/bin/sh\necho real\n")
    real.chmod(0o755)
    found = {entry.tool: entry for entry in append_to_path(environ)}
    assert (found["rocprofv3"].kind, found["rocprofv3"].path) == ("real", real)
    assert found["amd-smi"].kind == "stand-in"
    links = {path.name for path in Path(environ["PATH"].split(os.pathsep)[-1]).iterdir()}
    assert links == set(MODULE_OF_TOOL) - {"rocprofv3"}


def test_appending_twice_changes_nothing_and_a_tool_that_appears_later_wins(empty_path):
    environ, folder = empty_path
    append_to_path(environ)
    once = environ["PATH"]
    append_to_path(environ)
    assert environ["PATH"] == once
    (folder / "rocpd").write_text("#!/bin/sh\n")
    (folder / "rocpd").chmod(0o755)
    found = {entry.tool: entry.kind for entry in append_to_path(environ)}
    assert found["rocpd"] == "real"
    assert len(environ["PATH"].split(os.pathsep)) == 2


QUICK = {
    "rocprofv3 --version": "rocm_version: 10.1",
    "rocprofv3 --help": "--kernel-trace",
    "rocprofv3-avail --version": "rocm_version",
    "rocpd --version": "rocm_version",
    "rocprof-sys-run --version": "rocprof-sys-run v1.9.0 (rev: stand-in",
    "rocprof-sys-sample --help": "--trace",
    "rocprof-sys-avail --version": "rocprof-sys-avail v1.9.0",
    "rocprof-compute --version": "rocprofiler-compute version: 3.9.0",
    "rocprof-compute profile --help": "--name",
    "amd-smi version": (
        "AMDSMI Tool: 27.1.0+stand-in | AMDSMI Library version: 27.1.0 | ROCm version: 10.1"
    ),
    "amd-smi monitor --help": "--vram-usage",
    "omnistat-query --job 0 -v": "Omnistat version: 1.6.0",
    "rpd2tracing --help": "--format",
}


def test_version_and_help_load_neither_torch_nor_pandas():
    code = f"""import sys
from proflab.standins.__main__ import main
for line in {[*QUICK]!r}:
    try:
        main(line.split())
    except SystemExit:
        pass
    print("loaded", sorted({{"torch", "pandas", "numpy", "matplotlib"}} & set(sys.modules)))"""
    environ = os.environ | {"PROFLAB_ROCM": "10.1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    *answers, end = done.stdout.split("loaded []\n")
    assert end == ""
    for said, answer in zip(QUICK.values(), answers, strict=True):
        assert said in answer


def test_a_wrong_option_has_the_tools_own_exit_code_through_the_launcher():
    environ = os.environ | {"PROFLAB_PYTHON": sys.executable}
    done = subprocess.run(
        [LAUNCHERS / "rocprofv3", "--frobnicate"], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "unrecognized arguments: --frobnicate" in done.stderr


def test_an_unknown_tool_is_refused(capsys):
    assert main(["nsys"]) == 2
    assert capsys.readouterr().err.startswith("error: name a tool: amd-smi, ")

"""Exported files are whole or absent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tidyprof.atomic_write import whole_file
from tidyprof.cli.main import main

HOLD = """
import sys, time
from pathlib import Path
from tidyprof.atomic_write import whole_file
with whole_file(Path(sys.argv[1])) as partial:
    partial.write_text("half")
    print("holding", flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def trace(recordings) -> str:
    return str(recordings / "torch-mi250-minitoy/mi250_minitoy_train_ROCm6_2_kineto.json.gz")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_killed_writer_leaves_the_file_of_before(tmp_path):
    target = tmp_path / "table.csv"
    target.write_text("of before")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, target], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "holding\n"
        other.send_signal(signal.SIGKILL)
    assert target.read_text() == "of before"


@pytest.mark.parametrize("option", ["--csv", "--json"])
def test_a_full_disk_leaves_the_file_of_before(tmp_path, trace, monkeypatch, capsys, option):
    target = tmp_path / "result.json"
    target.write_text("of before")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    for name in ("to_csv", "to_json"):
        monkeypatch.setattr(
            pd.DataFrame, name, lambda _, path, **__: (Path(path).write_text("half"), full())
        )
    assert main(["table", "kernels", trace, option, str(target)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert (names(tmp_path), target.read_text()) == ({"result.json"}, "of before")


def test_the_name_still_says_how_a_table_is_packed(tmp_path, trace):
    assert main(["table", "kernels", trace, "--csv", str(tmp_path / "table.csv.gz")]) == 0
    assert len(pd.read_csv(tmp_path / "table.csv.gz")) > 0
    assert (tmp_path / "table.csv.gz").read_bytes().startswith(b"\x1f\x8b")


def test_a_link_and_a_pipe_stay_what_they_are(tmp_path):
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe"
    link.symlink_to(tmp_path / "real.csv")
    with whole_file(link) as partial:
        partial.write_text("whole")
    assert link.is_symlink()
    assert (tmp_path / "real.csv").read_text() == "whole"
    os.mkfifo(pipe)
    with whole_file(pipe) as partial:
        assert partial == pipe

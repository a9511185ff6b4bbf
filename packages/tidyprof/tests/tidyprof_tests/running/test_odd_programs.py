"""Programs at the edges of a launcher: with `tidyprof run` in front they do what they do alone."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tidyprof_tests.conftest import THIRD_PARTY
from tidyprof_tests.running.programs import plain, watched

ODD = THIRD_PARTY / "ordinary" / "odd"
TRUTHS: dict[str, dict[str, Any]] = tomllib.loads((ODD / "truth.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", TRUTHS)
def test_an_odd_program_stays_as_it_is(name: str, tmp_path: Path) -> None:
    truth = TRUTHS[name]
    folder = shutil.copytree(ODD, tmp_path / "odd")
    command = [sys.executable if word == "python" else word for word in truth["command"]]
    ended = watched(command, folder, PYTHON=sys.executable)
    assert ended.code == truth["exit"]
    output = truth["output"]
    if truth.get("same_output"):
        output = plain(command, folder).output.splitlines()
    assert ended.output.splitlines() == output
    if truth["steps"] >= 40 and name != "own_profiler":
        assert list((folder / "out").glob("trace_rank0.json*"))

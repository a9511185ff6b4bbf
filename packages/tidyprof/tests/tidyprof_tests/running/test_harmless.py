"""Programs that a wrapper could harm end with hooks as they do without."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from tidyprof.running.launch import FIRST
from tidyprof_tests.conftest import THIRD_PARTY
from tidyprof_tests.running import forked

FOLDER = THIRD_PARTY / "ordinary" / "harmless"
TRACED: dict[str, bool] = tomllib.loads((FOLDER / "traced.toml").read_text("utf-8"))


def _ended(hooks: str) -> dict[str, dict[str, Any]]:
    """Return how each program ended, with hooks from this folder or without."""
    command = [sys.executable, forked.__file__, str(FOLDER), hooks, *TRACED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["program"]: line for line in lines}


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """How the programs end without hooks."""
    return _ended("")


@pytest.fixture(scope="module")
def hooked() -> dict[str, dict[str, Any]]:
    """How the programs end with hooks."""
    return _ended(str(FIRST))


@pytest.mark.parametrize("program", TRACED)
def test_a_program_ends_as_without_hooks(
    program: str, alone: dict[str, dict[str, Any]], hooked: dict[str, dict[str, Any]]
) -> None:
    plain, other = alone[program], hooked[program]
    assert (other["code"], other["output"]) == (plain["code"], plain["output"])
    if not TRACED[program]:
        assert other["traces"] == 0

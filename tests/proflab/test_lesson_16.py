"""Lesson 16: what ships as compiled is what its program compiles, and says nothing of the machine
that did.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from proflab.lessons import lessons
from tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

FOLDER = lessons()["16"].folder
SNIPPET = REPOSITORY / "snippets/16_compiler.py"
PROGRAM = FOLDER / "kernels.py"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def cases_of_the_program() -> set[str]:
    (named,) = (
        node.value
        for node in ast.parse(PROGRAM.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "CASES"
    )
    return {key.value for key in named.keys}


def test_every_case_ships_and_states_its_version() -> None:
    newest = FOLDER / "compiled/3.9.0"
    assert {folder.name for folder in newest.iterdir()} == cases_of_the_program()
    for file in FOLDER.glob("compiled/*/*/*.json"):
        assert json.loads(file.read_text())["triton_version"] == file.parts[-3]


def test_a_case_is_compiled_without_a_gpu_or_the_lesson_goes_on(tmp_path: Path) -> None:
    done = run(PROGRAM, SNIPPET, tmp_path, "add_norm")
    made = sorted(file.name for file in tmp_path.glob("add_norm/*"))
    if find_spec("triton"):
        assert made == ["add_norm.amdgcn", "add_norm.json"]
    else:
        assert (made, done.stderr.count("\n")) == ([], 1)

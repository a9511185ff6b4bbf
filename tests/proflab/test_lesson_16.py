"""Lesson 16: what ships as compiled is what its program compiles, and says nothing of the machine
that did.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from proflab.exercises import exercises_of
from proflab.lessons import lessons
from tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

FOLDER = lessons()["16"].folder
SNIPPET = REPOSITORY / "snippets/16_compiler.py"
PROGRAM = FOLDER / "kernels.py"


WITHOUT = (
    "import sys, runpy; sys.modules['triton'] = None; runpy.run_path(sys.argv[1],"
    " run_name='__main__')"
)


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


def test_what_ships_for_both_gpus_ships_for_each_version() -> None:
    shipped = {
        folder.name: {case.name for case in folder.iterdir()}
        for folder in FOLDER.glob("compiled/*")
    }
    newest = shipped.pop("3.9.0")
    both = {case for case in newest if {case, f"{case}_gfx950"} <= newest}
    assert [*shipped.values()] == [both | {f"{case}_gfx950" for case in both}] * 2


@pytest.mark.parametrize(
    "file", sorted(FOLDER.glob("compiled/*/*/*.gz")), ids=lambda file: "/".join(file.parts[-3:-1])
)
def test_nothing_of_the_machine_that_compiled_is_shipped(file: Path) -> None:
    text = gzip.decompress(file.read_bytes())
    assert b"site-packages" not in text
    assert re.search(rb"(?<![\w/.])/\w+/", text) is None, "an absolute path"


def test_a_case_is_compiled_without_a_gpu_or_the_lesson_goes_on(tmp_path: Path) -> None:
    done = run(PROGRAM, SNIPPET, tmp_path, "add_norm")
    made = sorted(file.name for file in tmp_path.glob("add_norm/*"))
    if find_spec("triton"):
        assert made == ["add_norm.amdgcn", "add_norm.json"]
    else:
        assert (made, done.stderr.count("\n")) == ([], 1)


def test_without_triton_one_line_says_what_follows() -> None:
    done = run("-c", WITHOUT, PROGRAM)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "No Triton here: the lesson goes on with what was compiled before.\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--fail-on-spill", ""),
        ("--fail", ""),
        ("--fail-on-spills", "ends with 2"),
        ("--strict", "ends with 2"),
        ("--json -", "ends with 0"),
        ("", "ends with 0"),
        ("--fail-on-spill --json -", "more than"),
    ],
)
def test_a_command_is_told_what_its_options_do(options: str, words: str) -> None:
    found = exercises_of("16").command_problem(f"python -m tidyprof isa cache {options}", "cache")
    assert words in found if words else found is None

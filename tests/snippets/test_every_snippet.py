"""Each lesson ends with a snippet, shows it whole, and the snippet knows nothing of the course."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proflab.lessons import Lesson, lessons
from tests.snippets.conftest import AT_WORK, SNIPPETS, Run

FILES = sorted(
    path for path in SNIPPETS.iterdir() if path.is_file()
)  # __pycache__ comes with a run
LESSONS = list(lessons().values())
COURSE = re.compile(r"\b(cifar_train|cifar-train|tidyprof|proflab|gpumodel)\b")
LONGEST = 135
LONGER = {"07_who_waits.py": 165, "12_decode_bound.py": 170, "14_instrument_me.py": 225}
"""Files that do several things: one reads and compares ranks; one bounds a token, times it, and
times it as a graph; one to paste times, records and bounds itself.
"""


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_a_lesson_ends_with_a_snippet(lesson: Lesson) -> None:
    text = lesson.source.read_text(encoding="utf-8")
    assert "## At work, without this course" in text
    shown = re.findall(
        r"^# \{snippet (\S+)\}$", text.partition("## At work, without this course")[2], re.MULTILINE
    )
    assert [name for name in shown if name.startswith(f"{lesson.number}_")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_snippet_is_shown_tested_and_free_of_the_course(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d\d_[a-z0-9_]+\.(py|sh|sql)", file.name)
    assert f"{{snippet {file.name}}}" in lessons()[file.name[:2]].source.read_text(encoding="utf-8")
    assert not COURSE.search(text)
    assert len(text.splitlines()) <= LONGER.get(file.name, LONGEST)
    tests = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_[0-9]*.py")
    )
    assert f"snippets/{file.name}" in tests, "nothing runs it"


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.suffix == ".py"], ids=lambda file: file.name
)
def test_a_snippet_imports_what_is_at_work(file: Path) -> None:
    # roctx comes with ROCm, triton with a torch for GPUs, a trainer with its library, and all of
    # them may be missing; instrument_me is the block of lesson 14.
    others = {"numpy", "roctx", "triton", "transformers", "lightning", "instrument_me"}
    known = {*sys.stdlib_module_names, *AT_WORK, *others}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {name.partition(".")[0] for name in names} <= known


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.suffix in (".py", ".sh")], ids=lambda file: file.name
)
def test_each_command_of_a_snippet_has_a_line_of_its_own(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    python = file.suffix == ".py"
    lines = ast.get_docstring(ast.parse(text)).splitlines() if python else text.splitlines()
    command = re.compile(rf"(?<!`)\b(?:python|bash|sbatch|qsub) {re.escape(file.name)}")
    begin = re.compile(r"#?\s{2,}(?:[A-Z_]+=\S+ |srun (?:-n \d )?)*$")
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        found = command.split(line)
        assert len(found) == 1 or (len(found) == 2 and begin.match(found[0])), line
        if python and len(found) == 2:
            # A backslash would stand twice in the file, and whoever copies it gets both.
            assert not line.endswith("\\")
            assert re.match(rf"$|    # |{begin.pattern[:-1]}python ", after), after


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.suffix == ".py"], ids=lambda file: file.name
)
def test_a_snippet_names_the_oldest_torch_that_it_works_with(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    newer = {
        "accelerator": "torch 2.6 or newer"
    }  # attribute of torch -> the release notes that have it first
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & {*newer}
    for name in used:
        assert newer[name] in ast.get_docstring(tree)


def test_the_bare_environment_has_torch_and_nothing_of_the_course(bare: Run) -> None:
    assert (
        "2"
        in bare("python", "-c", "import torch, pandas, matplotlib; print(torch.__version__)").stdout
    )
    for module in ("tidyprof", "cifar_train", "transformers"):
        assert (
            f"No module named '{module}'"
            in bare("python", "-c", f"import {module}", check=False).stderr
        )
    child = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import tidyprof'],"
        " check=True)"
    )
    assert bare("python", "-c", child, check=False).returncode == 1


def test_shellcheck_finds_nothing_in_the_snippets() -> None:
    scripts = [str(file) for file in FILES if file.suffix == ".sh"]
    done = (
        subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
        if scripts
        else None
    )
    assert done is None or done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "file", [file for file in FILES if "gzip.open" in file.read_text()], ids=lambda file: file.name
)
def test_a_trace_that_python_cannot_unpack_is_told_what_to_do_with(
    file: Path, bare: Run, tmp_path: Path
) -> None:
    (tmp_path / "trace.json.zst").write_bytes(b"\x28\xb5\x2f\xfd and more")
    done = bare("python", f"snippets/{file.name}", "trace.json.zst", check=False)
    assert done.returncode == 1
    assert done.stderr == "trace.json.zst: unpack it first: zstd -d trace.json.zst\n"

"""Each lesson ends with a snippet, shows it whole, and the snippet knows nothing of the course."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from proflab.lessons import lessons
from tests.snippets.conftest import SNIPPETS, WORK_PACKAGES, Run

FILES = sorted(
    path for path in SNIPPETS.iterdir() if path.is_file()
)  # __pycache__ comes with a run
COURSE = re.compile(r"\b(cifar_train|cifar-train|tidyprof|proflab)\b")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_snippet_is_shown_tested_and_free_of_the_course(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d\d_[a-z0-9_]+\.(py|sh|sql)", file.name)
    assert f"{{snippet {file.name}}}" in lessons()[file.name[:2]].source.read_text(encoding="utf-8")
    assert not COURSE.search(text)


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.suffix == ".py"], ids=lambda file: file.name
)
def test_a_snippet_imports_what_is_at_work(file: Path) -> None:
    # roctx comes with ROCm, triton with a torch for GPUs, a trainer with its library, and all of
    # them may be missing; instrument_me is the block of lesson 14.
    others = {"numpy", "roctx", "triton", "transformers", "lightning", "instrument_me"}
    known = {*sys.stdlib_module_names, *WORK_PACKAGES, *others}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {name.partition(".")[0] for name in names} <= known


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

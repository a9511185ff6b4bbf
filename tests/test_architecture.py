"""Which package imports which, and that no module imports itself by way of others."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SOURCES = (REPOSITORY / "src", REPOSITORY / "packages/tidyprof/src")
MAY_IMPORT = {
    "tidyprof": set(),
    "cifar_train": {"tidyprof"},
    "proflab": {"cifar_train", "tidyprof"},
}
WITHOUT_TORCH = (
    ("tidyprof", "--help"),
    ("proflab", "--help"),
    ("cifar_train", "--help"),
    ("tidyprof", "summary", "recordings/cuts/rpd-mi200-matmul/matmul_result.rpd"),
)


def modules() -> dict[str, Path]:
    """Return the file of each module by the module's full name."""
    return {
        ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): file
        for folder in SOURCES
        for package in MAY_IMPORT
        for file in (folder / package).rglob("*.py")
    }


def imports(node: ast.AST) -> set[str]:
    """Return the modules and names that code imports, except for types alone."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        elif isinstance(child, ast.ImportFrom):
            found |= {f"{child.module}.{alias.name}" for alias in child.names}
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            found |= imports(child)
    return found


GRAPH = {
    name: imports(ast.parse(file.read_text(encoding="utf-8"))) for name, file in modules().items()
}


def test_packages_import_only_those_below_them() -> None:
    for name, found in GRAPH.items():
        package = name.split(".")[0]
        others = {one.split(".")[0] for one in found} & MAY_IMPORT.keys() - {package}
        assert others <= MAY_IMPORT[package], name


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = {
        name: ({one if one in GRAPH else one.rpartition(".")[0] for one in found} & GRAPH.keys())
        - {name}
        for name, found in GRAPH.items()
    }
    assert len(list(TopologicalSorter(known).static_order())) == len(known)


@pytest.mark.parametrize("command", WITHOUT_TORCH, ids=" ".join)
def test_a_command_that_only_reads_imports_no_torch(command: tuple[str, ...]) -> None:
    module, *arguments = command
    code = (
        f"import runpy, sys\nsys.modules['torch'] = None\nsys.argv = {[module, *arguments]!r}\n"
        f"runpy.run_module({module!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True)
    assert done.returncode == 0, done.stderr

"""How the packages and their rooms know each other: no import circles, and no private name of another room.

A room is a folder of modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"
PACKAGES = ("cifar_train", "tidyprof", "gpumodel", "proflab")
WITHOUT_CIRCLES = ("cifar_train", "tidyprof", "gpumodel", "proflab")


@cache
def modules(package: str) -> dict[str, Path]:
    """The modules of a package by their full names."""
    files = (SOURCES / package).rglob("*.py")
    return {".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def modules_of_all() -> dict[str, Path]:
    return {name: file for package in PACKAGES for name, file in modules(package).items()}


def is_for_types(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`, which nothing runs."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of each import in a module's code, in its functions too; the name is empty for `import x`.

    `import_module("x")` is one as well.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, "") for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, "imports are absolute here"
            yield from ((child.module or "", alias.name) for alias in child.names)
        elif not is_for_types(child):
            if named := module_by_text(child):
                yield named, ""
            yield from imported(child)


def module_by_text(node: ast.AST) -> str:
    """The module that `import_module` is told by a text; nothing for all else, such as a name put together."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "import_module"
    named = node.args[0] if is_call and isinstance(node, ast.Call) else None
    return named.value if isinstance(named, ast.Constant) else ""


@cache
def imports_of(file: Path) -> list[tuple[str, str]]:
    return list(imported(ast.parse(file.read_text(encoding="utf-8"))))


def needs(name: str, known: dict[str, Path]) -> set[str]:
    """The modules of `known` that a module imports; of a name that is a module itself, that module."""
    found = {f"{module}.{name}" if f"{module}.{name}" in known else module for module, name in imports_of(known[name])}
    return (found & known.keys()) - {name}


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    known = modules(package)
    open_modules = {name: needs(name, known) for name in known}
    # What imports nothing that is still open is in no circle.
    while done := {name for name, needed in open_modules.items() if not needed & open_modules.keys()}:
        open_modules = {name: needed for name, needed in open_modules.items() if name not in done}
    assert sorted(open_modules) == [], "these are in a circle, or import one"


def room_of(module: str, known: dict[str, Path]) -> str:
    return module if module in known and known[module].name == "__init__.py" else module.rpartition(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_is_imported_from_another_room(package: str) -> None:
    known = modules_of_all()
    found = [
        f"{user} imports {name or module} of {module}"
        for user, file in known.items()
        for module, name in imports_of(file)
        if module in known
        if package in (module.split(".")[0], user.split(".")[0]) and room_of(module, known) != room_of(user, known)
        if any(part.startswith("_") and not part.startswith("__") for part in (*module.split("."), name))
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_is_reached_through_a_module(package: str) -> None:
    """`module._name`, where the module was imported by its name."""
    known = modules_of_all()
    found = []
    for user, file in known.items():
        names = {
            name: f"{module}.{name}" for module, name in imports_of(file) if f"{module}.{name}" in modules(package)
        }
        found += [
            f"{user} uses {node.value.id}.{node.attr}"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
            if node.attr.startswith("_") and not node.attr.startswith("__")
        ]
    assert found == []

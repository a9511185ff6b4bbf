"""How the packages and their rooms know each other: no import circles, and no private name of
another room.

A room is a folder of modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"
PACKAGES = ("cifar_train", "tidyprof", "gpumodel", "proflab")
WITHOUT_CIRCLES = ("cifar_train", "tidyprof", "gpumodel", "proflab")


@cache
def modules(package: str) -> dict[str, Path]:
    """The modules of a package by their full names."""
    files = (SOURCES / package).rglob("*.py")
    return {
        ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


def modules_of_all() -> dict[str, Path]:
    return {name: file for package in PACKAGES for name, file in modules(package).items()}


def is_for_types(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`, which nothing runs."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def imported(node: ast.AST, tables: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Module and name of each import in a module's code, in its functions too; the name is empty
    for `import x`.

    `import_module("x")` is one as well; `*` in a module's name stands for any name there.
    tables -- see `tables_of`.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, "") for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, "imports are absolute here"
            yield from ((child.module or "", alias.name) for alias in child.names)
        elif not is_for_types(child):
            yield from ((module, "") for module in modules_by_text(child, tables))
            yield from imported(child, tables)


def modules_by_text(node: ast.AST, tables: dict[str, list[str]]) -> list[str]:
    """The modules that `import_module` is told by a text, which may be put together."""
    if not isinstance(node, ast.Call) or not node.args:
        return []
    function = (
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    )
    return texts_of(node.args[0], tables) if function in ("import_module", "__import__") else []


def texts_of(node: ast.AST, tables: dict[str, list[str]]) -> list[str]:
    """What an expression can be: a text, an f-string, a row of one of the tables, or anything
    (`*`).
    """
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return [
            "".join(parts) for parts in product(*(texts_of(part, tables) for part in node.values))
        ]
    if isinstance(node, ast.FormattedValue):
        return texts_of(node.value, tables)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return tables.get(node.value.id, ["*"])
    return ["*"]


def tables_of(module: ast.Module) -> dict[str, list[str]]:
    """The texts in each table of a module, by its name."""
    assigned = [
        node
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    ]
    return {
        target.id: [value.value for value in node.value.values if isinstance(value, ast.Constant)]
        for node in assigned
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@cache
def imports_of(file: Path) -> list[tuple[str, str]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = list(imported(tree, tables_of(tree)))
    known = modules_of_all()
    plain = [(module, name) for module, name in found if "*" not in module]
    # A name of which the package is open as well may be anything.
    patterns = [module for module, _ in found if "*" in module and module.split(".")[0] in PACKAGES]
    return plain + [
        (module, "") for pattern in patterns for module in known if fits(module, pattern)
    ]


def fits(module: str, pattern: str) -> bool:
    """Whether a module's name is one of a pattern's, in which `*` is a part without a dot."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"\w+"), module) is not None


@pytest.mark.parametrize(
    ("code", "found"),
    {
        "from importlib import import_module\nimport_module('tidyprof.many')": ["tidyprof.many"],
        "import importlib\nimportlib.import_module('tidyprof.many')": ["tidyprof.many"],
        "TABLE = {'a': 'many', 'b': 'errors'}\nimport_module(f'tidyprof.{TABLE[key]}')": [
            "tidyprof.many",
            "tidyprof.errors",
        ],
        "TABLE = {'a': 'tidyprof.many'}\ndef load(key):\n    return import_module(TABLE[key])": [
            "tidyprof.many"
        ],
        "import_module(f'tidyprof.{name}.reader')": ["tidyprof.*.reader"],
        "import_module(f'{package}.{name}')": ["*.*"],
        "import_module(name)": ["*"],
    }.items(),
)
def test_imports_by_text_are_seen(code, found):
    tree = ast.parse(code)
    assert [
        module
        for module, _ in imported(tree, tables_of(tree))
        if not module.startswith("importlib")
    ] == found


def needs(name: str, known: dict[str, Path]) -> set[str]:
    """The modules of `known` that a module imports; of a name that is a module itself, that
    module.
    """
    found = {
        f"{module}.{name}" if f"{module}.{name}" in known else module
        for module, name in imports_of(known[name])
    }
    return (found & known.keys()) - {name}


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    known = modules(package)
    open_modules = {name: needs(name, known) for name in known}
    # What imports nothing that is still open is in no circle.
    while done := {
        name for name, needed in open_modules.items() if not needed & open_modules.keys()
    }:
        open_modules = {name: needed for name, needed in open_modules.items() if name not in done}
    assert sorted(open_modules) == [], "these are in a circle, or import one"


def test_the_trainer_stands_on_modules_that_need_no_room_of_tidyprof() -> None:
    known = modules_of_all()
    ground: set[str] = set()
    more = set(modules("cifar_train"))
    while more := {needed for name in more for needed in needs(name, known)} - ground:
        more = {name for name in more if name.startswith("tidyprof.")}
        ground |= more
    assert "tidyprof.errors" in ground
    assert [name for name in ground if known[name].parent != SOURCES / "tidyprof"] == []


def room_of(module: str, known: dict[str, Path]) -> str:
    return (
        module
        if module in known and known[module].name == "__init__.py"
        else module.rpartition(".")[0]
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_is_imported_from_another_room(package: str) -> None:
    known = modules_of_all()
    found = [
        f"{user} imports {name or module} of {module}"
        for user, file in known.items()
        for module, name in imports_of(file)
        if module in known
        if package in (module.split(".")[0], user.split(".")[0])
        and room_of(module, known) != room_of(user, known)
        if any(
            part.startswith("_") and not part.startswith("__")
            for part in (*module.split("."), name)
        )
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_is_reached_through_a_module(package: str) -> None:
    """`module._name`, where the module was imported by its name."""
    known = modules_of_all()
    found = []
    for user, file in known.items():
        names = {
            name: f"{module}.{name}"
            for module, name in imports_of(file)
            if f"{module}.{name}" in modules(package)
        }
        found += [
            f"{user} uses {node.value.id}.{node.attr}"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in names
            if node.attr.startswith("_") and not node.attr.startswith("__")
        ]
    assert found == []

"""Names of a package that are loaded on first use, so that importing the package stays fast."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tidyprof.errors import missing_extra, one_line


def names_of_stub(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package. These objects provide the names
    that the package's `__init__.pyi` imports.

    - package: the `__name__` of the package.
    - file: the `__file__` of the package. The stub must be in the same folder.

    As a result, editors and type checkers list the same names as the package (SPEC 1 of Scientific
    Python).
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    modules = _modules(stub)

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            if modules[name] == package:
                return import_module(f"{package}.{name}")
            value = getattr(import_module(modules[name]), name)
        except ModuleNotFoundError as error:
            if (extra := missing_extra(error.name)) is None:
                raise
            raise ImportError(one_line(f"{package}.{name}", *extra)) from None
        setattr(sys.modules[package], name, value)
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return load, known, sorted(name for name, module in modules.items() if module != package)


def _modules(stub: ast.Module) -> dict[str, str]:
    """Return each name that a stub imports, together with its module."""
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}

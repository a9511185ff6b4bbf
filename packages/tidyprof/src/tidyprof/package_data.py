"""The package's data files: tables, SQL queries, a style sheet and a script."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def text_of(path: str) -> str:
    """Return a data file as text. The path is relative to the package, such as plots/viewer.js."""
    return files("tidyprof").joinpath(path).read_text(encoding="utf-8")


def table_of(path: str) -> dict[str, Any]:
    """Return the content of a TOML file. The path is relative to the package."""
    return tomllib.loads(text_of(path))

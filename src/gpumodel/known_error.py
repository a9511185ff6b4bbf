"""What is known of the model's error, in one clause for the corner of figures."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path

_FILE = files("gpumodel") / "data" / "model_error.toml"


@cache
def model_error() -> str:
    """The clause, as `python -m gpumodel validate --write` last wrote it."""
    return tomllib.loads(_FILE.read_text())["clause"]


def write_model_error(clause: str) -> Path:
    """Write the clause into the package's data and return the file."""
    target = Path(str(_FILE))
    head = "# Made by `python -m gpumodel validate --write`; do not edit.\n"
    target.write_text(f"{head}clause = {json.dumps(clause, ensure_ascii=False)}\n")
    model_error.cache_clear()
    return target

"""Files of a folder that were not read: why, and how every command says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

SAME = "what was read says the same"
FOREIGN = "another tool's, or damaged at its start"
SEVERAL_NUMBERS = "several numbers for one label"
"""Why a reader leaves a file out."""

_SHOWN = 3


def ignored_lines(meta: Mapping[str, Any]) -> list[str]:
    """A line for each reason in the entry `ignored_files` of `Profile.meta`, with the first files that it holds for."""
    by_reason: dict[str, list[str]] = {}
    for file, reason in meta.get("ignored_files", {}).items():
        by_reason.setdefault(reason, []).append(Path(file).name)
    return [f"not read: {_some(names)} ({reason})" for reason, names in by_reason.items()]


def told(meta: Mapping[str, Any]) -> list[str]:
    """What a command warns of before it shows a number: warnings, and files that were not read."""
    return [*meta.get("warnings", []), *ignored_lines(meta)]


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

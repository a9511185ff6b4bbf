"""Where numbers come from, and how files that were computed say so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "modelled"
"""Member, tag or start of a file name under which files that a model wrote say so, with its known `error`."""

_LONGEST_DETAIL = 300
_LARGEST_MARKER = 2**16

ORIGIN_KINDS = ("measured", "recorded", "modelled")


@dataclass(frozen=True)
class Origin:
    """Where numbers come from, to be printed in the corner of every figure.

    kind is `measured` (this machine, now), `recorded` (a named machine and day)
    or `modelled` (computed; `detail` then states the known error).
    """

    kind: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ORIGIN_KINDS:
            raise ValueError(f"origin must be one of {', '.join(ORIGIN_KINDS)}, not {self.kind!r}")

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind

    def __deepcopy__(self, _: Any) -> Origin:
        """Itself, which nobody can change: pandas copies what is in `attrs` with each step from table to table."""
        return self


NOT_STATED = Origin("recorded", "machine not stated")
"""What is known of a file without a mark of a model."""


def stated_origin(marker: Any) -> Origin | None:
    """The origin that a marker states: an object with `error`, or such an object as JSON. None if it is no marker."""
    if isinstance(marker, str):
        try:
            marker = json.loads(marker[:_LARGEST_MARKER])
        except (ValueError, RecursionError):
            return None
    if not isinstance(marker, dict):
        return None
    device, error = (str(marker.get(key) or "").strip() for key in ("device", "error"))
    detail = ", ".join(part for part in (device, error or "error not known") if part)
    return Origin(MARK, " ".join(detail.split())[:_LONGEST_DETAIL])


def origin_of_files(files: Iterable[str]) -> Origin:
    """`modelled` where a marker beside one of these files says so, else NOT_STATED.

    `modelled.json` speaks for every file in its folder, `<start>_modelled.json` for those whose names start so.
    """
    paths = [Path(file) for file in files]
    markers = {folder: sorted(folder.glob(f"*{MARK}.json")) for folder in {path.parent for path in paths}}
    for file in paths:
        for marker in markers[file.parent]:
            start = marker.name.removesuffix(f"{MARK}.json").removesuffix("_")
            if file.name.startswith(start) and (origin := _origin_in(marker)):
                return origin
    return NOT_STATED


def _origin_in(marker: Path) -> Origin | None:
    try:
        return stated_origin(json.loads(marker.read_text(encoding="utf-8")[:_LARGEST_MARKER]).get(MARK))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None

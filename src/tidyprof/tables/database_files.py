"""Which files belong to a rank that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidyprof.io.errors import ProfileReadError


def selected_rank(path: Path, parts: list[Any], rank: int | None) -> list[Any]:
    """Only the parts of `rank`; where no part states a rank, all of them get it."""
    if rank is None:
        return parts
    known = sorted({part.rank for part in parts if part.rank is not None})
    if known and rank not in known:
        raise ProfileReadError(
            path,
            f"no rank {rank}, only {', '.join(map(str, known))}",
            "a wrong rank was asked for, or that rank was not recorded",
            "leave rank out to read them all",
        )
    for part in parts:
        part.rank = part.rank if known else rank
    return [part for part in parts if part.rank == rank]

"""How much of a file may be unusable before the rest of it is not trusted either."""

from __future__ import annotations

from collections import Counter
from os import PathLike

from tidyprof.io.errors import ProfileReadError

MAXIMUM_DROPPED = 0.01
"""Share of a file's records that may be left out. A recording that lost more can mislead in what is left."""


def refuse_damage(
    path: str | PathLike[str], what: str, dropped: Counter[str], total: int, cause: str, next_step: str
) -> None:
    """Raise ProfileReadError if more than MAXIMUM_DROPPED of `total` records were left out.

    what    -- what the records are, in the plural.
    dropped -- reason -> number of records; reasons read as in "3 <what> <reason>".
    """
    count = dropped.total()
    if count <= MAXIMUM_DROPPED * total:
        return
    reasons = ", ".join(f"{number} {reason}" for reason, number in dropped.most_common(6))
    raise ProfileReadError(path, f"{count} of {total} {what} are unusable ({reasons})", cause, next_step)

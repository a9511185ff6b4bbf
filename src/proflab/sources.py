"""Origins of numbers. `proflab.source(x)` accepts a profile, table, figure, run or recording."""

from __future__ import annotations

import re

from proflab.errors import CourseError

_ERROR = re.compile(r", (error: [^;]+)")
"""Pattern for the model error in the origin of modeled numbers."""


def source(item: object) -> str:
    """Return the origin of `item` in the form that figures print: measured, recorded, modeled or
    compiled.

    `item` is an Origin or an object that has an Origin, such as a Profile, a table, a figure, a
    TrainingRun or a ledger experiment. Raises CourseError if the origin was lost.
    """
    from tidyprof.tables.contract import Origin

    found = item if isinstance(item, Origin) else getattr(item, "origin", None)
    attrs = getattr(item, "attrs", None)
    # A table may have a column named `origin`, so use only the table's attrs.
    if isinstance(attrs, dict):
        found = attrs.get("origin")
    text = str(found or "").strip()
    if not text:
        raise CourseError(
            f"this {type(item).__name__} has no origin. A join or groupby may have dropped the"
            ' origin. Copy it from the profile: table.attrs["origin"] = profile.origin'
        )
    return text


def stated(origin: object) -> str:
    """Return `origin` as a string, or "" for None. Raises CourseError if the origin was lost."""
    return "" if origin is None else origin.strip() if isinstance(origin, str) else source(origin)


def errors(origin: str) -> list[str]:
    """Return the model errors in an origin, such as `error: kernel time -3 %, ...`."""
    return list(dict.fromkeys(_ERROR.findall(origin)))


def brief(origin: str) -> str:
    """Return an origin without its errors, such as `modeled: MI300X`."""
    return _ERROR.sub("", origin)

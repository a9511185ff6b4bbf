"""Where numbers come from: `proflab.source(x)` for a profile, a table, a figure, a run or a
recording.
"""

from __future__ import annotations

import re

from proflab.errors import CourseError

_ERROR = re.compile(r", (error: [^;]+)")
"""The model's error in the origin of modeled numbers."""


def source(item: object) -> str:
    """The origin of `item` as figures print it: measured, recorded, modeled or compiled, and by
    what.

    Takes anything with an origin: a Profile or one of its results, a figure of `tidyprof.plots`, a
    TrainingRun, a Recording, an experiment of the ledger, an Origin itself. Raises CourseError,
    with the next step, if the origin was lost.
    """
    from tidyprof.tables.contract import Origin

    found = item if isinstance(item, Origin) else getattr(item, "origin", None)
    attrs = getattr(item, "attrs", None)
    # A column named origin would answer to `table.origin`, too: of a table only its attrs count.
    if isinstance(attrs, dict):
        found = attrs.get("origin")
    text = str(found or "").strip()
    if not text:
        raise CourseError(
            f"this {type(item).__name__} does not say where its numbers come from: joining,"
            " grouping or rebuilding a table loses it; take the origin from where the numbers"
            ' came: table.attrs["origin"] = profile.origin'
        )
    return text


def stated(origin: object) -> str:
    """A caller's `origin` as text: the text itself, that of something with an origin, "" for None.
    Raises CourseError as `source` does.
    """
    return "" if origin is None else origin.strip() if isinstance(origin, str) else source(origin)


def errors(origin: str) -> list[str]:
    """The errors of models in an origin, each once: `error: kernel time -3 %, ...`."""
    return list(dict.fromkeys(_ERROR.findall(origin)))


def brief(origin: str) -> str:
    """An origin without these errors: `modeled: MI300X`."""
    return _ERROR.sub("", origin)

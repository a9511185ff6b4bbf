"""Tables of several profiles as one."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from tidyprof.tables.contract import Profile


def join(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all tables one after the other, with the origin in `attrs` that covers them all.

    Different origins are listed, separated by semicolons. Raises ValueError if there is no table, if tables with rows
    have different columns, and if only some of the tables say where they come from.
    """
    tables = list(tables)
    if not tables:
        raise ValueError("there is no table to join")
    # Tables without rows would only widen the types of the others.
    filled = [table for table in tables if len(table)] or tables[:1]
    if any(set(table.columns) != set(filled[0].columns) for table in filled):
        raise ValueError("the tables to join have different columns")
    joined = pd.concat(filled, ignore_index=True)
    joined.attrs = {}
    if len({"origin" in table.attrs for table in tables}) > 1:
        raise ValueError("some tables to join do not say where their numbers come from")
    origins = list(dict.fromkeys(table.attrs["origin"] for table in tables if "origin" in table.attrs))
    if origins:
        joined.attrs["origin"] = origins[0] if len(origins) == 1 else "; ".join(map(str, origins))
    return joined


def each(profiles: Profile | Iterable[Profile]) -> Iterable[Profile]:
    """One profile or several, as an iterable; a generator is left to make them one at a time."""
    return [profiles] if isinstance(profiles, Profile) else profiles

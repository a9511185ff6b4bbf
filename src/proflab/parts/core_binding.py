"""Whether a binding of ranks to processor cores fits a node: lesson 07's open exercise.

A node is a table with a row for each GPU in the order of their numbers, with the columns first_core and last_core (the
cores near it) and reserved (one of them that a job does not get, or missing).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

LEAST_CORES = 3
"""Cores that a rank of the course's trainer needs: its own, and one for each of its two loader processes."""

Cores = frozenset[int]


def example_binding(node: pd.DataFrame) -> list[str]:
    """One right binding: GPUs that stand near the same cores share them equally, in order."""
    sharing = node.groupby(["first_core", "last_core"])
    sizes, places = sharing["gpu"].transform("size"), sharing.cumcount()
    found = []
    for gpu, size, place in zip(range(len(node)), sizes, places, strict=True):
        usable = sorted(_near(node, gpu) - _reserved(node))
        share = len(usable) // size
        found.append(f"{usable[place * share]}-{usable[(place + 1) * share - 1]}")
    return found


def binding_problem(answer: Any, node: pd.DataFrame) -> str | None:
    """What is wrong with a binding (for each local rank the text of its cores), None if it is good."""
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        return f"A list of {len(node)} texts is asked, one per local rank."
    if len(answer) != len(node):
        return f"{len(answer)} ranks are bound, the node has {len(node)} GPUs: one entry each."
    try:
        ranks = [parsed(text) for text in answer]
    except ValueError as error:
        return f"{error}."
    for rank, cores in enumerate(ranks):
        if problem := _rank_problem(rank, cores, node):
            return problem
        for other in range(rank):
            if shared := cores & ranks[other]:
                return f"Ranks {other} and {rank} share core {min(shared)}: they would take turns."
    return None


def parsed(text: str) -> Cores:
    """The cores of a text such as `49-55` or `1,2,4-6`. Raises ValueError for another one."""
    cores: set[int] = set()
    for part in str(text).replace(" ", "").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"`{text}` is no list of cores such as `49-55` or `1,2,4-6`")
        cores.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cores)


def _near(node: pd.DataFrame, gpu: int) -> Cores:
    row = node.iloc[gpu]
    return frozenset(range(int(row["first_core"]), int(row["last_core"]) + 1))


def _reserved(node: pd.DataFrame) -> Cores:
    return frozenset(int(core) for core in node["reserved"].dropna())


def _rank_problem(rank: int, cores: Cores, node: pd.DataFrame) -> str | None:
    near = _near(node, rank)
    if lost := cores & _reserved(node):
        return f"Rank {rank}: core {min(lost)} is reserved for the system, a job does not get it."
    if cores - near:
        return f"Rank {rank} is on core {min(cores - near)}, but GPU {rank} is near cores {min(near)}-{max(near)}."
    if len(cores) < LEAST_CORES:
        return f"Rank {rank} has {len(cores)} cores; with its loader processes it needs {LEAST_CORES}."
    return None

"""Ranks that leave early say so in the store; whose end would take the store away waits for the others' word."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

from torch.distributed import Store

PARTING_SECONDS = 10.0
"""Longest wait for the others' farewell: each has only to read why, and a rank that was killed never says it."""


def say_farewell(store: Store, rank: int) -> None:
    """This rank knows why the job ends, and needs the store no longer."""
    with suppress(RuntimeError):  # rank 0, which has it, may be gone
        store.set(_key(rank), "")


def wait_for_farewells(store: Store, ranks: Iterable[int]) -> None:
    """Return once all of these ranks have said farewell, or after PARTING_SECONDS."""
    with suppress(RuntimeError):
        store.wait([_key(rank) for rank in ranks], timedelta(seconds=PARTING_SECONDS))


def _key(rank: int) -> str:
    return f"farewell/{rank}"

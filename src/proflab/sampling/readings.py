"""What a sampler's source gives, and how it is written: one line per value, in tidyprof's own format."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

HEADER = "time_ns,device,name,value,unit"
"""First line of the file: `SAMPLER_COLUMNS` of tidyprof, spelled out so that the sampler needs no pandas."""

NOT_AVAILABLE = frozenset({0xFFFF, 0xFFFFFFFF, 2**64 - 1})
"""All bits set: how AMD's driver and libraries say that they do not know a value (amdsmi.h, amdsmi_interface.py)."""


class Reading(NamedTuple):
    """One value. `device` is None for the machine itself; `name` and `unit` as in `QUANTITIES` of tidyprof."""

    device: int | None
    name: str
    value: float
    unit: str


class Source(Protocol):
    """Something that can be sampled."""

    name: str
    """Library and version, for the notes of the run."""

    failed: dict[str, int]
    """Quantity or call -> how often it gave no value."""

    def read(self) -> list[Reading]:
        """All values now. What can't be read has no row and is counted in `failed`."""

    def close(self) -> None:
        """Let go of the library."""


class SourceUnavailable(Exception):  # noqa: N818 - a state, not a fault
    """A library is not here or sees no device; the text says which of them."""


def known(value: object, absent: Collection[float] = NOT_AVAILABLE) -> float | None:
    """The number, or None for what stands for "not available": `N/A`, a value in `absent`, not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return None if value in absent else value


def scaled(value: object, factor: float, absent: Collection[float] = NOT_AVAILABLE) -> float | None:
    """A known number times `factor`, None for an unknown one."""
    number = known(value, absent)
    return None if number is None else number * factor


def lines(time_ns: int, readings: Iterable[Reading]) -> str:
    """The readings of one moment (ns since 1970) as lines of the file."""
    return "".join(
        f"{time_ns},{'' if device is None else device},{name},{value:.15g},{unit}\n"
        for device, name, value, unit in readings
    )

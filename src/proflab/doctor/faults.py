"""Published faults of single versions, from known_faults.toml, as findings."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proflab.doctor.findings import Finding, Issue, Status

TABLE = Path(__file__).with_name("known_faults.toml")


@dataclass(frozen=True)
class Fault:
    """One fault: versions `first` through `last`, or up to but not including `fixed_in`; None is an open bound."""

    tool: str
    serious: bool
    what: str
    cure: str
    issue: Issue
    source: str
    first: str | None = None
    last: str | None = None
    fixed_in: str | None = None
    architectures: Sequence[str] = ()
    systems: Sequence[str] = ()

    def has(self, version: str) -> bool:
        """Whether this version has the fault."""
        number = parts(version)
        return (
            (self.first is None or number >= parts(self.first))
            and (self.last is None or number <= parts(self.last))
            and (self.fixed_in is None or number < parts(self.fixed_in))
        )


@functools.cache
def all_faults() -> tuple[Fault, ...]:
    """The table; a wrong entry raises TypeError or ValueError."""
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))["fault"]
    return tuple(_fault(**entry) for entry in entries)


def faults_of(
    tool: str, version: str, architectures: tuple[str, ...] = (), systems: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """A finding for each known fault of this version of `tool`.

    A fault of other GPUs or systems than those here is left out. Where there is none to compare with, it is a note.
    """
    for fault in all_faults():
        if fault.tool != tool or not fault.has(version):
            continue
        limits = [(set(fault.architectures), set(architectures)), (set(fault.systems), set(systems))]
        if any(wanted and here and not wanted & here for wanted, here in limits):
            continue
        is_certain = all(here for wanted, here in limits if wanted)
        status = Status.FIX if fault.serious and is_certain else Status.NOTE
        yield Finding(tool, status, f"{version}: {fault.what}", fault.cure, fault.issue)


def parts(version: str) -> tuple[int, int, int]:
    """The first three numbers of a version: "7.2.1-81" is (7, 2, 1), "7.2" is (7, 2, 0).

    Raises ValueError where there is no number at all.
    """
    found = [int(number) for number in re.findall(r"\d+", version.partition("-")[0].partition("+")[0])[:3]]
    if not found:
        raise ValueError(f"no version number in {version!r}")
    return tuple([*found, 0, 0][:3])


def _fault(**entry: Any) -> Fault:
    fault = Fault(**{**entry, "issue": Issue(entry["issue"])})
    for bound in filter(None, (fault.first, fault.last, fault.fixed_in)):
        parts(bound)
    if fault.last is None and fault.fixed_in is None:
        raise ValueError(f"{fault.issue}: a fault without a last version would never end")
    return fault

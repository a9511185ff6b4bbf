"""Known issues, from known_issues.toml: what the page, the tables of lessons and the doctor say of them."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from proflab.doctor.findings import Finding, Status

TABLE = Path(__file__).with_name("known_issues.toml")


@dataclass(frozen=True)
class Versions:
    """Versions of `tool` that have an issue: from `since` through `last`, or up to but not including `until`.

    "" is a bound that no source states. `note` is what else is known.
    """

    tool: str
    since: str = ""
    last: str = ""
    until: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for bound in filter(None, (self.since, self.last, self.until)):
            parts(bound)
        if self.last and self.until:
            raise ValueError(f"{self.tool}: an issue ends with `last` or with `until`, not with both")

    def has(self, version: str) -> bool:
        """Whether this version has the issue; raises ValueError where it holds no number."""
        number = parts(version)
        return (
            (not self.since or number >= parts(self.since))
            and (not self.last or number <= parts(self.last))
            and (not self.until or number < parts(self.until))
        )


@dataclass(frozen=True)
class Rule:
    """How the doctor names an issue: red if `serious`, and only for these GPUs, systems or builds (none: for all)."""

    serious: bool
    architectures: Sequence[str] = ()
    systems: Sequence[str] = ()
    builds: Sequence[str] = ()


@dataclass(frozen=True)
class KnownIssue:
    """One entry. `looked` is the day of the last look at its sources; `doctor` is None where it is no rule."""

    section: str
    heading: str
    symptom: str
    check: str
    cure: str
    versions: Versions
    sources: Sequence[str]
    looked: date
    brief: str = ""
    todo: str = ""
    doctor: Rule | None = None

    def __post_init__(self) -> None:
        if bool(self.brief) != bool(self.todo) or (self.doctor and not self.brief):
            raise ValueError(f"{self.heading}: brief and todo belong together, and to every rule of the doctor")
        if self.doctor and self.doctor.serious and not self.versions.last and not self.versions.until:
            raise ValueError(f"{self.heading}: a serious fault without a last version would never end")

    @property
    def anchor(self) -> str:
        """The name of its heading in an address, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


@functools.cache
def all_issues() -> dict[str, KnownIssue]:
    """The table by anchor, in its order; a wrong entry raises TypeError or ValueError."""
    sections = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    found = [_issue(section, heading, **entry) for section in sections for heading, entry in sections[section].items()]
    by_anchor = {issue.anchor: issue for issue in found}
    if len(by_anchor) < len(found):
        raise ValueError(f"{TABLE.name}: two headings have the same anchor")
    return by_anchor


def faults_of(
    tool: str,
    version: str,
    architectures: Sequence[str] = (),
    systems: Sequence[str] = (),
    builds: Sequence[str] = (),
) -> Iterator[Finding]:
    """A finding for each known fault of this version of `tool`.

    A fault of other GPUs, systems or builds than those here is left out. Where there is none to compare with, it is a
    note.
    """
    for issue in all_issues().values():
        rule = issue.doctor
        if rule is None or issue.versions.tool != tool or not issue.versions.has(version):
            continue
        limits = [(rule.architectures, architectures), (rule.systems, systems), (rule.builds, builds)]
        if any(wanted and here and not set(wanted) & set(here) for wanted, here in limits):
            continue
        is_certain = all(here for wanted, here in limits if wanted)
        status = Status.FIX if rule.serious and is_certain else Status.NOTE
        cure = f"{issue.todo[0].upper()}{issue.todo[1:]}."
        yield Finding(tool, status, f"{version}: {issue.brief}", cure, issue.anchor)


def parts(version: str) -> tuple[int, int, int]:
    """The first three numbers of a version: "7.2.1-81" is (7, 2, 1), "7.2" is (7, 2, 0).

    Raises ValueError where there is no number at all.
    """
    found = [int(number) for number in re.findall(r"\d+", version.partition("-")[0].partition("+")[0])[:3]]
    if not found:
        raise ValueError(f"no version number in {version!r}")
    return tuple([*found, 0, 0][:3])


def _issue(section: str, heading: str, versions: dict, doctor: dict | None = None, **entry: Any) -> KnownIssue:
    rule = None if doctor is None else Rule(**doctor)
    return KnownIssue(section, heading, versions=Versions(**versions), doctor=rule, **entry)

"""Convert a diagnosis to lines of text or to JSON. These functions don't compute anything."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from tidyprof.analyses.common import four_digits
from tidyprof.triage.facts import Fact, in_words, percent
from tidyprof.triage.rules import Part
from tidyprof.triage.verdict import Diagnosis

WIDTH = 80
"""The width of the report in columns. Narrower terminals wrap its lines."""

LABEL = 9

NAME, MS, PERCENT = 22, 9, 6

PAGE = "docs/triage.md"
"""The page that explains each cause and shows a fix in code. Each cause has an anchor."""

_STATED = [
    "cause",
    "confident",
    "share",
    "headline",
    "why",
    "next_step",
    "doubts",
    "notes",
    "alternatives",
    "origins",
]
"""The fields of a diagnosis that JSON contains under the same names."""

Line = tuple[str, str]
"""A line of the report and its style, which is `bold` or empty."""


def headline(found: Diagnosis) -> str:
    """Return the verdict in one sentence."""
    missing = f"; {' and '.join(found.broken)} missing" if found.broken else ""
    trust = "confident" if found.confident else "not confident"
    doubt = "" if found.cause == "inconclusive" else f" ({trust})"
    return f"{found.cause}{doubt}: {found.headline}{missing}"


def where_to_read(found: Diagnosis) -> str:
    """Return a sentence that names the page and the lesson that explain the cause."""
    lesson = f"lesson {found.lesson} and " if found.lesson else ""
    return f"Read {lesson}{PAGE}#{found.cause}."


def report(
    found: Diagnosis, why: bool = False, notes: Sequence[str] = (), details: Sequence[str] = ()
) -> Iterator[Line]:
    """Yield the lines of the report.

    - why: whether to include the evidence.
    - notes: remarks about the run that every reader should see.
    - details: remarks about the run that are part of the evidence.
    """
    for label, text in summary(found):
        for line in labeled(label, text):
            yield line, "bold" if label == "Verdict" else ""
    yield "", ""
    if found.parts:
        for part in table(found):
            yield part, "bold" if part.endswith("<- cause") else ""
        yield "", ""
    for label, text in remarks(found, notes):
        for line in labeled(label, text):
            yield line, ""
    if why:
        yield from ((line, "") for line in [*evidence(found), *_section("", details)])
    else:
        yield from ((line, "") for line in labeled("More", "--why shows the evidence."))


def summary(found: Diagnosis) -> list[Line]:
    """Return the labels and sentences that precede the table of parts."""
    return [
        ("Verdict", headline(found)),
        ("Why", found.why),
        ("Next", found.next_step),
        ("", where_to_read(found)),
    ]


def remarks(found: Diagnosis, notes: Sequence[str] = ()) -> list[Line]:
    """Return the labels and sentences that follow the table of parts."""
    texts = {
        "Doubt": found.doubts if found.cause != "inconclusive" else found.doubts[1:],
        "Note": (*found.notes, *notes),
        "Source": found.origins,
    }
    return [
        ("" if number else label, text)
        for label, lines in texts.items()
        for number, text in enumerate(lines)
    ]


def labeled(label: str, text: str) -> list[str]:
    """Wrap a text into lines, with a label at the start of the first line."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=label.ljust(LABEL),
        subsequent_indent=" " * LABEL,
        break_long_words=True,
        break_on_hyphens=False,
    )


def table(found: Diagnosis) -> list[str]:
    """Return the lines of the table of parts. The last row is the sum."""
    lines = [_row("part", "ms", "%")]
    for part in found.parts:
        lines.append(_row(*cells(part)) + ("  <- cause" if part.is_cause else ""))
    note = textwrap.wrap(found.step_note, WIDTH - NAME - MS - PERCENT - 2) or [""]
    lines.append(f"{_row('step', _ms(found.step_ns), '100')}  {note[0]}".rstrip())
    return lines + [" " * (NAME + MS + PERCENT + 2) + line for line in note[1:]]


def cells(part: Part) -> tuple[str, str, str]:
    """Return the cells of one row in the table of parts."""
    return part.name, _ms(part.ns), percent(part.share).rstrip("%")


def _row(name: str, ms: str, share: str) -> str:
    return f"{name:<{NAME}}{ms:>{MS}}{share:>{PERCENT}}"


def _ms(ns: float) -> str:
    return four_digits(ns / 1e6)


def evidence(found: Diagnosis) -> Iterator[str]:
    """Yield the lines of the evidence, such as other causes, unusual findings, facts with their
    source tables, and facts that the files can't show.
    """
    if found.alternatives:
        yield from _section("", [f"Also limits the run: {', '.join(found.alternatives)}"])
    facts = [
        f"{one.name.removesuffix('_ns')} = {value_of(one)} [{one.source}]" for one in found.facts
    ]
    yield from _section("Facts, with the table behind each one", facts)
    yield from _section("Not in these files", found.unknown)


def _section(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield ""
    if texts and title:
        yield title
    first = "  " if title else ""
    for text in texts:
        yield from textwrap.wrap(
            text,
            WIDTH,
            initial_indent=first,
            subsequent_indent=f"{first}  ",
            break_on_hyphens=False,
        )


def value_of(fact: Fact) -> str:
    """Return the value of a fact as a string with its unit."""
    value = in_words(fact.value, fact.unit)
    plain = isinstance(fact.value, str | bool) or fact.unit == "ns"
    return value if plain else f"{value} {fact.unit}".rstrip()


def as_dict(found: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as a dictionary for JSON, with shares from 0 to 1 and times in ms.

    Facts keep their units.
    """
    overhead, estimated = found.overhead, found.overhead.estimated
    return {
        **{name: getattr(found, name) for name in _STATED},
        "read": where_to_read(found),
        "parts": [
            {
                "name": one.name,
                "ms": one.ns / 1e6,
                "percent": 100 * one.share,
                "cause": one.is_cause,
            }
            for one in found.parts
        ],
        "step": {"ms": found.step_ns / 1e6 or None, "note": found.step_note},
        "overhead": {
            "traced_step_ms": overhead.traced_ns / 1e6 or None,
            "measured_step_ms": overhead.measured_ns and overhead.measured_ns / 1e6,
            "estimated_step_ms": estimated and [estimated.low / 1e6, estimated.high / 1e6],
            "events_per_step": overhead.events,
        },
        "missing_ranks": found.broken,
        "not_in_the_files": found.unknown,
        "facts": [one._asdict() for one in found.facts],
    }


def as_json(found: Diagnosis) -> str:
    """Return the diagnosis as JSON."""
    return json.dumps(as_dict(found), indent=1, default=float) + "\n"

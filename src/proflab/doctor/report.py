"""All findings as a table for people, and as JSON for programs."""

from __future__ import annotations

import io
import json
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

from proflab.display import Table
from proflab.doctor.findings import Finding, Status
from proflab.doctor.rows import SECTIONS, TITLES

FORMAT = 1
"""Version of the JSON. New keys may come; a key that changes its meaning raises this number."""

COLOURS = {
    Status.OK: "green",
    Status.NOTE: "yellow",
    Status.FIX: "bold red",
    Status.UNKNOWN: "magenta",
    Status.NOT_NEEDED: "dim",
}
"""Each status also stands there as a word, so nothing depends on telling colours apart."""

DOCUMENT = "docs/known-issues.md"


@dataclass(frozen=True)
class Report:
    """The findings in the table's order, and how long it took to get them."""

    findings: tuple[Finding, ...]
    seconds: float

    @classmethod
    def of(cls, findings: Iterable[Finding], seconds: float) -> Report:
        """A report with the rows sorted; several findings of one key stay in their order."""
        place = {key: number for number, key in enumerate(TITLES)}
        return cls(tuple(sorted(findings, key=lambda finding: place[finding.key])), seconds)

    @property
    def exit_code(self) -> int:
        """1 if something has to be fixed, else 0."""
        return int(any(finding.status is Status.FIX for finding in self.findings))

    @property
    def summary(self) -> str:
        """How many rows there are of each status, in one line."""
        count = Counter(finding.status for finding in self.findings)
        return f"{', '.join(f'{count[status]} {status}' for status in Status if count[status])}; {self.seconds:.1f} s"

    def as_json(self) -> str:
        """One JSON object: format, ok, seconds, counts and findings (key, title, section, status, found, cure, issue).

        `cure` and `issue` are null where there is none; `issue` is an address within the project.
        """
        counts = Counter(finding.status for finding in self.findings)
        record = {
            "format": FORMAT,
            "ok": self.exit_code == 0,
            "seconds": round(self.seconds, 3),
            "counts": {status.value: counts[status] for status in Status},
            "findings": [_as_record(finding) for finding in self.findings],
        }
        return json.dumps(record, indent=2, ensure_ascii=False)

    def table(self) -> Table:
        """The rows for a notebook, with the advice below."""
        rows = [(TITLES[finding.key], finding.status.value, finding.found) for finding in self.findings]
        notes = [self.summary, *(f"{head}: {advice}" for _, head, advice in self._advice())]
        return Table("What is here", ("check", "status", "found"), rows, "\n".join(notes))

    def print(self, target: IO[str], width: int) -> None:
        """Print the table and below it one line of advice per row that has some, wrapped to `width` columns.

        In colour if `target` is a terminal and NO_COLOR is not set.
        """
        from rich.console import Console
        from rich.text import Text

        drawn = io.StringIO()
        console = Console(file=drawn, width=width, force_terminal=target.isatty(), force_jupyter=False, highlight=False)
        console.print(self._rich_table())
        for status, heading in ((Status.FIX, "To fix"), (Status.UNKNOWN, "To find out"), (Status.NOTE, "Notes")):
            advice = [f"{head}: {text}" for found, head, text in self._advice() if found is status]
            if advice:
                console.print(Text(f"\n{heading}", style=COLOURS[status]))
            for line in advice:
                wrapped = textwrap.wrap(line, width - 2, subsequent_indent="  ", break_on_hyphens=False)
                console.print(Text("\n".join(f"  {part}" for part in wrapped)), soft_wrap=True)
        console.print(Text(f"\n{self.summary}"), soft_wrap=True)
        target.writelines(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines())

    def _advice(self) -> list[tuple[Status, str, str]]:
        """Status, title and text of each row that has advice; what is fine gives none but still may give a hint."""
        return [
            (
                Status.NOTE if finding.status in (Status.OK, Status.NOT_NEEDED) else finding.status,
                TITLES[finding.key],
                finding.cure + (f" See {DOCUMENT}#{finding.issue}" if finding.issue else ""),
            )
            for finding in self.findings
            if finding.cure
        ]

    def _rich_table(self) -> Any:
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, pad_edge=False, show_header=False)
        table.add_column("check", no_wrap=True)
        table.add_column("status", no_wrap=True)
        table.add_column("found", overflow="fold")
        for section, titles in SECTIONS.items():
            rows = [finding for finding in self.findings if finding.key in titles]
            if rows:
                table.add_row(Text(section, style="bold"))
            for finding in rows:
                status = Text(finding.status, style=COLOURS[finding.status])
                table.add_row(Text(f"  {titles[finding.key]}"), status, Text(finding.found))
        return table


def _as_record(finding: Finding) -> dict[str, str | None]:
    section = next(name for name, titles in SECTIONS.items() if finding.key in titles)
    return {
        "key": finding.key,
        "title": TITLES[finding.key],
        "section": section,
        "status": finding.status.value,
        "found": finding.found,
        "cure": finding.cure or None,
        "issue": f"{DOCUMENT}#{finding.issue}" if finding.issue else None,
    }

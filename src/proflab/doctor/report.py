"""All findings as a table for people, and as JSON for programs.

Also the rows of the table: their order, their titles, and the probes that fill them.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from proflab.display import Table
from proflab.doctor.findings import Finding, Probe, Status, all_issues
from proflab.doctor.probes import cluster, course, gpu, limits, pytorch, rocm, tools
from tidyprof.standard_streams import joined, parted

FORMAT = 1
"""Version of the JSON. New keys may be added; a key that changes its meaning raises this number."""

COLOURS = {
    Status.OK: "\x1b[38;5;29m",
    Status.NOTE: "\x1b[38;5;63m",
    Status.FIX: "\x1b[1;38;5;131m",
    Status.UNKNOWN: "\x1b[38;5;163m",
    Status.NOT_NEEDED: "\x1b[38;5;243m",
}
"""Green, blue, bold red, magenta, grey: those of xterm's 256 colours that can be read both on black
and on white.

Each status is also written as a word, so nothing depends on telling colours apart.
"""

PLAIN = "\x1b[0m"

DOCUMENT = "docs/known-issues.md"


@dataclass(frozen=True)
class Report:
    """The findings in the table's order, and the time in seconds that they took."""

    findings: tuple[Finding, ...]
    seconds: float

    @classmethod
    def of(cls, findings: Iterable[Finding], seconds: float) -> Report:
        """A report with its rows sorted; several findings of one key keep their order."""
        place = {key: number for number, key in enumerate(TITLES)}
        return cls(tuple(sorted(findings, key=lambda finding: place[finding.key])), seconds)

    @property
    def exit_code(self) -> int:
        """1 if there is something to fix, else 0."""
        return int(any(finding.status is Status.FIX for finding in self.findings))

    @property
    def summary(self) -> str:
        """The number of rows of each status and what to do next, in one line."""
        count = Counter(finding.status for finding in self.findings)
        rows = ", ".join(
            f"{count[status]} {status}{'s' if status is Status.NOTE and count[status] > 1 else ''}"
            for status in Status
            if count[status]
        )
        then = "fix these first" if self.exit_code else "nothing to fix, go on with `make lab`"
        return f"{rows}; {self.seconds:.1f} s: {then}"

    def as_json(self) -> str:
        """One JSON object: format, ok, seconds, counts, findings and the known issues of this
        stack.

        A finding has key, title, section, status, found, cure and issue; `cure` and `issue` are
        null if there are none, and `issue` is an address within the project. A known issue has this
        address and the values of its entry.
        """
        counts = Counter(finding.status for finding in self.findings)
        record = {
            "format": FORMAT,
            "ok": self.exit_code == 0,
            "seconds": round(self.seconds, 3),
            "counts": {status.value: counts[status] for status in Status},
            "findings": [_as_record(finding) for finding in self.findings],
            "issues": [
                _as_issue(anchor)
                for anchor in dict.fromkeys(one.issue for one in self.findings)
                if anchor
            ],
        }
        return json.dumps(record, indent=2, ensure_ascii=False)

    def table(self) -> Table:
        """The rows for a notebook, with the advice below them."""
        rows = [
            (TITLES[finding.key], finding.status.value, finding.found) for finding in self.findings
        ]
        notes = [self.summary, *(f"{head}: {advice}" for _, head, advice in self._advice())]
        return Table("What is here", ("check", "status", "found"), rows, "\n".join(notes))

    def print(self, target: IO[str], width: int) -> None:
        """Print the table and below it one line of advice for each row that has some, wrapped to
        `width` columns.

        In colour if `target` is a terminal and NO_COLOR is not set.
        """
        colours = COLOURS if target.isatty() and not os.environ.get("NO_COLOR") else {}
        lines = []
        # A status takes 12 columns: the longest, `not needed`, and two blanks.
        column = max(map(len, TITLES.values())) + 4
        for section, titles in SECTIONS.items():
            rows = [finding for finding in self.findings if finding.key in titles]
            lines += [section] if rows else []
            for finding in rows:
                text = _wrapped(finding.found, width, " " * (column + 12))
                colour, plain = colours.get(finding.status, ""), PLAIN if colours else ""
                status = f"{colour}{finding.status:<12}{plain}"
                lines.append(f"  {titles[finding.key]:<{column - 2}}{status}{text[column + 12 :]}")
        for wanted, heading in (
            (Status.FIX, "To fix"),
            (Status.UNKNOWN, "To find out"),
            (Status.NOTE, "Notes"),
        ):
            advice = [f"{head}: {text}" for found, head, text in self._advice() if found is wanted]
            lines += [f"\n{heading}"] if advice else []
            lines += [_wrapped(line, width, "    ")[2:] for line in advice]
        target.write("\n".join([*lines, f"\n{self.summary}", ""]))

    def _advice(self) -> list[tuple[Status, str, str]]:
        """Status, title and text of each row that has advice: its cure or, if nothing is wrong, a
        hint.
        """
        return [
            (
                Status.NOTE if finding.status in (Status.OK, Status.NOT_NEEDED) else finding.status,
                TITLES[finding.key],
                finding.cure + (f" See {DOCUMENT}#{finding.issue}" if finding.issue else ""),
            )
            for finding in self.findings
            if finding.cure
        ]


def _wrapped(text: str, width: int, indent: str) -> str:
    """The text within `width` columns, each line after `indent`."""
    wrap = textwrap.TextWrapper(
        width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return parted(wrap.fill(joined(text))) or indent


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


def _as_issue(anchor: str) -> dict[str, object]:
    issue = all_issues()[anchor]
    bounds = {
        name: getattr(issue.versions, name) or None
        for name in ("tool", "since", "last", "until", "note")
    }
    texts = {name: getattr(issue, name) for name in ("heading", "symptom", "check", "cure")}
    kept = {"sources": list(issue.sources), "looked": issue.looked.isoformat()}
    return {"issue": f"{DOCUMENT}#{anchor}", **texts, "versions": bounds, **kept}


_ROWS = """
GPU: amd-gpu = AMD GPU, amd-driver = AMD driver, gpu-access = access to the GPU,
    gpu-visibility = visible GPUs, nvidia-gpu = NVIDIA GPU
ROCm and tools: rocm = ROCm, rocprofv3 = rocprofv3, rocprof-sys = rocprof-sys,
    rocprof-compute = rocprof-compute, rpd = rpd, amd-smi = amd-smi,
    rocm-smi = rocm-smi, omnistat = omnistat, rocminfo = rocminfo,
    tools-loaded = preloaded tools, rocprofv3-kernel = rocprofv3 at work
PyTorch: python = Python, torch = torch, torch-device = torch at work,
    torch-profiler = torch.profiler, bfloat16 = bfloat16, collectives = RCCL or NCCL
Cluster: slurm = Slurm, mpi = MPI, ranks = ranks
Limits: cores = cores, memory = memory, disk-runs = space for results,
    disk-temporary = temporary space,
    miopen-cache = MIOpen databases, perf-counters = CPU counters, ptrace-scope = attaching
Course: data = data set, jupyter = notebook's address, perfetto = Perfetto
"""


def _sections(text: str) -> dict[str, dict[str, str]]:
    lines = (line.partition(": ") for line in text.replace(",\n", ",").strip().splitlines())
    return {
        name: dict(row.strip().split(" = ") for row in rows.split(",")) for name, _, rows in lines
    }


SECTIONS = _sections(_ROWS)
"""Section -> key of a row -> its title. Keys are stable: scripts may rely on them."""

TITLES = {key: title for rows in SECTIONS.values() for key, title in rows.items()}

PROBES: tuple[Probe, ...] = tuple(
    probe
    for module in (gpu, rocm, tools, pytorch, cluster, limits, course)
    for probe in module.PROBES
)

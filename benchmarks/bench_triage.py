"""Write every verdict whose truth is known into docs/contributors/triage-files.csv, and how many are
right into docs/contributors/validation.md: `python -m benchmarks.bench_triage`. It times nothing.
"""

from __future__ import annotations

from benchmarks.page import DOCS, write_part
from benchmarks.triage_files import as_csv, rates, table

PAGE, FILES = DOCS / "contributors/validation.md", DOCS / "contributors/triage-files.csv"


def main() -> None:
    """Write the table and the rates."""
    rows = table()
    FILES.write_text(as_csv(rows), encoding="utf-8")
    write_part(PAGE, "verdicts", rates(rows))


if __name__ == "__main__":
    main()

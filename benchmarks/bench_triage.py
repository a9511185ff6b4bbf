"""Write every verdict with a known truth into docs/contributors/triage-files.csv.

The rates of right verdicts go into docs/contributors/validation.md. Nothing here is a timing. Run
it with `python -m benchmarks.bench_triage`.
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

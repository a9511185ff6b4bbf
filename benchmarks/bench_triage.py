"""Write the tables of files, on which `tidyprof triage` is right or wrong, into docs/triage.md and
docs/contributors/triage-files.md: `python -m benchmarks.bench_triage`. It times nothing.
"""

from __future__ import annotations

from benchmarks.page import DOCS, write_part
from benchmarks.triage_files import (
    gpu_forms,
    gpu_rates,
    listed,
    rates,
    run_rates,
    run_verdicts,
    third_party,
)

PAGE, FILES = DOCS / "triage.md", DOCS / "contributors/triage-files.md"


def main() -> None:
    """Write the tables."""
    write_part(PAGE, "programs on a GPU", gpu_rates())
    write_part(FILES, "forms on a GPU", gpu_forms())
    write_part(PAGE, "unmodified programs", run_rates())
    write_part(FILES, "unmodified programs", run_verdicts())
    found = third_party()
    write_part(PAGE, "third-party", rates(found))
    for part, own in zip(
        ("recordings", "first scripts", "new scripts"), found.values(), strict=True
    ):
        write_part(FILES, part, listed(own))


if __name__ == "__main__":
    main()

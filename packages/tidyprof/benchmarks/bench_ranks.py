"""What `tidyprof triage` needs for the ranks of large jobs: processor time, wall time and memory.

    python -m benchmarks.bench_ranks [RANKS ...]

Every rank's file is one modeled rank of `recordings/modeled-rank-skew`, with its own number and
begun up to six microseconds later. The table goes into packages/tidyprof/docs/README.md.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.page import DOCS, write_part

TEMPLATE = DOCS.parent / "recordings/modeled-rank-skew/torch/trace_rank0_of_4.json.gz"
RANKS = (125, 250, 512, 1000)
MANY, LARGEST_MB = 512, 1000
"""Ranks of a job, and what their triage may take of memory."""


def write_ranks(folder: Path, ranks: int) -> None:
    """One trace for each rank, alike but for the rank and the time at which it began."""
    trace = msgspec.json.decode(gzip.decompress(TEMPLATE.read_bytes()))
    timed = [(event, event["ts"]) for event in trace["traceEvents"] if "ts" in event]
    for rank in range(ranks):
        for event, begin in timed:
            event["ts"] = begin + rank % 7
        trace["distributedInfo"] |= {"rank": rank, "world_size": ranks}
        content = gzip.compress(msgspec.json.encode(trace), compresslevel=1)
        (folder / f"trace_rank{rank}_of_{ranks}.json.gz").write_bytes(content)


def measure(folder: Path) -> str:
    """Processor time for each rank, wall time, and memory."""
    command = ["-m", "tidyprof", "triage", str(folder)]
    ranks, begin = len(list(folder.glob("*.json.gz"))), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    complaints = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"triage ended with {status}: {complaints}")
    each, wall = 1000 * (used.ru_utime + used.ru_stime) / ranks, time.perf_counter() - begin
    return f"{each:,.0f} ms, {wall:,.0f} s, {used.ru_maxrss / 1000:,.0f} MB"


def measured(ranks: int) -> str:
    """One cell of the table."""
    with tempfile.TemporaryDirectory() as place:
        write_ranks(Path(place), ranks)
        found = measure(Path(place))
    print(ranks, found, file=sys.stderr, flush=True)
    return found


def test_triage_of_many_ranks(tmp_path: Path) -> None:
    """Shown, with its memory as bar: processor time a rank, wall time and memory of `tidyprof
    triage FOLDER`.
    """
    write_ranks(tmp_path, MANY)
    found = measure(tmp_path)
    print(f"{MANY} ranks: {found}")
    assert int(found.split()[-2].replace(",", "")) < LARGEST_MB


def table(columns: dict[int, str]) -> str:
    """The figures as Markdown."""
    lines = [
        "| ranks | " + " | ".join(f"{ranks:,}" for ranks in columns) + " |",
        "| --- |" + " --: |" * len(columns),
    ]
    lines.append("| `tidyprof triage FOLDER` | " + " | ".join(columns.values()) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """All runs, and the table."""
    chosen = [int(ranks) for ranks in sys.argv[1:]] or RANKS
    write_part(
        DOCS / "tidyprof/README.md", "ranks", table({ranks: measured(ranks) for ranks in chosen})
    )


if __name__ == "__main__":
    main()

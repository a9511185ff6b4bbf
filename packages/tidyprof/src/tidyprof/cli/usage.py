"""Definitions that the options and the commands share: defaults, formats of tables, examples."""

from __future__ import annotations

TOP_IN_TERMINAL = 20
"""Rows of long tables on a terminal; a pipe or a file gets all of them."""

STDOUT = "-"
"""The argument of --json for standard output; nothing else is shown then."""

JSON = "as JSON (-: to standard output, in place of what is shown)"
"""The help's text on --json."""

EXPORTS = {
    "csv": "as comma-separated values",
    "json": JSON,
    "parquet": "as Parquet (needs pyarrow)",
}
"""Format of an exported table, which is also the name of its option -> the help's text on it."""

EXAMPLES = {
    "summary": ("trace.json.gz", "traces_of_ranks", "trace.json.gz --steps 10-12"),
    "table": (
        "kernels trace.json.gz --top 10",
        "steps run.rpd --step-marker aten::conv2d --json steps.json",
        "compare on_mi300x.json.gz on_h100.json.gz --by operator",
    ),
    "gate": ("runs_before runs_after --fail-above 3%", "base new --paired --metric validation"),
    "triage": ("trace.json.gz", "traces_of_ranks monitoring.csv --html triage.html"),
    "run": (
        "-- python train.py --epochs 3",
        "--with-stack -- torchrun --nproc-per-node 4 train.py",
    ),
    "hang": ("dumps", "dumps --json hang.json"),
    "isa": ("kernel.amdgcn", "~/.triton/cache --fail-on-spill"),
    "convert": ("run.rpd run.json.gz", "results.db trace.json"),
}
"""Command -> examples of its arguments."""

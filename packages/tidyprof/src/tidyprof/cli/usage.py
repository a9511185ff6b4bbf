"""Definitions for options and commands, such as defaults, export formats and examples."""

from __future__ import annotations

TOP_IN_TERMINAL = 20
"""The default number of table rows on a terminal. Pipes and files receive all rows."""

STDOUT = "-"
"""The --json argument that selects standard output. With this argument, commands print nothing
else.
"""

JSON = "as JSON (-: to standard output, instead of the report)"
"""Help text of --json."""

EXPORTS = {
    "csv": "as comma-separated values",
    "json": JSON,
    "parquet": "as Parquet (needs tidyprof[rocm])",
}
"""The help text for each export format. Each format has an option with the same name."""

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
"""Example arguments for each command."""

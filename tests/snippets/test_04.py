"""The snippets of lesson 04 on kernels written by hand."""

from __future__ import annotations

from pathlib import Path

from tests.snippets.conftest import Run

KERNELS = [(0, 10), (5, 20), (6, 8), (40, 60)]
"""Start and end in ns: from 0 to 20 and from 40 to 60 of 60 something runs."""


def test_busy_time_is_that_of_the_union(bare: Run, tmp_path: Path) -> None:
    rows = [f'"KERNEL_DISPATCH","Agent 4","void f<a, b>(int)",{start},{end}' for start, end in KERNELS]
    head = '"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"'
    (tmp_path / "kernel_trace.csv").write_text("\n".join([head, *rows]))
    done = bare("python", "snippets/04_busy_time.py", "kernel_trace.csv")
    assert done.stdout == "Agent 4: 4 kernels, busy 66.7 % of 0.0 ms\n"

"""The snippets of lesson 02: a loop that is profiled, and traces written by hand and by that
loop.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.snippets.conftest import Run


def test_a_loop_leaves_one_trace_a_rank_and_prints_its_tables(bare: Run, tmp_path: Path) -> None:
    done = bare("python", "snippets/02_profile_a_loop.py", "traces", RANK="0")
    assert "aten::addmm" in done.stdout
    assert "[64, 512]" in done.stdout
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["trace_rank0.json.gz"]
    assert (
        "aten::" not in bare("python", "snippets/02_profile_a_loop.py", "traces", RANK="3").stdout
    )
    assert (tmp_path / "traces/trace_rank3.json.gz").is_file()
    read = bare("python", "snippets/02_trace_to_table.py", "traces/trace_rank0.json.gz").stdout
    assert "0 on a device, 3 steps" in read
    assert "ProfilerStep#5" in read
    trace = gzip.decompress((tmp_path / "traces/trace_rank0.json.gz").read_bytes()).decode()
    assert "DataLoaderIter.__next__" in trace
    assert "aten::addmm" in read

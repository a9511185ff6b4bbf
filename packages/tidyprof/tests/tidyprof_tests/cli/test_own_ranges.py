"""`steps` names the script's own ranges, where they are no phase that every training has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidyprof.cli.main import main
from tidyprof_tests.chrome_writer import TraceEvent, operator, write_trace

MS = 1_000_000


def test_ranges_of_other_names_are_told_with_their_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Steps of 100 ms: 5 in `data`, 60 in `generate`, of these 20 in `sample`, and 30 in
    `forward`.
    """
    events = []
    for step in range(3):
        begin = MS + step * 100 * MS
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 100 * MS),
            TraceEvent("user_annotation", "data", begin, 5 * MS),
            TraceEvent("user_annotation", "generate", begin + 5 * MS, 60 * MS),
            TraceEvent("user_annotation", "sample", begin + 10 * MS, 20 * MS),
            TraceEvent("user_annotation", "forward", begin + 65 * MS, 30 * MS),
            operator("aten::mm", begin + 5 * MS, 90 * MS, step),
        ]
    path = write_trace(
        tmp_path / "trace.json", events, header={"schemaVersion": 1, "deviceProperties": []}
    )
    assert main(["steps", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "of other: generate 60.0 %, sample 20.0 % of all steps, the script's own ranges" in shown
    assert "forward 30" not in shown.partition("of other")[2]

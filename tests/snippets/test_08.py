"""The snippets of lesson 08: the cures on a training of their own, and the judge on times and
losses made by hand.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.snippets.conftest import Run


def test_each_cure_trains_and_keeps_the_losses(bare: Run, tmp_path: Path) -> None:
    small = ("--steps", "8", "--warmup", "0", "--batch-size", "16")
    runs = {
        "plain": (),
        "arithmetic": ("--fused", "--channels-last"),
        "loader": ("--workers", "1", "--pin", "--whole-batches"),
    }
    losses = {}
    for name, switches in runs.items():
        bare("python", "snippets/08_fixes.py", f"{name}.csv", *small, *switches)
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 8
        assert all(float(row["seconds"]) > 0 for row in rows)
        losses[name] = [float(row["loss"]) for row in rows]
        assert losses[name][-1] < losses[name][0]
    assert losses["arithmetic"] == pytest.approx(losses["plain"], rel=1e-2)

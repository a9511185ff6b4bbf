"""The snippets of lesson 08: the cures on a training of their own, and the judge on times and
losses made by hand.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.snippets.conftest import Run


def write(
    folder: Path, name: str, seconds: float, losses: list[float] | None = None, steps: int = 8
) -> None:
    """One run: equal steps, and losses that are given or fall from 4 to 1."""
    losses = losses or [4 - 3 * step / (steps - 1) for step in range(steps)]
    lines = [f"{seconds},{loss}" for loss in losses]
    (folder / name).write_text("\n".join(["seconds,loss", *lines]))


def judged(bare: Run) -> list[str]:
    return bare(
        "python", "snippets/08_compare_two_runs.py", "plain_*.csv", "cured_*.csv"
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(0.5, "faster"), (2.0, "slower"), (1.0, "can't tell: the interval contains 1")],
)
def test_the_judge_needs_more_than_the_noise(
    factor: float, verdict: str, bare: Run, tmp_path: Path
) -> None:
    for place, noise in enumerate((1.0, 1.02, 0.98, 1.01, 0.99)):
        write(tmp_path, f"plain_{place}.csv", noise)
        write(tmp_path, f"cured_{place}.csv", factor * noise)
    times, losses = judged(bare)
    assert times.startswith(f"speed-up {1 / factor:.4f} times (95 % interval")
    assert times.endswith(f": {verdict}")
    assert losses == "losses: 1.214 and 1.214 at the end, 0.0 % of the fall apart: alike"


def test_the_judge_says_what_it_can_not_tell(bare: Run, tmp_path: Path) -> None:
    write(tmp_path, "plain_0.csv", 1.0)
    write(tmp_path, "cured_0.csv", 0.5, [4.0, 4.0, 4.0, 4.0])
    times, losses = judged(bare)
    assert times == "can't tell: 1 and 1 runs, 5 of each are needed (ratio 2.000)"
    # Last quarters 1.214 and 4: 2.786 apart, of a fall of 2.786.
    assert losses.endswith("100.0 % of the fall apart: NOT alike")
    write(tmp_path, "plain_0.csv", 1.0, [4.0, 5.0, 6.0, 8.0])
    assert judged(bare)[1] == "losses: can't tell: even before the change it does not fall, 4 to 8"
    write(tmp_path, "plain_0.csv", 1.0, [4.0, float("nan")])
    assert judged(bare)[1] == "losses: not all are finite"
    (tmp_path / "plain_0.csv").write_text("seconds\n1\n")
    assert judged(bare)[1] == "losses: none in the files, so nobody knows whether it still trains"
    (tmp_path / "plain_0.csv").unlink()
    assert (
        bare(
            "python", "snippets/08_compare_two_runs.py", "plain_*.csv", "cured_*.csv", check=False
        ).returncode
        == 1
    )


def test_each_cure_trains_and_keeps_the_losses(bare: Run, tmp_path: Path) -> None:
    small = ("--steps", "8", "--warmup", "0", "--batch-size", "16")
    runs = {
        "plain": (),
        "arithmetic": ("--fused", "--channels-last"),
        "loader": ("--workers", "1", "--pin", "--whole-batches"),
    }
    losses = {}
    for name, switches in runs.items():
        bare("python", "snippets/08_cures.py", f"{name}.csv", *small, *switches)
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 8
        assert all(float(row["seconds"]) > 0 for row in rows)
        losses[name] = [float(row["loss"]) for row in rows]
        assert losses[name][-1] < losses[name][0]
    assert losses["arithmetic"] == pytest.approx(losses["plain"], rel=1e-2)

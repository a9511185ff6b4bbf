"""The snippets of lesson 13: the judge of step times agrees with the gate, the collector keeps what
is there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.snippets.conftest import Run
from tidyprof import Origin
from tidyprof.gate.runs import RunTimes
from tidyprof.gate.verdict import Verdict, judge

NOISE = (1.0, 1.012, 0.991, 1.004, 0.996, 1.007, 0.999, 1.002, 1.005)
WARM_UP = 3


def write_side(folder: Path, seconds: float, noises: Sequence[float], lines: bool = False) -> None:
    """A run for each of the noises: slow first steps, then steps around its time."""
    folder.mkdir()
    for number, noise in enumerate(noises):
        steps = [10.0] * WARM_UP + [seconds * noise * factor for factor in (0.9, 1.0, 1.0, 1.3)]
        if lines:
            text = "\n".join(
                json.dumps({"step": step, "seconds": one}) for step, one in enumerate(steps)
            )
        else:
            text = "\n".join(["seconds", *map(str, steps)])
        (folder / f"run{number}.{'jsonl' if lines else 'csv'}").write_text(text + "\n")


def gate(before: float, after: float, in_turns: bool) -> Verdict:
    def side(seconds: float, noises: Sequence[float]) -> list[RunTimes]:
        kernels = pd.DataFrame({"full_name": [], "calls": [], "total_ns": []})
        origin = Origin("modelled", "by hand")
        return [
            RunTimes(
                f"run{number}", 1e9 * seconds * noise, 4, pd.Series(dtype=float), kernels, origin
            )
            for number, noise in enumerate(noises)
        ]

    return judge(side(before, NOISE), side(after, NOISE[::-1]), in_turns=in_turns)


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("after", [0.2, 0.21, 0.25, 0.15])
def test_the_judge_agrees_with_the_gate(
    after: float, in_turns: bool, bare: Run, tmp_path: Path
) -> None:
    write_side(tmp_path / "before", 0.2, NOISE)
    write_side(tmp_path / "after", after, NOISE[::-1], lines=not in_turns)
    options = ["--in-turns"] * in_turns
    told = bare("python", "snippets/13_slower.py", "before", "after", *options, check=False)
    times, ratio, word = told.stdout.splitlines()
    verdict = gate(0.2, after, in_turns)
    assert times.startswith(
        f"{verdict.base_ns / 1e9:.6f} s a step before, {verdict.new_ns / 1e9:.6f} s after"
    )
    numbers = [
        float(part.strip(",")) for part in ratio.split() if part[0].isdigit() and "%" not in part
    ][:4]
    assert numbers[0] == pytest.approx(verdict.ratio.ratio, abs=1e-4)
    assert np.allclose(
        [numbers[-2], numbers[-1]], verdict.ratio[1:3], rtol=1e-4 if in_turns else 0.01
    )
    assert f"{100 * verdict.ratio.level:.1f} % interval" in ratio
    assert word.startswith(verdict.word)
    assert told.returncode == int(verdict.fails)


def test_the_judge_says_what_it_can_not_tell(bare: Run, tmp_path: Path) -> None:
    write_side(tmp_path / "before", 0.2, NOISE)
    write_side(tmp_path / "after", 0.4, NOISE[:4])
    command = ("python", "snippets/13_slower.py", "before", "after")
    told = bare(*command, "--skip", str(WARM_UP))
    assert told.stdout == "can't tell: 9 and 4 runs, 5 of each are needed\n"
    refused = bare(*command, "--skip", "50", check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "no column `seconds` with more than 50 steps" in refused.stderr


def test_a_file_that_is_cut_or_damaged_is_not_slower(bare: Run, tmp_path: Path) -> None:
    for name in ("before", "after"):
        write_side(tmp_path / name, 0.2, NOISE, lines=True)
    file = tmp_path / "after/run0.jsonl"
    text = file.read_text()
    command = ("python", "snippets/13_slower.py", "before", "after")
    whole = bare(*command).stdout
    file.write_text(text + '{"step": 7, "sec')
    assert bare(*command).stdout == whole
    file.write_text('{"step": 0, "sec\n' + text)
    refused = bare(*command, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "run0.jsonl: " in refused.stderr
    file.unlink()
    file.mkdir()
    assert bare(*command, check=False).returncode == 3, "a bug"


def test_turns_take_the_load_out_of_the_lines_of_the_block(bare: Run, tmp_path: Path) -> None:
    for turn, load in enumerate((1.0, 3.0, 1.2, 7.0, 2.0, 1.1)):
        for side, seconds in (("before", 0.2), ("after", 0.1)):
            folder = tmp_path / side / f"run{turn}"
            folder.mkdir(parents=True)
            parts = {"data": seconds * load / 4, "forward": seconds * load * 3 / 4, "samples": 64}
            for rank in (0, 1):
                lines = [
                    json.dumps({"rank": rank, "step": step} | parts) for step in range(WARM_UP + 2)
                ]
                (folder / f"times_rank{rank}.jsonl").write_text("\n".join(lines))
    command = ("python", "snippets/13_slower.py", "before", "after")
    assert "can't tell: record more runs" in bare(*command).stdout
    assert (
        "ratio 0.5000, 96.9 % interval 0.5000 to 0.5000\nfaster"
        in bare(*command, "--in-turns").stdout
    )
    (tmp_path / "after/run0").rename(tmp_path / "after/first")
    assert "need the same names on both sides" in bare(*command, "--in-turns", check=False).stderr


def test_the_report_keeps_what_is_there(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "tunableop_results0.csv").write_text(
        "Validator,PT_VERSION,2.5.0\nGemm,tn_1_2_3,Default,0.1\n"
    )
    bare(
        "bash",
        "snippets/13_report.sh",
        "old",
        MIOPEN_FIND_MODE="NORMAL",
        HOME=str(tmp_path),
        SECRET_TOKEN="x",
    )
    kept = {path.name: path.read_text() for path in (tmp_path / "old").iterdir()}
    assert "PyTorch version:" in kept["torch.txt"]
    assert "MIOPEN_FIND_MODE=NORMAL\n" in kept["variables.txt"]
    assert "SECRET_TOKEN" not in kept["variables.txt"]
    assert kept["tunableop_validators.txt"].endswith("Validator,PT_VERSION,2.5.0\n")
    assert kept["rocminfo.txt"]

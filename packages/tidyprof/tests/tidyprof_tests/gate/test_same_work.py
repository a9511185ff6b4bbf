"""The whole run decides. Runs with different work, and copies of a run, prove nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tidyprof.cli.main import main
from tidyprof_tests.gate.conftest import Judged
from tidyprof_tests.gate.test_gate import write_trace

RUNS = 9


def write_run(folder: Path, seconds: Sequence[float], ranks: int = 1, **more: float) -> Path:
    """A run whose steps take so long, after a first one of a second; more -- other columns of each
    line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        steps = [1.0, *(one + 1e-6 * rank for one in seconds)]
        lines = [
            json.dumps({"rank": rank, "step": step, "forward": one, **more})
            for step, one in enumerate(steps)
        ]
        (folder / f"times_rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_side(folder: Path, seconds: Sequence[float], noise: float = 0.01, **more: float) -> str:
    """RUNS runs with these steps, each longer or shorter by chance, always the same way."""
    random = np.random.default_rng(len(folder.name))
    for run in range(RUNS):
        write_run(folder / f"run{run}", random.normal(1, noise) * np.array(seconds), **more)
    return str(folder)


def verdict_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and the report in one line."""
    code = main(["gate", *arguments])
    return code, " ".join(capsys.readouterr().out.split())


BOTH = pytest.mark.parametrize("how", [[], ["--paired"]], ids=["unpaired", "paired"])


@BOTH
def test_nearly_empty_polls_are_no_faster_steps(
    how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base = write_side(tmp_path / "base", [0.062] * 31)
    polls = ([0.0001] * 36 + [0.062]) * 31
    code, said = verdict_of(capsys, base, write_side(tmp_path / "polls", polls), *how)
    assert (code, said.startswith("inconclusive: ")) == (0, True)
    assert "32 to 1,148 steps" in said


@BOTH
@pytest.mark.parametrize(
    ("new", "more", "found"),
    [
        ([0.020] * 50, {}, "51 to 101 steps"),  # twice the batch
        ([0.010] * 107, {}, "101 to 108 steps"),
        ([0.005] * 100, {"ranks": 2}, "101 to 202 steps"),
        ([0.005] * 100, {"samples": 16}, "1,616 to 3,232 samples"),
    ],
)
def test_different_work_is_named(
    how, new, more, found, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base = write_side(
        tmp_path / "base", [0.010] * 100, **({"samples": 32} if "samples" in more else {})
    )
    _, said = verdict_of(
        capsys, base, write_side(tmp_path / "changed", new, **more), *how, "--fail-above", "60%"
    )
    assert said.startswith("inconclusive")
    assert found in said


def test_one_run_that_ended_early_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Its mean lacks the long step at the end, which all other runs have."""
    sides = [write_side(tmp_path / name, [0.02] * 40 + [5]) for name in ("base", "changed")]
    file = tmp_path / "changed/run3/times_rank0.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:30]))
    code, said = verdict_of(capsys, *sides, "--paired")
    assert (code, said.startswith("inconclusive")) == (0, True)
    assert "30 to 42 steps" in said


def test_work_that_one_version_does_not_state_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base = write_side(tmp_path / "base", [0.010] * 100, samples=32)
    faster = write_side(tmp_path / "faster", [0.005] * 104)
    for run in range(RUNS):
        file = tmp_path / f"faster/run{run}/times_rank0.jsonl"
        file.write_text(file.read_text().replace("}", ', "samples": 7}', 3))
    sides = [base, faster, "--paired"]
    assert verdict_of(capsys, *sides)[1].startswith("faster")


EACH_FOURTH = [0.045, 0.045, 0.045, 0.2] * 10
EACH_TENTH = ([0.02] * 9 + [0.22]) * 4


@BOTH
@pytest.mark.parametrize(
    ("base", "new", "change"),
    [
        ([0.050] * 40, EACH_FOURTH, 0.675),
        (EACH_FOURTH, [0.050] * 40, -0.403),
        ([0.020] * 40, EACH_TENTH, 1),
    ],
)
def test_the_whole_run_decides(how, base, new, change, tmp_path: Path, judged: Judged):
    sides = write_side(tmp_path / "base", base, 0.001), write_side(tmp_path / "changed", new, 0.001)
    code, told = judged(*sides, *how)
    assert (code, told["verdict"]) == ((1, "slower") if change > 0 else (0, "faster"))
    assert told["ratio"]["ratio"] == pytest.approx(1 + change, rel=0.01)
    assert told["new_value"] == pytest.approx(1e9 * np.mean(new), rel=0.01)


@BOTH
@pytest.mark.parametrize("slow", ["base", "changed"])
def test_a_few_long_steps_of_few_runs_prove_nothing(how, slow: str, tmp_path: Path, judged: Judged):
    """Two of nine runs have a step that takes as long as all others together."""
    sides = [write_side(tmp_path / name, [0.02] * 40) for name in ("base", "changed")]
    for run in (3, 7):
        write_run(tmp_path / slow / f"run{run}", [0.02] * 39 + [0.8 + 0.01 * run])
    code, told = judged(*sides, *how)
    assert code == 0
    assert told["verdict"] == ("inconclusive" if slow == "changed" else "no difference")
    assert told["ratio"]["low"] < 1
    assert (told["ratio"]["high"] > 1.2) is (slow == "changed")
    assert not any(part["confident"] for part in told["parts"])


def linked(run: Path, copy: Path) -> None:
    copy.symlink_to(run)


def copied(run: Path, copy: Path) -> None:
    shutil.copytree(run, copy)


ALIKE = pytest.mark.parametrize("alike", [linked, copied])


@ALIKE
@pytest.mark.parametrize("side", ["base", "new"])
@pytest.mark.parametrize("traced", [False, True])
def test_a_copy_is_no_repeat(
    alike: Callable[[Path, Path], None], side, traced, tmp_path: Path, capsys
):
    for run in range(4):
        for name, factor in (("base", 1), ("new", 2)):
            folder = tmp_path / name / f"run{run}"
            if traced:
                write_trace(folder, factor + 0.01 * run)
            else:
                write_run(folder, [factor + 0.01 * run] * 5, ranks=2)
    alike(tmp_path / "base/run1", tmp_path / side / "run7")
    assert main(["gate", str(tmp_path / "base"), str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{tmp_path / side / 'run7'} and {tmp_path / 'base/run1'}" in error or (
        f"{tmp_path / 'base/run7'} and {tmp_path / 'base/run1'}" in error
    )
    assert "the same run" in error


@pytest.mark.parametrize("asked", [False, True])
def test_an_inconclusive_verdict_fails_if_that_is_asked_for(
    asked: bool, tmp_path: Path, judged: Judged
):
    sides = [
        str(write_run(tmp_path / name, [step] * 5))
        for name, step in (("base", 0.01), ("new", 0.02))
    ]
    code, told = judged(*sides, *["--fail-on-inconclusive"] * asked)
    assert (code, told["verdict"], told["fails"]) == (int(asked), "inconclusive", asked)
    equal = [write_side(tmp_path / f"{name} side", [0.01] * 5) for name in ("base", "changed")]
    assert main(["gate", *equal, "--paired", "--fail-on-inconclusive"]) == 0

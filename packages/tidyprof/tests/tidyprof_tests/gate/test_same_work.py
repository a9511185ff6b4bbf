"""Runs that did other work, or are no runs of their own, prove nothing, however quick their steps
are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tidyprof.cli.main import main
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
    """Exit code, and the first line."""
    code = main(["gate", *arguments])
    shown = capsys.readouterr()
    return code, shown.out.partition("\n")[0] or shown.err


BOTH = pytest.mark.parametrize("how", [[], ["--in-turns"]], ids=["apart", "in turns"])


@BOTH
def test_nearly_empty_polls_are_no_faster_steps(
    how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base = write_side(tmp_path / "base", [0.062] * 31)
    polls = ([0.0001] * 36 + [0.062]) * 31
    code, said = verdict_of(capsys, base, write_side(tmp_path / "polls", polls), *how)
    assert (code, said.startswith("can't tell: a step took 6")) == (0, True)
    assert "the runs did other work: 32 steps each before and 1,148 now (+3,487.5 %)" in said
    code, said = verdict_of(capsys, str(tmp_path / "polls"), base, *how)
    assert (code, "1,148 steps each before and 32 now (-97.2 %)" in said) == (0, True)


@BOTH
@pytest.mark.parametrize(
    ("new", "more", "found"),
    [
        ([0.020] * 50, {}, "101 steps each before and 51 now (-49.5 %)"),  # twice the batch
        ([0.010] * 107, {}, "101 steps each before and 108 now (+6.9 %)"),
        ([0.005] * 100, {"ranks": 2}, "101 steps each before and 202 now (+100.0 %)"),
        ([0.005] * 100, {"samples": 16}, "3,232 samples each before and 1,616 now (-50.0 %)"),
    ],
)
def test_other_work_is_named(
    how, new, more, found, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base = write_side(
        tmp_path / "base", [0.010] * 100, **({"samples": 32} if "samples" in more else {})
    )
    _, said = verdict_of(
        capsys, base, write_side(tmp_path / "changed", new, **more), *how, "--fail-above", "60%"
    )
    assert said.startswith("can't tell")
    assert said.rstrip().endswith(f"{found}; make runs of the same work"), (
        "a training has no requests"
    )


def test_work_that_one_side_does_not_state_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base = write_side(tmp_path / "base", [0.010] * 100, samples=32)
    faster = write_side(tmp_path / "faster", [0.005] * 104)
    for run in range(RUNS):
        file = tmp_path / f"faster/run{run}/times_rank0.jsonl"
        file.write_text(file.read_text().replace("}", ', "samples": 7}', 3))
    assert verdict_of(capsys, base, faster, "--in-turns")[1].startswith("faster")
    assert (
        "did other work" in verdict_of(capsys, base, faster, "--in-turns", "--fail-above", "3%")[1]
    )


@BOTH
@pytest.mark.parametrize(
    ("base", "new", "found"),
    [
        ([0.050] * 40, [0.0001] * 30 + [0.200] * 10, (50.0, 50.1)),
        ([0.0001] * 30 + [0.200] * 10, [0.050] * 40, (50.1, 50.0)),
        ([0.050] * 40, [0.050] * 30 + [0.100] * 10, (50.0, 62.5)),
        ([0.050] * 40, [0.020] * 30 + [0.300] * 10, (50.0, 90.0)),
    ],
)
def test_the_whole_run_must_agree(
    how, base, new, found, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """As many steps, of which the typical one says something else than all together."""
    sides = write_side(tmp_path / "base", base, 0.001), write_side(tmp_path / "changed", new, 0.001)
    code, said = verdict_of(capsys, *sides, *how)
    assert (code, said.startswith("can't tell")) == (0, True)
    told = re.search(
        r"the whole run says otherwise: all but the first took (.*) ms on average and take (.*) ms",
        said,
    )
    assert [float(number) for number in told.groups()] == pytest.approx(found, rel=0.01)


@BOTH
def test_rare_long_steps_on_both_sides_are_no_contradiction(
    how, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A validation takes most of the time, and the steps between are twice as fast."""
    sides = [
        write_side(tmp_path / side, ([step] * 9 + [1.0]) * 10, 0.001)
        for side, step in (("base", 0.01), ("new", 0.005))
    ]
    assert verdict_of(capsys, *sides, *how)[1].startswith("faster: a step took 10")
    code, said = verdict_of(capsys, *sides[::-1], *how)
    assert (code, said.startswith("slower: a step took 5")) == (1, True)


def linked(run: Path, copy: Path) -> None:
    copy.symlink_to(run)


def hard_linked(run: Path, copy: Path) -> None:
    copy.mkdir()
    for file in run.iterdir():
        os.link(file, copy / file.name)


def copied(run: Path, copy: Path) -> None:
    shutil.copytree(run, copy)


def linked_inside(run: Path, copy: Path) -> None:
    copy.mkdir()
    for file in run.iterdir():
        (copy / file.name).symlink_to(file)


ALIKE = pytest.mark.parametrize("alike", [linked, hard_linked, copied, linked_inside])


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
    assert "one and the same run" in error


@pytest.mark.parametrize("asked", [False, True])
def test_cant_tell_fails_where_that_is_asked_for(
    asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sides = [
        str(write_run(tmp_path / name, [step] * 5))
        for name, step in (("base", 0.01), ("new", 0.02))
    ]
    reports = {kind: tmp_path / f"verdict.{kind}" for kind in ("json", "junit", "markdown")}
    options = [word for kind, path in reports.items() for word in (f"--{kind}", str(path))]
    assert main(["gate", *sides, *options, *["--fail-on-cant-tell"] * asked]) == int(asked)
    suite = ElementTree.fromstring(reports["junit"].read_text())
    assert (suite.get("failures"), suite.find("testcase/failure") is not None) == (
        str(int(asked)),
        asked,
    )
    told = json.loads(reports["json"].read_text())
    assert (told["verdict"], told["fails"]) == ("can't tell", asked)
    assert reports["markdown"].read_text().startswith("### ❔ can't tell")
    sure = [write_side(tmp_path / f"{name} side", [0.01] * 5) for name in ("base", "changed")]
    assert main(["gate", *sure, "--in-turns", "--fail-on-cant-tell"]) == 0

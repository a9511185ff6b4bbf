"""Runs that wrote their times themselves, without a profiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidyprof import ProfileReadError
from tidyprof.gate.runs import run_times
from tidyprof_tests.gate.conftest import Judged

STEPS = 5


def line(step: int, rank: int = 0, **parts: float) -> str:
    return json.dumps({"rank": rank, "step": step, **parts})


def write_times(
    folder: Path, *, factor: float = 1.0, ranks: int = 1, forward: float = 0.03
) -> Path:
    """Steps as the block of lesson 14 writes them. The first is slow, and the last has `log`."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        steps = [
            {"device": 0.01 * factor, "forward": forward * factor * (1 + rank)}
            for _ in range(STEPS)
        ]
        steps[0]["forward"] = 9.0
        steps[-1]["log"] = 0.004 * factor
        lines = [line(step, rank, **parts) for step, parts in enumerate(steps)]
        (folder / f"times_rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_run_is_its_steady_steps_over_all_ranks(tmp_path: Path):
    run = run_times(write_times(tmp_path / "run", ranks=2))
    assert (run.steps, run.profiled, len(run.kernels)) == (8, False, 0)
    assert run.value == pytest.approx(56e6)  # four of 40, four of 70, and 4 more of each rank
    assert run.parts.to_dict() == pytest.approx({"device": 10e6, "forward": 45e6, "log": 1e6})
    assert str(run.origin) == "recorded: machine not stated"
    one = run_times(tmp_path / "run/times_rank0.jsonl")
    assert (one.steps, one.value) == (4, pytest.approx(41e6))


def test_parts_of_rare_long_steps_add_up_to_the_mean_step(tmp_path: Path):
    """One rank logs, and the other waits for it. Each tenth step loads data."""
    for rank, part in enumerate(("log", "backward")):
        steps = [{"forward": 0.01, part: 0.005} for _ in range(41)]
        for step in steps[::10]:
            step["data"] = 0.5
        lines = [line(step, rank, **parts) for step, parts in enumerate(steps)]
        (tmp_path / f"times_rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
    run = run_times(tmp_path)
    assert run.parts.to_dict() == pytest.approx(
        {"forward": 10e6, "log": 2.5e6, "backward": 2.5e6, "data": 50e6}
    )
    assert run.parts.sum() == pytest.approx(run.value)


def test_a_killed_job_leaves_half_a_line(tmp_path: Path):
    file = write_times(tmp_path) / "times_rank0.jsonl"
    whole = run_times(tmp_path).value
    text = file.read_text()
    file.write_text(text + line(STEPS, forward=1.0)[:-3])
    assert run_times(tmp_path).value == whole
    file.write_text(text.rstrip("\n"))  # whole, though the end of the line is missing
    assert run_times(tmp_path).steps == 4


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "the file is empty"),
        ('{"rank": 0, "st', "no complete line"),
        ('{"rank": 0, "st\n' + line(0, forward=1.0) + "\n", "line 1 isn't a step"),
        (
            line(0, forward=1.0) + "\n" + line(0, forward=1.0) + "\n",
            "line 2 isn't a step",
        ),
        (line(0) + "\n", "line 1 isn't a step"),
        (line(0, forward=0.0) + "\n", "line 1 isn't a step"),
        (line(0, forward=-1.0) + "\n", "line 1 isn't a step"),
        (line(0, forward=float("nan")) + "\n", "line 1 isn't a step"),
        ('{"rank": 0, "step": 0, "forward": true}\n', "line 1 isn't a step"),
        ('{"rank": 0, "step": 0, "forward": 1' + 400 * "0" + "}\n", "line 1 isn't a step"),
        ('{"rank": 0, "step": 0, "for\\nward": 1}\n', "line 1 isn't a step"),
        ('{"rank": 0, "forward": 1.0}\n', "line 1 isn't a step"),
        ("[" * 100_000 + "\n", "line 1 isn't a step"),
        ("[]\n", "line 1 isn't a step"),
        ("\udcff\n", "line 1 isn't a step"),
    ],
)
def test_other_damage_is_one_line(content: str, found: str, tmp_path: Path):
    (tmp_path / "times_rank0.jsonl").write_text(content, errors="surrogateescape")
    with pytest.raises(ProfileReadError, match=found) as error:
        run_times(tmp_path)
    assert "times_rank0.jsonl" in str(error.value)
    assert all(words in str(error.value) for words in ("Likely cause", "Next step"))


def test_the_command_judges_them_by_their_own_parts(tmp_path: Path, judged: Judged):
    for side, forward in (("base", 0.03), ("new", 0.04)):
        for pair in range(8):
            write_times(tmp_path / side / f"run{pair}", factor=1 + 0.1 * pair, forward=forward)
    code, told = judged(tmp_path / "base", tmp_path / "new", "--paired")
    assert code == 1
    assert {part["part"]: part["confident"] for part in told["parts"]} == {
        "forward": True,
        "device": False,
        "log": False,
    }
    for side in ("base", "new"):
        total = sum(part[f"{side}_ns"] for part in told["parts"])
        assert total == pytest.approx(told[f"{side}_value"])
    assert told["ratio"]["ratio"] == pytest.approx(told["new_value"] / told["base_value"])
    assert told["kernels"] == []

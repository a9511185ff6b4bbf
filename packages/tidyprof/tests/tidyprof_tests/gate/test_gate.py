"""The gate on synthetic runs: when it fails, when it is inconclusive, and what it blames."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tidyprof import Origin
from tidyprof.cli.main import main
from tidyprof.gate.intervals import LEAST_REPEATS
from tidyprof.gate.reports import as_json
from tidyprof.gate.runs import RunTimes, repeats_in, run_times
from tidyprof.gate.verdict import judge
from tidyprof_tests import chrome_writer
from tidyprof_tests.chrome_writer import TraceEvent

MS = 1_000_000


def made_run(
    step_ms: float, kernels: dict[str, tuple[float, float]] | None = None, **parts_ms: float
) -> RunTimes:
    """A synthetic run; kernels are name -> (calls, ms), both per step."""
    table = pd.DataFrame(kernels or {}, index=["calls", "total_ns"]).T * [1, MS]
    table["full_name"] = [f"void {name}<float>(int)" for name in table.index]
    parts = pd.Series({name: value * MS for name, value in parts_ms.items()}, dtype=float)
    step_ns = step_ms * MS
    return RunTimes("run", step_ns, 10, parts, table, Origin("modeled", "synthetic"))


def side(mean_ms: float, spread: float = 0.01, repeats: int = 7) -> list[RunTimes]:
    return [made_run(mean_ms * (1 + spread * part)) for part in np.linspace(-1, 1, repeats)]


@pytest.mark.parametrize(
    ("new_ms", "spread", "word", "fails"),
    [
        (20.0, 0.01, "no difference", False),
        (25.0, 0.01, "slower", True),
        (20.8, 0.01, "slower", False),  # beyond doubt, but perhaps below 5 %
        (15.0, 0.01, "faster", False),
        (25.0, 0.60, "inconclusive", False),
    ],
)
def test_the_gate_fails_only_if_the_whole_interval_is_above_the_limit(new_ms, spread, word, fails):
    verdict = judge(side(20.0, spread), side(new_ms, spread))
    assert (verdict.word, verdict.fails) == (word, fails)
    assert verdict.new_value == pytest.approx(new_ms * MS)


def test_the_limit_is_the_users():
    assert judge(side(20.0), side(20.8), limit=0.0).fails
    assert not judge(side(20.0), side(25.0), limit=0.30).fails


@pytest.mark.parametrize("repeats", [1, LEAST_REPEATS - 1])
def test_few_repeats_prove_nothing(repeats: int):
    verdict = judge(side(20.0), side(200.0, repeats=repeats))
    assert (verdict.word, verdict.fails, verdict.ratio) == ("inconclusive", False, None)
    with pytest.raises(ValueError, match="version"):
        judge([], side(20.0))


LOADS = (1.0, 3.0, 1.2, 7.0, 2.0, 1.1, 1.4)


def drifting(step_ms: float, loader_ms: float) -> list[RunTimes]:
    """Runs on a machine whose load comes and goes, named by their pair."""
    runs = [made_run(step_ms * load, data=loader_ms * load, compute=5.0 * load) for load in LOADS]
    return [replace(run, path=f"side/run{pair}") for pair, run in enumerate(runs)]


def test_pairs_cancel_the_load_of_the_machine():
    base, new = drifting(20, 8), drifting(14, 2)
    apart = judge(base, new)
    assert apart.word == "inconclusive"
    verdict = judge(base, new[::-1], paired=True)
    assert (verdict.word, verdict.fails) == ("faster", False)
    assert verdict.ratio[:3] == pytest.approx((0.7, 0.7, 0.7))
    assert verdict.parts.set_index("part")["confident"].to_dict() == {
        "data": True,
        "compute": False,
    }
    slower = judge(new, base, paired=True)
    assert (slower.word, slower.fails) == ("slower", True)


def test_the_part_that_grew_is_blamed_and_no_other():
    """Three of the parts grow by 0.1 ms or a little more, which is too little to matter in a step
    of 100 ms.
    """
    base = [
        made_run(100 + turn, data=20, forward=30, loss=10, backward=30, optimizer=10)
        for turn in range(10)
    ]
    late = {"data": 30.0, "forward": 30.1, "loss": 10.1, "backward": 30.1}
    new = [made_run(111 + 1.01 * turn, optimizer=10 + 0.001 * turn, **late) for turn in range(10)]
    for paired in (False, True):
        sides = [
            [replace(run, path=f"run{pair}") for pair, run in enumerate(side)]
            for side in (base, new)
        ]
        blamed = judge(*sides, paired=paired).parts.set_index("part")["confident"]
        assert list(blamed[blamed].index) == ["data"]


def test_a_part_below_the_noise_of_the_step_is_not_blamed():
    base = [
        made_run(step, data=1.0, forward=step - 1) for step in (90, 95, 100, 105, 110, 93, 107, 100)
    ]
    new = [
        made_run(step, data=1.5, forward=step - 1.5)
        for step in (90, 95, 100, 105, 110, 93, 107, 100)
    ]
    assert not judge(base, new).parts["confident"].any()


def test_pairs_need_the_same_names():
    with pytest.raises(ValueError, match="run6"):
        judge(drifting(20, 8), drifting(20, 8)[:-1], paired=True)


def test_parts_and_kernels_take_the_blame():
    base = [
        made_run(
            10,
            {"gemm": (2, 4.0), "relu": (10, 1.0), "old": (1, 0.5)},
            compute=5.5,
            launch_bound=4.5,
        )
    ] * 5
    new = [
        made_run(
            14,
            {"gemm": (2, 6.0), "relu": (20, 2.0), "fused": (1, 0.25)},
            compute=8.25,
            launch_bound=5.75,
        )
    ] * 5
    verdict = judge(base, new)
    assert verdict.parts[["part", "difference_ns"]].to_numpy().tolist() == [
        ["compute", 2.75 * MS],
        ["launch_bound", 1.25 * MS],
    ]
    table = verdict.kernels.set_index("kernel")
    assert table["blame"].to_dict() == {
        "gemm": "longer",
        "relu": "more calls",
        "old": "gone",
        "fused": "new",
    }
    assert table["difference_ns"].to_dict() == {
        "gemm": 2 * MS,
        "relu": MS,
        "old": -0.5 * MS,
        "fused": 0.25 * MS,
    }
    assert verdict.kernels["kernel"].iloc[0] == "gemm"
    assert json.loads(as_json(verdict))["kernels"][0]["full_name"] == "void gemm<float>(int)"


def write_trace(folder: Path, kernel_ms: float, kernels: int = 2, steps: int = 4) -> Path:
    """A trace of torch.profiler: each step starts some kernels, and ends with the last; the first
    step is slow.
    """
    events, now = [], MS
    for step in range(steps):
        begin = now
        now += 50 * MS if step == 0 else MS
        for number in range(100 * step, 100 * step + kernels):
            events.append(chrome_writer.call("hipLaunchKernel", now, 5_000, number))
            events.append(chrome_writer.kernel("gemm", now + 10_000, int(kernel_ms * MS), number))
            now += int(kernel_ms * MS) + 20_000
        events.append(TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, now - begin))
    folder.mkdir(parents=True, exist_ok=True)
    return chrome_writer.write_trace(folder / "trace.json", events)


def write_side(folder: Path, kernel_ms: float, **more: int) -> str:
    for number in range(LEAST_REPEATS):
        write_trace(folder / f"run{number}", kernel_ms * (1 + 0.002 * number), **more)
    return str(folder)


def test_a_run_is_its_steady_steps(tmp_path: Path):
    run = run_times(write_trace(tmp_path, kernel_ms=2, kernels=3))
    assert run.steps == 3
    step = 1 * MS + 3 * 2.02 * MS
    assert run.value == pytest.approx(step)
    assert run.parts.sum() == pytest.approx(step)
    assert run.kernels.loc["gemm"].to_dict() == {
        "full_name": "gemm",
        "calls": 3,
        "total_ns": 6 * MS,
    }


def test_a_side_is_one_run_or_a_folder_of_them(tmp_path: Path):
    path = write_trace(tmp_path / "one" / "run", 1)
    assert repeats_in(path) == [path]
    assert repeats_in(tmp_path / "one") == [tmp_path / "one"]
    for process in ("program-2", "program-3"):
        write_trace(tmp_path / "one" / process, 1)
    (tmp_path / "one/times_rank0.jsonl").write_text('{"forward": 0.1}\n')
    assert repeats_in(tmp_path / "one") == [tmp_path / "one"]
    assert [run.name for run in repeats_in(write_side(tmp_path / "many", 1))] == [
        f"run{n}" for n in range(5)
    ]


def test_the_command_closes_and_writes_its_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base, new = write_side(tmp_path / "base", 2), write_side(tmp_path / "new", 2, kernels=3)
    assert main(["gate", base, new, "--json", str(tmp_path / "verdict.json")]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("slower: ")
    assert "5.06 ms before, 7.08 ms now" in shown
    assert "more calls" in shown
    assert max(map(len, shown.splitlines())) <= 80
    told = json.loads((tmp_path / "verdict.json").read_text())
    assert told["kernels"][0]["blame"] == "more calls"
    assert main(["gate", base, new, "--fail-above", "60%"]) == 0
    assert main(["gate", base, new, "--paired"]) == 1
    assert main(["gate", base, new + "/run0"]) == 0
    assert "inconclusive" in capsys.readouterr().out


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    base = write_side(tmp_path / "base", 2)
    plain = write_trace(tmp_path / "plain", 2, steps=1)
    events = json.loads(plain.read_text())
    events["traceEvents"] = [
        event for event in events["traceEvents"] if event["cat"] != "user_annotation"
    ]
    plain.write_text(json.dumps(events))
    for arguments in (
        [base, base],
        [base, str(plain)],
        [base, str(plain), "--step-marker", "forward"],
        [base, str(tmp_path / "nothing")],
        [base, write_side(tmp_path / "new", 2) + "/run0", "--paired"],
    ):
        assert main(["gate", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["gate", base, base, "--fail-above", "some"])

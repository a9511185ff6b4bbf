"""The ledger: how much faster, how sure, and does the model still train?"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proflab import ledger
from proflab.correctness_gate import (
    REQUIRED,
    CorrectnessGate,
    Part,
    finite_gradients,
    loss_parity,
    same_samples,
)
from proflab.errors import CourseError
from proflab.ledger.statistics import SpeedUp, speed_up
from proflab.training import TrainingRun, training_run
from tests.cifar_train.tiny_models import TINY_MODELS
from tests.proflab.training_records import records, write_records
from tidyprof.tables.contract import Origin

GREEN = CorrectnessGate(tuple(Part(name, True, "looked at") for name in REQUIRED))
RED = CorrectnessGate((Part(REQUIRED[0], False, "2 of 10 missing"), *GREEN.parts[1:]))
SECOND = 10**9
TIMES = st.lists(st.integers(1, 10**12), min_size=5, max_size=9)


def folder_of_run(folder: Path, times_ms: list[float], batch: int = 8, checked: bool = True, seed: int = 55) -> Path:
    entries = records(times_ms, batch=batch)
    entries[0]["config"]["seed"] = seed
    if checked:
        entries[-1]["finding"] = "gradient check passed: all 10 parameters have finite gradients"
    else:
        del entries[-1]
    return write_records(folder, entries)


def run_of(folder: Path, *arguments: Any, **keywords: Any) -> TrainingRun:
    return training_run(folder_of_run(folder, *arguments, **keywords))


class TestSpeedUp:
    def test_hand_worked_interval(self) -> None:
        # The median of 5 draws from 8, 9, 10, 11, 12 is 8 if at least 3 of them are: 10*0.2^3*0.8^2 + 5*0.2^4*0.8
        # + 0.2^5 = 0.058, more than the 2.5 % that the interval leaves out below. So it begins at 8 / 4, and by
        # symmetry ends at 12 / 4.
        before = [value * SECOND for value in (8, 9, 10, 11, 12)]
        assert speed_up(before, [4 * SECOND] * 5) == SpeedUp(10 * SECOND, 4 * SECOND, 2.5, 2.0, 3.0)

    def test_repeats_without_spread_have_an_interval_without_width(self) -> None:
        assert speed_up([10] * 5, [5] * 6) == SpeedUp(10, 5, 2.0, 2.0, 2.0)

    def test_the_same_repeats_give_the_same_interval(self) -> None:
        times = [101, 99, 104, 97, 100]
        assert speed_up(times, times[::-1]) == speed_up(times, times[::-1])

    @pytest.mark.parametrize("count", [5, 9])
    def test_interval_contains_one_for_equal_distributions_in_about_95_percent(self, count: int) -> None:
        random = np.random.default_rng(7)
        trials = 200
        held = 0
        for _ in range(trials):
            before, after = random.lognormal(18, 0.05, (2, count))
            found = speed_up(before, after)
            held += found.low <= 1 <= found.high
        # 0.96 to 0.97 was found in 1500 trials; three standard errors of 200 trials are 0.04.
        assert 0.925 <= held / trials < 1

    def test_interval_finds_a_real_difference(self) -> None:
        random = np.random.default_rng(8)
        missed = 0
        for _ in range(50):
            found = speed_up(random.normal(100, 2, 7), random.normal(80, 2, 7))
            missed += not found.low <= 1.25 <= found.high
            assert found.low > 1
        assert missed <= 8

    @settings(max_examples=60)
    @given(before=TIMES, after=TIMES)
    def test_interval_lies_between_the_extreme_ratios(self, before: list[int], after: list[int]) -> None:
        found = speed_up(before, after)
        least, most = min(before) / max(after), max(before) / min(after)
        assert least * 0.999999 <= found.low <= found.high <= most * 1.000001
        assert least * 0.999999 <= found.ratio <= most * 1.000001

    @settings(max_examples=40)
    @given(before=TIMES, after=TIMES, factor=st.sampled_from([2, 8, 1024]))
    def test_a_slower_clock_changes_nothing(self, before: list[int], after: list[int], factor: int) -> None:
        found = speed_up(before, after)
        scaled = speed_up([factor * time for time in before], [factor * time for time in after])
        assert (scaled.ratio, scaled.low, scaled.high) == pytest.approx((found.ratio, found.low, found.high))
        assert speed_up(after, before).ratio == pytest.approx(1 / found.ratio)

    @pytest.mark.parametrize("bad", [[1, 2, 3, 4], [1, 2, 3, 4, 0], [1, 2, 3, 4, -1], [1, 2, 3, 4, math.nan]])
    def test_what_is_no_set_of_times(self, bad: list[float]) -> None:
        with pytest.raises(ValueError, match=r"repeats|positive"):
            speed_up(bad, [1] * 5)


class TestVerdict:
    @pytest.mark.parametrize(
        ("before", "after", "gate", "verdict"),
        [
            ([2.0] * 5, [1.0] * 5, GREEN, "faster"),
            ([1.0] * 5, [2.0] * 5, GREEN, "slower"),
            ([1.0, 2, 3, 4, 5], [5.0, 4, 3, 2, 1], GREEN, "undecided"),
            ([1.1, 2.1, 3.1, 4.1, 5.1], [1.0, 2, 3, 4, 5], GREEN, "undecided"),
            ([1.0, 2, 3, 4, 5], [1.1, 2.1, 3.1, 4.1, 5.1], GREEN, "undecided"),
            ([1.0] * 5, [1.0] * 5, GREEN, "undecided"),
            ([2.0] * 5, [1.0] * 5, RED, "unproven"),
            ([2.0] * 5, [1.0] * 5, None, "unproven"),
            ([2.0] * 5, [1.0] * 5, CorrectnessGate(GREEN.parts[:2]), "unproven"),
        ],
    )
    def test_each_verdict(self, before: list[float], after: list[float], gate: Any, verdict: str) -> None:
        assert ledger.add("an idea", before, after, gate).verdict == verdict
        assert ledger.table()["verdict"].tolist() == [verdict]

    def test_result_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        ledger.add("A larger batch helps", [0.2] * 5, [0.1] * 5, RED, origin=Origin("modelled", "by hand"))
        out = " ".join(capsys.readouterr().out.split())
        assert out.startswith("A larger batch helps")
        assert "before, per step 200 ms (median of 5, 200 ms to 200 ms)" in out
        assert "speed-up 2.00 times (95% interval 2.00 to 2.00)" in out
        assert "finite gradients not passed: 2 of 10 missing" in out
        assert "verdict unproven" in out
        assert "The repeats don't differ at all" in out
        assert "modelled: by hand" in out


class TestRepeats:
    def test_functions_are_called_in_turn(self) -> None:
        calls: list[str] = []

        def measure(name: str, seconds: float):
            return lambda: calls.append(name) or seconds

        found = ledger.add("an idea", measure("b", 0.2), measure("a", 0.1), GREEN, repeats=6)
        assert "".join(calls) == "baabbaabbaab"
        assert found.order.split()[:4] == ["before", "after", "after", "before"]
        assert found.before_ns == (200_000_000,) * 6
        assert found.origin.startswith("measured: ")

    def test_a_steady_slowdown_of_the_machine_hits_both_sides(self) -> None:
        clock = iter(range(100, 200))

        def drifting() -> float:
            return next(clock) / 100

        found = ledger.add("nothing changed", drifting, drifting, GREEN, repeats=10)
        assert found.verdict == "undecided"

    def test_runs_count_by_the_median_of_their_steady_steps(self, tmp_path: Path) -> None:
        before = [run_of(tmp_path / f"b{place}", [20.0, 30, 40]) for place in range(5)]
        after = [run_of(tmp_path / f"a{place}", [10.0, 15, 20]) for place in range(5)]
        found = ledger.add("an idea", before, after)
        assert (found.speed_up.before_ns, found.speed_up.after_ns) == (30_000_000, 15_000_000)
        assert found.gate.green, str(found.gate)
        assert found.verdict == "faster"
        assert found.origin == str(before[0].origin)

    def test_times_per_image_compare_steps_of_different_size(self, tmp_path: Path) -> None:
        before = [run_of(tmp_path / f"b{place}", [40.0] * 4, batch=8) for place in range(5)]
        after = [run_of(tmp_path / f"a{place}", [60.0] * 2, batch=16) for place in range(5)]
        with pytest.raises(CourseError, match=r"steps of 8 and of 16 images .* per='image'"):
            ledger.add("a larger batch", before, after)
        found = ledger.add("a larger batch", before, after, per="image")
        # 40 ms for 8 images are 5 ms an image, 60 ms for 16 are 3.75 ms; both runs saw 32 images.
        assert (found.speed_up.before_ns, found.speed_up.after_ns) == (5_000_000, 3_750_000)
        assert found.gate.green, str(found.gate)

    @pytest.mark.parametrize(
        ("before", "after", "message"),
        [
            ([1.0] * 4, [1.0] * 5, "before has 4 repeats; at least 5"),
            ([1.0] * 5, [], "after has 0 repeats"),
            (1.0, [1.0] * 5, "before is one value"),
            ([1.0, 1, 1, 1, 0], [1.0] * 5, "is no time"),
            ([1.0, 1, 1, 1, math.inf], [1.0] * 5, "is no time"),
            (["a"] * 5, [1.0] * 5, "a repeat is str"),
            ([True] * 5, [1.0] * 5, "a repeat is bool"),
            (lambda: 1.0, [1.0] * 5, "can't be interleaved"),
            (lambda: None, lambda: 1.0, "a repeat is NoneType"),
        ],
    )
    def test_what_can_not_be_compared(self, before: Any, after: Any, message: str) -> None:
        with pytest.raises(CourseError, match=message) as error:
            ledger.add("an idea", before, after, GREEN)
        assert "\n" not in str(error.value)
        assert not len(ledger.table())

    def test_too_few_repeats_are_refused_before_anything_runs(self) -> None:
        calls: list[int] = []
        with pytest.raises(CourseError, match="too few"):
            ledger.add("an idea", lambda: calls.append(1) or 1.0, lambda: 1.0, GREEN, repeats=4)
        assert not calls

    def test_unknown_unit(self) -> None:
        with pytest.raises(CourseError, match="per must be step or image"):
            ledger.add("an idea", [1.0] * 5, [1.0] * 5, GREEN, per="epoch")


class TestStorage:
    def test_what_is_stored_is_read_back(self, bench: Path) -> None:
        added = ledger.add("an idea", [0.2, 0.21, 0.22, 0.2, 0.19], [0.1] * 5, RED, change="a switch")
        assert ledger.experiments() == [added]
        (line,) = (bench / "ledger.jsonl").read_text().splitlines()
        record = json.loads(line)
        assert record["before_ns"] == [200_000_000, 210_000_000, 220_000_000, 200_000_000, 190_000_000]
        assert record["verdict"] == "unproven"
        assert record["interval"] == [added.speed_up.low, added.speed_up.high]

    def test_every_attempt_stays_in_the_table(self) -> None:
        ledger.add("an idea", [1.0] * 5, [1.0] * 5, GREEN, change="a switch")
        ledger.add("another", [1.0] * 5, [1.0] * 5, GREEN)
        again = ledger.add("an idea", [2.0] * 5, [1.0] * 5, GREEN, change="a switch")
        assert ledger.table()["attempt"].tolist() == [1, 1, 2]
        assert [one.change for one in ledger.experiments()] == ["a switch", "another"]
        assert ledger.experiments(["a switch"]) == [again]

    def test_table_has_the_documented_columns_and_its_origin(self) -> None:
        assert ledger.table().columns.tolist() == list(ledger.TABLE_COLUMNS)
        ledger.add("one", [1.0] * 5, [0.5] * 6, GREEN, origin="modelled: by hand")
        ledger.add("two", [1.0] * 5, [0.5] * 5, GREEN)
        table = ledger.table()
        assert table.columns.tolist() == list(ledger.TABLE_COLUMNS)
        assert table["before_ns"].tolist() == [SECOND] * 2
        assert table["speed_up"].tolist() == [2.0, 2.0]
        assert table["repeats"].tolist() == [5, 5]
        assert table.attrs["origin"] == "modelled: by hand; recorded: origin not stated"

    @pytest.mark.parametrize(
        "damage",
        [
            lambda record: record.pop("gate"),
            lambda record: record.update(before_ns=[1, 2, 3, 4]),
            lambda record: record.update(after_ns=[1, 2, 3, 4, -5]),
            lambda record: record.update(hypothesis=None),
            lambda record: record.update(gate=[{"name": "x"}]),
        ],
    )
    def test_damaged_line_is_left_out(self, bench: Path, damage: Any) -> None:
        ledger.add("whole", [1.0] * 5, [1.0] * 5, GREEN)
        path = bench / "ledger.jsonl"
        record = json.loads(path.read_text())
        damage(record)
        with path.open("a") as file:
            file.write(json.dumps(record) + '\n{"hypothesis": "cut o')
        assert [one.hypothesis for one in ledger.experiments()] == ["whole"]

    def test_unknown_experiment(self) -> None:
        ledger.add("an idea", [1.0] * 5, [1.0] * 5, GREEN, change="channels last")
        with pytest.raises(CourseError, match="did you mean channels last"):
            ledger.experiments(["chanels last"])


class TestGate:
    def test_green_needs_all_three_parts(self) -> None:
        assert GREEN.green
        assert not RED.green
        for place in range(3):
            assert not CorrectnessGate(GREEN.parts[:place] + GREEN.parts[place + 1 :]).green
        assert "same samples: not looked at" in str(CorrectnessGate(GREEN.parts[:2]))

    def test_gradients(self) -> None:
        passed = finite_gradients(["accuracy on 100 held-out images", "gradient check passed: all 10 parameters"])
        assert passed.passed
        assert passed.figures == "gradient check passed: all 10 parameters"
        assert not finite_gradients([]).passed
        assert not finite_gradients(["gradient check failed: 2 of 10 parameters"]).passed

    def test_loss_parity_by_hand(self) -> None:
        before = [4.6, 4.5, 4.4, 4.3, 4.2, 4.1, 4.0, 4.0]
        after = [4.6, 4.6, 4.6, 4.6, 4.6, 4.6, 4.2, 4.2]
        # The last quarter is two steps: 4.0 and 4.2, which are 0.2 / 4.2 = 4.76 % apart.
        part = loss_parity(before, after, tolerance=0.05)
        assert part.passed
        assert part.figures == (
            "first step 4.6 and 4.6, 0.00% apart, last quarter 4 and 4.2, 4.76% apart; at most 5.00% is allowed"
        )
        assert not loss_parity(before, after, tolerance=0.04).passed
        assert not loss_parity([5.0, *before[1:]], after, tolerance=0.05).passed

    @pytest.mark.parametrize(
        ("before", "after", "seeds", "words"),
        [
            ([1.0], [1.0], (55, 56), "the seeds differ, 55 and 56"),
            ([1.0], [math.nan], (1, 1), "1 losses are not finite"),
            ([math.inf] * 2, [1.0], (1, 1), "2 losses are not finite"),
            ([], [1.0], (1, 1), "no steps"),
        ],
    )
    def test_losses_that_can_not_agree(self, before: list, after: list, seeds: tuple, words: str) -> None:
        part = loss_parity(before, after, seeds)
        assert not part.passed
        assert words in part.figures

    def test_samples(self) -> None:
        assert same_samples(320, 320) == Part("same samples", True, "320 and 320 images")
        assert not same_samples(320, 160).passed
        assert not same_samples(0, 0).passed

    def test_of_folders(self, tmp_path: Path) -> None:
        before = folder_of_run(tmp_path / "before", [10.0] * 4)
        assert CorrectnessGate.of_runs(before, folder_of_run(tmp_path / "same", [9.0] * 4)).green
        unchecked = CorrectnessGate.of_runs(before, folder_of_run(tmp_path / "unchecked", [9.0] * 4, checked=False))
        assert [part.passed for part in unchecked.parts] == [False, True, True]
        assert "--check-gradients" in str(unchecked)
        shorter = CorrectnessGate.of_runs(before, folder_of_run(tmp_path / "shorter", [9.0] * 3))
        assert [part.passed for part in shorter.parts] == [True, True, False]
        seeded = CorrectnessGate.of_runs(before, folder_of_run(tmp_path / "seeded", [9.0] * 4, seed=1))
        assert [part.passed for part in seeded.parts] == [True, False, True]

    def test_on_real_runs_it_tells_a_switch_from_a_fault(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from cifar_train import models
        from cifar_train.config import TrainConfig
        from cifar_train.errors import UserError
        from cifar_train.train import run as train

        monkeypatch.setitem(models.MODELS, "vit", TINY_MODELS["vit"])
        config = TrainConfig(
            **{"model": "vit", "batch_size": 2, "max_steps": 4, "warmup_steps": 1, "data": "synthetic"},
            **{"num_workers": 0, "precision": "float32", "device": "cpu", "check_gradients": True},
        )
        plain, switch, fault = (tmp_path / name for name in ("plain", "switch", "fault"))
        train(config.replace(run_dir=plain))
        train(config.replace(run_dir=switch, fused_optimizer=True))
        with pytest.raises(UserError, match="gradient check failed"):
            train(config.replace(run_dir=fault, pathology="broken-grad"))
        assert CorrectnessGate.of_runs(plain, switch).green
        broken = CorrectnessGate.of_runs(plain, fault)
        # Four steps teach nothing: only the gradients give the fault away.
        assert [part.passed for part in broken.parts] == [False, True, True]


class TestTrainer:
    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        """The commands that were started; instead of a training, a finished run lies in their folder."""
        commands: list[list[str]] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess:
            commands.append(command)
            options = command[3:]
            folder = Path(options[options.index("--run-dir") + 1])
            failed = "broken-grad" in options
            folder_of_run(folder, [10.0] * 4, checked=not failed)
            message = "error: gradient check failed: 2 of 10" if failed else ""
            if "--nonsense" in options:
                message, failed = "error: unrecognized arguments: --nonsense", True
            return subprocess.CompletedProcess(command, 2 if failed else 0, "", message)

        monkeypatch.setattr(subprocess, "run", run)
        return commands

    def test_each_repeat_has_a_folder_of_its_own(self, started: list, bench: Path) -> None:
        train = ledger.trainer("--batch-size 8 --channels-last")
        assert [train().folder for _ in range(2)] == [bench / "ledger" / "0001", bench / "ledger" / "0002"]
        assert started[0][3:6] == ["--batch-size", "8", "--channels-last"]

    def test_its_command_is_one_that_the_trainer_knows(self, started: list) -> None:
        from cifar_train.config import build_parser

        ledger.trainer("--batch-size 8 --channels-last")()
        options = build_parser().parse_args(started[0][3:])
        assert options.check_gradients
        assert started[0][1:3] == ["-m", "cifar_train"]

    def test_an_experiment_with_a_broken_model_is_unproven(self, started: list) -> None:
        found = ledger.add("an idea", ledger.trainer(""), ledger.trainer("--pathology broken-grad"))
        assert len(started) == 10
        assert found.verdict == "unproven"
        assert [part.passed for part in found.gate.parts] == [False, True, True]

    def test_failures_are_one_line(self, started: list) -> None:
        with pytest.raises(CourseError, match="unrecognized arguments: --nonsense") as error:
            ledger.trainer("--nonsense")()
        assert "\n" not in str(error.value)
        with pytest.raises(CourseError, match="leave out --run-dir"):
            ledger.trainer("--run-dir=elsewhere")

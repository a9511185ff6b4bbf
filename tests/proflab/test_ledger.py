"""The ledger and its gate: how much faster, how sure, and does the model still train?"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cifar_train.pathologies import apply_to_model
from proflab import ledger
from proflab.correctness_gate import (
    REQUIRED,
    TOLERANCE,
    CorrectnessGate,
    Part,
    Trial,
    same_gradients,
    same_losses,
)
from proflab.errors import CourseError
from proflab.ledger.entries import SpeedUp, speed_up, time_text
from tidyprof.tables.contract import Origin

GREEN = CorrectnessGate(tuple(Part(name, True, "looked at") for name in REQUIRED))
RED = CorrectnessGate((Part(REQUIRED[0], False, "2 of 10 parameters get none"), *GREEN.parts[1:]))
SECOND = 10**9
TIMES = st.lists(st.integers(1, 10**12), min_size=5, max_size=9)


class TestSpeedUp:
    def test_hand_worked_interval(self) -> None:
        # The median of 5 draws from 8, 9, 10, 11, 12 is 8 if at least 3 of them are: 10*0.2^3*0.8^2
        # + 5*0.2^4*0.8 + 0.2^5 = 0.058, more than the 2.5 % that the interval leaves out below. So
        # it begins at 8 / 4, and by symmetry ends at 12 / 4.
        before = [value * SECOND for value in (8, 9, 10, 11, 12)]
        assert speed_up(before, [4 * SECOND] * 5) == SpeedUp(10 * SECOND, 4 * SECOND, 2.5, 2.0, 3.0)

    @pytest.mark.parametrize("count", [5, 9])
    def test_interval_contains_one_for_equal_distributions_in_about_95_percent(
        self, count: int
    ) -> None:
        random = np.random.default_rng(7)
        trials = 200
        held = 0
        for _ in range(trials):
            found = speed_up(*random.lognormal(18, 0.05, (2, count)))
            held += found.low <= 1 <= found.high
        # 0.96 to 0.97 was found in 1500 trials; three standard errors of 200 trials are 0.04.
        assert 0.925 <= held / trials < 1

    @settings(max_examples=60)
    @given(before=TIMES, after=TIMES, factor=st.sampled_from([2, 8, 1024]))
    def test_interval_lies_between_the_extreme_ratios_and_knows_no_clock(
        self, before: list[int], after: list[int], factor: int
    ) -> None:
        found = speed_up(before, after)
        least, most = min(before) / max(after), max(before) / min(after)
        assert least * 0.999999 <= found.low <= found.high <= most * 1.000001
        scaled = speed_up([factor * time for time in before], [factor * time for time in after])
        assert (scaled.ratio, scaled.low, scaled.high) == pytest.approx(
            (found.ratio, found.low, found.high)
        )

    @pytest.mark.parametrize(
        "bad", [[1, 2, 3, 4], [1, 2, 3, 4, 0], [1, 2, 3, 4, -1], [1, 2, 3, 4, math.nan]]
    )
    def test_what_is_no_set_of_times(self, bad: list[float]) -> None:
        with pytest.raises(ValueError, match=r"repeats|positive"):
            speed_up(bad, [1] * 5)


class TestVerdict:
    @pytest.mark.parametrize(
        ("before", "after", "gate", "verdict"),
        [
            ([2.0] * 5, [1.0] * 5, GREEN, "faster"),
            ([1.0] * 5, [2.0] * 5, GREEN, "slower"),
            ([1.1, 2.1, 3.1, 4.1, 5.1], [1.0, 2, 3, 4, 5], GREEN, "undecided"),
            ([1.0, 2, 3, 4, 5], [1.1, 2.1, 3.1, 4.1, 5.1], GREEN, "undecided"),
            ([1.0] * 5, [1.0] * 5, GREEN, "undecided"),
            ([2.0] * 5, [1.0] * 5, RED, "unproven"),
            ([2.0] * 5, [1.0] * 5, None, "unproven"),
            ([1.0] * 5, [2.0] * 5, None, "slower"),
            ([1.0] * 5, [1.0] * 5, None, "unproven"),
            ([2.0] * 5, [1.0] * 5, CorrectnessGate(GREEN.parts[:2]), "unproven"),
        ],
    )
    def test_each_verdict(
        self, before: list[float], after: list[float], gate: Any, verdict: str
    ) -> None:
        assert ledger.add("an idea", before, after, gate).verdict == verdict
        assert ledger.table()["verdict"].tolist() == [verdict]

    @pytest.mark.parametrize(
        ("after", "gate", "verdict", "shown"),
        [
            (0.4, GREEN, "faster in the model", "2.5 times"),
            (2.0, GREEN, "slower in the model", "0.50 times"),
            (2.0, None, "slower in the model", "0.50 times"),
            (0.96, GREEN, "undecided", "1.0 times"),
            (1.04, GREEN, "undecided", "0.96 times"),
            (0.96, None, "unproven", "1.0 times"),
            (0.4, RED, "unproven", "2.5 times"),
            (0.01, GREEN, "faster in the model", "100 times"),
        ],
    )
    @pytest.mark.parametrize("origin", ["modelled: MI300X", "recorded: AMD; modelled: MI300X"])
    def test_a_model_never_gains_or_loses(
        self,
        after: float,
        gate: Any,
        verdict: str,
        shown: str,
        origin: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        before = [0.998, 0.999, 1.0, 1.001, 1.002]
        found = ledger.add("an idea", before, [after * one for one in before], gate, origin=origin)
        assert (found.verdict, found.interval) == (verdict, shown)
        out = capsys.readouterr().out
        for word in ("interval", "median", "speed-up", "before, per", "after, per"):
            assert word not in out
        assert f"Modelled, not counted as a gain {shown}" in " ".join(out.split())
        assert ledger.table()[["verdict", "interval"]].to_numpy().tolist() == [[verdict, shown]]
        assert ledger.table()[["low", "high"]].isna().all(axis=None)

    @pytest.mark.parametrize(
        ("nanoseconds", "shown"),
        [(7.8749e4, "79 µs"), (2.18749e5, "220 µs"), (1_999_000, "2.0 ms"), (56e6, "56 ms")],
    )
    def test_a_modelled_time_has_two_digits(self, nanoseconds: float, shown: str) -> None:
        assert time_text(nanoseconds, modelled=True) == shown
        assert len(time_text(nanoseconds, modelled=False)) > len(shown) - 1

    def test_result_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        ledger.add(
            "A larger batch helps",
            [0.2] * 5,
            [0.1] * 5,
            RED,
            per="step",
            origin=Origin("recorded", "by hand"),
        )
        out = " ".join(capsys.readouterr().out.split())
        assert out.startswith("Claim: A larger batch helps")
        assert "before, per step 200 ms (median of 5, 200 ms to 200 ms)" in out
        assert "speed-up 2.00 times (95 % interval 2.00 to 2.00)" in out
        assert "gradients not passed: 2 of 10 parameters get none" in out
        assert "verdict unproven" in out
        assert "The repeats don't differ at all" in out
        assert "recorded: by hand" in out

    def test_a_narrow_interval_keeps_the_digits_that_show_it(self) -> None:
        after = [1.0, 1.0001, 1.0002, 1.0003, 1.0004]
        found = ledger.add("a little", [1.04] * 5, after, GREEN)
        ends = found.interval.partition("interval ")[2].removesuffix(")").split(" to ")
        assert ends[0] != ends[1]
        assert float(ends[0]) == pytest.approx(found.speed_up.low, abs=1e-4)
        assert ledger.table()["interval"].tolist() == [found.interval]


class TestRepeats:
    def test_functions_are_called_in_turn(self) -> None:
        calls: list[str] = []

        def measure(name: str, seconds: float):
            return lambda: calls.append(name) or seconds

        found = ledger.add("an idea", measure("b", 0.2), measure("a", 0.1), GREEN, repeats=6)
        assert "".join(calls) == "baabbaabbaab"
        assert found.before_ns == (200_000_000,) * 6
        assert found.origin.startswith("measured: ")

    def test_a_steady_slowdown_of_the_machine_hits_both_sides(self) -> None:
        clock = iter(range(100, 200))
        found = ledger.add("nothing changed", *[lambda: next(clock) / 100] * 2, GREEN, repeats=10)
        assert found.verdict == "undecided"

    @pytest.mark.parametrize(
        ("before", "after", "message"),
        [
            ([1.0] * 4, [1.0] * 5, "before: give a list of at least 5 repeats"),
            ([1.0] * 5, [], "after: give a list"),
            (1.0, [1.0] * 5, "before: give a list"),
            ("12345", [1.0] * 5, "before: give a list"),
            ([1.0, 1, 1, 1, 0], [1.0] * 5, "is no time"),
            ([1.0, 1, 1, 1, math.inf], [1.0] * 5, "is no time"),
            (["a"] * 5, [1.0] * 5, "a repeat is str"),
            ([True] * 5, [1.0] * 5, "a repeat is bool"),
            (lambda: 1.0, [1.0] * 5, "interleaved"),
            (lambda: None, lambda: 1.0, "a repeat is NoneType"),
        ],
    )
    def test_what_can_not_be_compared(self, before: Any, after: Any, message: str) -> None:
        with pytest.raises(CourseError, match=message) as error:
            ledger.add("an idea", before, after, GREEN)
        assert "\n" not in str(error.value)
        assert not len(ledger.table())

    def test_refused_before_anything_runs(self) -> None:
        calls: list[int] = []
        with pytest.raises(CourseError, match="too few"):
            ledger.add("an idea", lambda: calls.append(1) or 1.0, lambda: 1.0, GREEN, repeats=4)
        with pytest.raises(CourseError, match="per must be step or image"):
            ledger.add("an idea", lambda: calls.append(1) or 1.0, lambda: 1.0, GREEN, per="epoch")
        assert not calls

    def test_the_trainer_is_asked_for_its_rate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            folder = Path(command[command.index("--run-dir") + 1])
            records = [{"record": "step"}, {"record": "summary", "images_per_second": 400.0}]
            (folder / "metrics_rank0_of_1.jsonl").write_text("\n".join(map(json.dumps, records)))
            return subprocess.CompletedProcess(
                command, int("--bad" in command), "", "first\nno such option --bad\n"
            )

        monkeypatch.setattr(subprocess, "run", run)
        assert ledger.trainer("--channels-last")() == 1 / 400
        with pytest.raises(CourseError, match="the trainer failed with `--bad`: no such option"):
            ledger.trainer("--bad")()

    def test_the_trainer_runs_in_this_process_and_prints_nothing(
        self, tmp_path: Path, monkeypatch, capsys
    ) -> None:
        monkeypatch.chdir(tmp_path)
        small = (
            "--device cpu --data synthetic --batch-size 2 --max-steps 2 --warmup-steps 1"
            " --num-workers 0"
        )
        assert ledger.trainer(small, inside=True)() > 0
        assert capsys.readouterr().out == ""
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(CourseError, match=r"the trainer failed: .*nowhere"):
            ledger.trainer("--device cpu --data cifar100 --data-path nowhere", inside=True)()


class TestStorage:
    def test_what_is_stored_is_read_back(self, bench: Path) -> None:
        added = ledger.add(
            "an idea", [0.2, 0.21, 0.22, 0.2, 0.19], [0.1] * 5, RED, change="a switch"
        )
        assert ledger.experiments() == [added]
        record = json.loads((bench / "ledger.jsonl").read_text())
        assert record["before_ns"] == [
            200_000_000,
            210_000_000,
            220_000_000,
            200_000_000,
            190_000_000,
        ]
        assert (record["verdict"], record["interval"]) == ("unproven", added.interval)

    def test_every_attempt_stays_in_the_table(self) -> None:
        ledger.add(
            "an idea", [1.0] * 5, [1.0] * 5, GREEN, change="a switch", origin="recorded: by hand"
        )
        ledger.add("another", [1.0] * 5, [0.5] * 5, GREEN)
        again = ledger.add("an idea", [2.0] * 5, [1.0] * 5, GREEN, change="a switch")
        table = ledger.table()
        assert table["attempt"].tolist() == [1, 1, 2]
        assert table["speed_up"].tolist() == [1.0, 2.0, 2.0]
        assert table.attrs["origin"] == "recorded: by hand; recorded: machine not stated"
        assert [one.change for one in ledger.experiments()] == ["a switch", "another"]
        assert ledger.experiments(["a switch"]) == [again]
        with pytest.raises(CourseError, match="did you mean a switch"):
            ledger.experiments(["a swich"])

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


def small_net() -> nn.Module:
    torch.manual_seed(1)
    block = [
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
    ]
    return nn.Sequential(*block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).double()


def trial(
    model: nn.Module, fused: bool = False, rate: float = 1e-2, layout=torch.contiguous_format
) -> Trial:
    """Four steps on one batch, as the lesson does them."""
    images = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(2)).double()
    model, images = model.to(memory_format=layout), images.contiguous(memory_format=layout)
    optimizer, labels = (
        torch.optim.Adam(model.parameters(), lr=rate, fused=fused),
        torch.arange(8) % 4,
    )
    losses, gradients = [], None
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        gradients = gradients or [weights.grad for weights in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return Trial(losses, gradients, 32)


class TestGate:
    def test_cures_pass_and_a_missing_backward_pass_does_not(self) -> None:
        plain = trial(small_net())
        for cured in (
            trial(small_net(), fused=True),
            trial(small_net(), layout=torch.channels_last),
        ):
            gate = CorrectnessGate.of(plain, cured)
            assert gate.green, str(gate)
        for fault in ("many-small-kernels", "wrong-layout", None):
            assert CorrectnessGate.of(plain, trial(apply_to_model(fault, small_net()))).green
        # The last normalisation cuts off itself and all before it: only the linear layer learns.
        broken = CorrectnessGate.of(plain, trial(apply_to_model("broken-grad", small_net())))
        assert "8 of 10 parameters get none" in str(broken)
        assert not broken.green

    def test_a_training_that_diverges_proves_nothing(self) -> None:
        wild = trial(small_net(), rate=50.0)
        assert "take a lower learning rate" in str(CorrectnessGate.of(wild, wild))
        assert not CorrectnessGate.of(wild, wild).green

    def test_green_needs_all_three_parts(self) -> None:
        assert GREEN.green
        assert not RED.green
        for place in range(3):
            assert not CorrectnessGate(GREEN.parts[:place] + GREEN.parts[place + 1 :]).green
        assert "images: not looked at" in str(CorrectnessGate(GREEN.parts[:2]))

    def test_gradients_by_hand(self) -> None:
        old = [torch.tensor([3.0, 4.0]).double(), torch.zeros(2).double()]
        moved = [old[0] + torch.tensor([0.0, 5e-6]).double(), old[1]]  # 5e-6 of 5
        assert "at most 1e-06 apart" in same_gradients(old, moved).figures
        assert same_gradients(old, old).figures == "2 gradients equal"
        assert not same_gradients(old, [old[0] * (1 + 3 * TOLERANCE), old[1]]).passed
        assert not same_gradients(old, [old[0] * math.nan, old[1]]).passed
        assert not same_gradients(old, [old[0], None]).passed
        assert "2 parameters before, 1 after" in same_gradients(old, old[:1]).figures

    def test_losses_by_hand(self) -> None:
        assert same_losses([4.0, 3.0], [4.0, 3.0]).passed
        assert not same_losses([4.0, 3.0], [4.0, 3.001]).passed
        assert not same_losses([4.0, 3.0], [4.0, math.nan]).passed
        assert not same_losses([4.0, 3.0], [4.0]).passed
        assert not same_losses([], []).passed

    def test_as_many_images(self) -> None:
        plain = Trial([2.0, 1.0], [], 16)
        assert [part.passed for part in CorrectnessGate.of(plain, Trial([2.0, 1.0], [], 32)).parts][
            -1
        ] is False

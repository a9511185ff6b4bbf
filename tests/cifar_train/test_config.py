"""The command line, its defaults and its refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cifar_train.cli import main
from cifar_train.config import TrainConfig, parse
from cifar_train.matmul import main as multiply


def test_seed_command_line_keeps_its_defaults_and_short_flags():
    config = parse([])
    assert (config.batch_size, config.max_epochs, config.max_steps) == (256, 1, 20)
    assert (config.model, config.precision) == ("resnet", "automixed")
    assert (config.torch_profile, config.download_only) == (False, False)
    assert config.data_path == Path("data")
    short = parse(["-dp", "elsewhere", "-bs", "8", "-ms", "5"])
    assert (short.data_path, short.batch_size, short.max_steps) == (Path("elsewhere"), 8, 5)


WRONG = [
    ["--model", "alexnet"],
    ["--precision", "fp16"],
    ["-bs", "0"],
    ["-bs", "many"],
    ["--max-steps", "-1"],
    ["--seed", "1" + 30 * "0"],
    ["-ms", 5000 * "9"],
    ["--nonsense"],
    ["--torch-prof"],
    ["--inject-fault", "gremlins"],
    ["--inject-fault", "recompile"],
    ["--record-shapes"],
    ["--torch-profile", "-ms", "1"],
    ["--run-dir", ""],
    ["--data", "cifar100", "--data-path", "/nonexistent", "--device", "cpu"],
    ["-bs", "50000", "--device", "cpu", "--data", "synthetic"],
    ["-bs", "1", "--device", "cpu", "--data", "synthetic"],
    ["--run-dir", "/dev/null/run", "--device", "cpu"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
@pytest.mark.usefixtures("tiny_models")
def test_a_wrong_command_line_is_one_line_and_exit_code_2(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert len(lines[0]) < 500


def test_a_bug_is_no_wrong_command_line(monkeypatch):
    monkeypatch.setattr("cifar_train.cli._train", lambda config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([])


def test_default_schedule_records_three_steps_after_a_warmup():
    schedule = parse(["--torch-profile"]).schedule_for()
    assert [step for step in range(20) if schedule.watches(step)] == [8, 9, 10, 11]
    assert (schedule.warmup, schedule.active) == (1, 3)
    for steps in range(2, 30):
        schedule = TrainConfig(torch_profile=True, max_steps=steps).schedule_for()
        assert sum(map(schedule.watches, range(steps))) == min(4, steps)


def test_warmup_is_at_most_a_third_of_a_short_run():
    assert [TrainConfig().warmup_for(steps) for steps in (1, 3, 6, 15, 100)] == [0, 1, 2, 5, 5]
    assert TrainConfig(warmup_steps=50).warmup_for(20) == 20


@pytest.mark.parametrize("module", ["cifar_train", "cifar_train.matmul"])
def test_help_imports_nothing_heavy(module):
    script = (
        "import runpy, sys\n"
        f"sys.argv = ['{module}', '--help']\n"
        "try:\n"
        f"    runpy.run_module('{module}', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "assert not {'torch', 'transformers', 'numpy', 'pandas'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_matrix_product_is_right_and_counted(capsys):
    import torch

    from cifar_train import matmul

    result = matmul.multiply([6, 4], [4, 3], device_name="cpu")
    generator = torch.Generator().manual_seed(0)
    x, w = torch.rand(6, 4, generator=generator), torch.rand(4, 3, generator=generator)
    assert result["checksum"] == pytest.approx((x @ w).double().mean().item())
    assert result["flops"] == 2 * 6 * 4 * 3
    assert result["duration_ns"] > 0
    assert multiply(["--x-shape", "8", "4", "--w-shape", "4", "2", "--device", "cpu"]) == 0
    for wrong in (["--x-shape", "3", "4", "--w-shape", "5", "6"], ["--x-shape", "0", "4"]):
        assert multiply(wrong) == 2

"""The command line, its promises and its refusals."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cifar_train.config import ZOO, TrainConfig, build_parser, parse
from cifar_train.schedule import ProfileSchedule
from tidyprof.errors import UserError


def test_seed_command_line_keeps_its_defaults():
    config = parse([])
    assert (config.batch_size, config.precision, config.max_epochs, config.max_steps) == (
        256,
        "automixed",
        1,
        20,
    )
    assert (config.model, config.torch_profile, config.download_only) == ("resnet", False, False)
    assert config.data_path == Path("data")


def test_seed_short_flags():
    config = parse(["-dp", "elsewhere", "-bs", "8", "-ms", "5"])
    assert (config.data_path, config.batch_size, config.max_steps) == (Path("elsewhere"), 8, 5)


def test_every_field_is_an_option_and_the_reverse():
    options = {action.dest for action in build_parser()._actions} - {"help", "version"}
    assert options == {field.name for field in dataclasses.fields(TrainConfig)}


def test_help_breaks_no_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = build_parser().format_help().replace(",", " ").split()
    assert set(ZOO) <= set(words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "alexnet"], ["--model", "resnet"]),
        (["--precision", "fp16"], ["--precision", "automixed"]),
        (["-bs", "0"], ["--batch-size", "at least 1", "0"]),
        (["-bs", "many"], ["--batch-size", "many"]),
        (["--max-steps", "-1"], ["--max-steps", "at least 1"]),
        (["--num-workers", "-1"], ["--num-workers", "at least 0"]),
        (["--nonsense"], ["--nonsense", "--help"]),
        (["--torch-prof"], ["--torch-prof", "did you mean --torch-profile?"]),
        (["--pathology", "gremlins"], ["--pathology", "slow-loader"]),
        (["--pathology", "recompile"], ["--compile"]),
        (["--record-shapes"], ["--record-shapes", "--torch-profile"]),
        (["--profile-active", "2"], ["--profile-active", "--torch-profile"]),
        (
            ["--torch-profile", "--profile-wait", "30"],
            ["wait 30 + warmup 1 + active 3", "34", "20"],
        ),
        (["--torch-profile", "-ms", "1"], ["warmup 1 + active 1", "only 1"]),
        (["--seed", "1" + 30 * "0"], ["--seed", "at most", "1" + 30 * "0"]),
        (["--rendezvous-timeout", "1" + 30 * "0"], ["--rendezvous-timeout", "at most 86400"]),
        (["--num-workers", "100000"], ["--num-workers", "at most 256"]),
        (["-bs", 4000 * "9"], ["--batch-size", "at most", "999..."]),
        (["-ms", 5000 * "9"], ["--max-steps", "999..."]),
        (["--model", 5000 * "x"], ["--model", "xxx..."]),
        (["--run-dir", ""], ["--run-dir", "folder's name is missing"]),
        (["--data-path", ""], ["--data-path", "folder's name is missing"]),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments, words):
    with pytest.raises(UserError) as caught:
        parse(arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 300
    for word in words:
        assert word in message


def test_default_schedule_records_steps_9_to_11_of_20():
    schedule = parse(["--torch-profile"]).schedule_for()
    assert [step for step in range(20) if schedule.phase(step) == "active"] == [9, 10, 11]
    assert not schedule.shrunk


@given(steps=st.integers(2, 200))
def test_default_schedule_always_fits_and_records(steps):
    schedule = ProfileSchedule.fit(steps, {})
    phases = [schedule.phase(step) for step in range(steps)]
    assert schedule.steps_needed <= steps
    assert 1 <= phases.count("active") <= 3
    assert schedule.shrunk == (steps < 12)


@given(
    wait=st.integers(0, 5),
    warmup=st.integers(0, 3),
    active=st.integers(1, 4),
    repeat=st.integers(1, 3),
)
def test_phases_agree_with_torch(wait, warmup, active, repeat):
    from torch.profiler import ProfilerAction
    from torch.profiler import schedule as torch_schedule

    names = {
        ProfilerAction.NONE: ("wait", "done"),
        ProfilerAction.WARMUP: ("warmup",),
        ProfilerAction.RECORD: ("active",),
        ProfilerAction.RECORD_AND_SAVE: ("active",),
    }
    theirs = torch_schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
    ours = ProfileSchedule(wait, warmup, active, repeat)
    for step in range(ours.steps_needed + 3):
        assert ours.phase(step) in names[theirs(step)]


def test_resolved_configuration_is_written(tmp_path):
    config = parse(["-bs", "8", "--run-dir", str(tmp_path)])
    saved = json.loads(config.write(tmp_path).read_text())
    assert saved == config.as_dict()
    assert saved["batch_size"] == 8


def test_warmup_is_at_most_a_third_of_a_short_run():
    assert [TrainConfig().warmup_for(steps) for steps in (1, 3, 6, 15, 100)] == [0, 1, 2, 5, 5]
    assert TrainConfig(warmup_steps=50).warmup_for(20) == 20


def test_every_pathology_is_described():
    from cifar_train import pathologies

    for one in ZOO.values():
        functions = [
            one.settings,
            *(getattr(pathologies, name) for name in (one.model, one.trainer) if name),
        ]
        text = " ".join(function.__doc__ for function in functions if function)
        for part in ("Symptom:", "Seen in:", "Truth:"):
            assert part in text, f"{one.name} does not state its {part}"


@pytest.mark.parametrize("module", ["cifar_train", "cifar_train.matmul"])
def test_help_imports_nothing_heavy(module):
    script = (
        "import runpy, sys\n"
        f"sys.argv = ['{module}', '--help']\n"
        "try:\n"
        f"    runpy.run_module('{module}', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "heavy = {'torch', 'torchvision', 'transformers', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--device" in done.stdout

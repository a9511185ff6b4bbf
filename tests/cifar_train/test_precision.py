"""What a precision means on a device, and that a run says so."""

from __future__ import annotations

import json
import os
import platform
import subprocess

import pytest
import torch

from cifar_train import precision
from cifar_train.config import PRECISIONS, precision_label
from cifar_train.launch.ranks import Launch
from cifar_train.train import run, set_up
from tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(params=[True, False], ids=["bfloat16 in hardware", "bfloat16 emulated"])
def native(request, monkeypatch) -> bool:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: request.param)
    return request.param


def test_automixed_is_never_emulated(native):
    assert precision.arithmetic("automixed", CPU) is (torch.bfloat16 if native else torch.float32)
    assert precision.arithmetic("automixed", GPU) is torch.float16


@pytest.mark.parametrize("device", [CPU, GPU])
def test_what_is_asked_for_by_name_is_what_runs(native, device):
    assert precision.arithmetic("float32", device) is torch.float32
    assert precision.arithmetic("bfloat16", device) is torch.bfloat16


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_convolutions_of_a_run_have_the_type_that_it_reports(quick, native, name):
    trainer = set_up(quick(precision=name), Launch(), CPU)
    seen = set()
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    with trainer.autocast():
        trainer.model(torch.zeros(2, 3, 32, 32, dtype=trainer.input_dtype))
    assert seen == {precision.arithmetic(name, CPU)}
    assert not trainer.scaler.is_enabled()


def test_a_run_states_its_arithmetic_in_one_line_and_as_a_condition(quick, native):
    result = run(quick(precision="automixed"))
    name = "bfloat16" if native else "float32"
    (note,) = [note for note in result.notes if "automixed" in note]
    assert name in note
    assert note.startswith("automixed" if native else "this processor has no 16-bit arithmetic, ")
    assert result.summaries[0].arithmetic == name
    assert result.text.startswith(f"resnet, automixed ({name}), batch 4, ")


def test_emulated_bfloat16_runs_and_warns_with_its_factor(quick, native):
    result = run(quick(precision="bfloat16"))
    warned = [note for note in result.notes if precision.EMULATED_FACTOR in note]
    assert len(warned) == (0 if native else 1)
    assert result.summaries[0].arithmetic == "bfloat16"


def test_other_precisions_need_no_explanation(native):
    assert precision_label("bfloat16", "bfloat16") == "bfloat16"
    assert precision_label("automixed", "float32") == "automixed (float32)"


def test_a_processor_without_the_instructions_is_found_out(warm, tmp_path):
    """oneDNN keeps to AVX2 where it is told to, and then has no bfloat16 whatever an x86 processor
    has.
    """
    command = [
        warm,
        "-m",
        "tests.cifar_train.tiny_trainer",
        "--data",
        "synthetic",
        "-ms",
        "2",
        "-bs",
        "4",
        "--json",
    ]
    command += ["--device", "cpu", "--num-workers", "0", "--run-dir", str(tmp_path)]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    emulated = platform.machine() == "x86_64" or not precision.has_bfloat16()
    assert json.loads(done.stdout)["ranks"][0]["arithmetic"] == (
        "float32" if emulated else "bfloat16"
    )

"""The steps that ship: what torch would record now, and played without torch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from gpumodel.recording.operators import Operator
from gpumodel.recording.steps import SHIPPED, record, step_name, unpack
from tests.conftest import REPOSITORY, others_later


def _recorder() -> ModuleType:
    """scripts/dev/record_steps.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "record_steps", REPOSITORY / "scripts/dev/record_steps.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STEPS = _recorder().configurations()

EVERY_RUN = (
    "resnet-automixed-256",
    "vit-automixed-256-compile",
    "resnet-automixed-256-wrong-layout",
    "resnet-automixed-1024-batched_transforms-compile-channels_last-fused_optimizer",
)
"""Between them they take every way through the recorder; the others are compared in a long run."""


def test_the_folder_holds_the_listed_steps_and_nothing_else():
    assert sorted(path.name for path in SHIPPED.iterdir()) == sorted(
        f"{name}.json.gz" for name in STEPS
    )


@pytest.mark.parametrize("name", others_later(STEPS, EVERY_RUN))
def test_a_shipped_step_is_what_torch_records_now(name):
    config = STEPS[name]
    assert step_name(config) == name
    shipped = unpack((SHIPPED / f"{name}.json.gz").read_bytes(), tuple[Operator, ...])
    assert shipped == record(config), "run scripts/dev/record_steps.py and `make recordings`"


def test_a_shipped_step_is_played_without_torch():
    script = (
        "import sys\n"
        "from cifar_train.config import TrainConfig\n"
        "from gpumodel import Training, simulate\n"
        "simulate(Training(config=TrainConfig(max_steps=2)))\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0

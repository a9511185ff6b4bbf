"""Small models in the place of the real ones, so that a run takes a second instead of a minute."""

from __future__ import annotations

import pytest

from tests.cifar_train.tiny_models import TINY_MODELS


@pytest.fixture
def tiny_models(monkeypatch):
    """The trainer's three architectures, each a thousandth of its size."""
    from cifar_train import models

    for name, make in TINY_MODELS.items():
        monkeypatch.setitem(models.MODELS, name, make)


@pytest.fixture
def quick(tmp_path, tiny_models):
    """Make a configuration of a run that takes about a second: quick(max_steps=4, ...)."""
    from cifar_train.config import TrainConfig

    def make(**changes):
        defaults = {
            "batch_size": 4,
            "max_steps": 3,
            "data": "synthetic",
            "num_workers": 0,
            "precision": "float32",
            "device": "cpu",
            "run_dir": tmp_path / "run",
        }
        return TrainConfig(**(defaults | changes))

    return make

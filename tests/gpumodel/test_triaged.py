"""What triage says of runs that the model plays."""

from __future__ import annotations

from pathlib import Path

import tidyprof
from cifar_train.config import TrainConfig
from gpumodel import Training, simulate
from gpumodel.writers import write


def recorded(folder: Path, profiler: str = "torch", **options: object) -> tidyprof.Profile:
    """Three steps of a run, from file."""
    config = TrainConfig(
        torch_profile=True, profile_warmup=0, profile_active=3, max_steps=5, **options
    )
    write("kineto", simulate(Training(config=config, profiler=profiler)), folder, compress=False)
    return tidyprof.read(folder)


def test_a_recording_that_begins_with_the_first_step_holds_its_start_up(tmp_path: Path):
    diagnosis = tidyprof.triage(recorded(tmp_path, profile_wait=0, pathology="no-warmup"))
    assert diagnosis.cause == "start-up"
    assert diagnosis.signs.first_step > 2


def test_a_device_that_is_kept_busy_is_healthy(tmp_path: Path):
    """Without the overhead of a profiler, which would make it launch-bound, and with a loader that
    keeps up.
    """
    cures = {
        "batched_transforms": True,
        "fused_optimizer": True,
        "compile": True,
        "channels_last": True,
    }
    found = tidyprof.triage(recorded(tmp_path, "none", profile_wait=2, batch_size=1024, **cures))
    assert (found.cause, found.sure) == ("healthy", True)

"""The reader of the trainer's metrics: what the trainer writes, and what is left of it after an
accident.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proflab.errors import CourseError
from proflab.training import STEP_DTYPES, TrainingRun, training_run
from tests.cifar_train.tiny_models import TINY_MODELS
from tests.proflab.training_records import MILLISECOND, records, write_records, write_run
from tidyprof import plots
from tidyprof.tables.contract import Origin

TIMES_MS = [900, 200, 20, 21, 22, 60]


def small_run(folder: Path) -> TrainingRun:
    return training_run(write_run(folder, TIMES_MS, warmup=2, profiled=[5]))


def test_reads_what_the_trainer_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cifar_train import models
    from cifar_train.config import TrainConfig
    from cifar_train.train import run as train

    for name, make in TINY_MODELS.items():
        monkeypatch.setitem(models.MODELS, name, make)
    config = TrainConfig(
        **{
            "batch_size": 4,
            "max_steps": 5,
            "warmup_steps": 2,
            "data": "synthetic",
            "num_workers": 0,
        },
        **{
            "precision": "float32",
            "device": "cpu",
            "run_dir": tmp_path / "run",
        },
    )
    written = train(config)
    run = training_run(tmp_path / "run")
    assert run.config == config.as_dict()
    assert run.steps["duration_ns"].tolist() == [record.duration_ns for record in written.records]
    assert run.steps["part"].tolist() == ["warmup"] * 2 + ["steady"] * 3
    assert run.steady["duration_ns"].median() == run.summary["median_step_ns"]
    assert run.origin.kind == "measured"
    assert run.device in run.origin.detail
    assert run.conditions.startswith("resnet, float32, batch 4, ")


def test_steps_have_the_documented_columns(tmp_path: Path) -> None:
    steps = small_run(tmp_path / "run").steps
    assert {name: str(kind) for name, kind in steps.dtypes.items()} == STEP_DTYPES
    assert steps["duration_ns"].tolist() == [time * MILLISECOND for time in TIMES_MS]
    assert steps["images_per_second"].iloc[2] == pytest.approx(8 / 0.020)


def test_steady_and_watched_steps_are_apart(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    assert run.steady["step"].tolist() == [2, 3, 4]
    assert run.watched["step"].tolist() == [5]


def test_origin_is_measured_here_and_recorded_elsewhere(tmp_path: Path) -> None:
    assert small_run(tmp_path / "here").origin == Origin(
        "measured", "Test GPU, this machine, 2026-08-21"
    )
    entries = records(TIMES_MS)
    entries[0]["host"] = "node042"
    assert training_run(write_records(tmp_path / "there", entries)).origin == Origin(
        "recorded", "Test GPU, node042, 2026-08-21"
    )
    del entries[0]["written"]
    assert (
        training_run(write_records(tmp_path / "old", entries)).origin.detail == "Test GPU, node042"
    )


def test_origin_reaches_the_figure(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    assert str(run.origin) in plots.step_times(run.steady).origin


def test_a_diverged_loss_is_read(tmp_path: Path) -> None:
    entries = records(TIMES_MS)
    entries[3]["loss"] = math.nan
    assert math.isnan(training_run(write_records(tmp_path, entries)).steps["loss"].iloc[2])


def test_a_folder_needs_one_file_of_metrics(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(CourseError):
            training_run(folder)
    source = write_run(tmp_path, TIMES_MS) / "metrics_rank0_of_1.jsonl"
    (tmp_path / "metrics_rank0_of_4.jsonl").write_text(source.read_text())
    with pytest.raises(CourseError):
        training_run(tmp_path)


def damage(place: int, **changes: Any) -> list[dict]:
    entries = records(TIMES_MS)
    entries[place].update(changes)
    return entries


@pytest.mark.parametrize(
    "entries",
    [
        [],
        records(TIMES_MS)[1:],
        records(TIMES_MS)[:-2],
        records(TIMES_MS) * 2,
        records(TIMES_MS)[:3] + records(TIMES_MS)[4:],
        damage(1, duration_ns=0),
        damage(1, images="8"),
        damage(1, part="cooldown"),
        damage(1, duration_ns=10**30),
        damage(2, step=0),
        damage(0, config=None),
        damage(0, config={"model": "resnet"}),
        [["step", 0]],
        [{"step": 0}],
    ],
)
def test_damaged_records_are_refused_in_one_line(tmp_path: Path, entries: list) -> None:
    with pytest.raises(CourseError) as error:
        training_run(write_records(tmp_path, entries))
    assert "\n" not in str(error.value)


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    content = bytearray("".join(json.dumps(entry) + "\n" for entry in records(TIMES_MS)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    (folder / "metrics_rank0_of_1.jsonl").write_bytes(content)
    with contextlib.suppress(CourseError):
        run = training_run(folder)
        assert len(run.steps) == run.summary["steps"]

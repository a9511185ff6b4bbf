"""The reader of the trainer's metrics: what the trainer writes, and what is left of it after an
accident.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from proflab.errors import CourseError
from proflab.training import STEP_DTYPES, training_run
from tests.cifar_train.tiny_models import TINY_MODELS
from tests.proflab.training_records import MILLISECOND, records, write_records, write_run
from tidyprof.tables.contract import Origin

TIMES_MS = [900, 200, 20, 21, 22, 60]


def test_reads_what_the_trainer_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cifar_train import models
    from cifar_train.config import parse
    from cifar_train.train import run as train

    for name, make in TINY_MODELS.items():
        monkeypatch.setitem(models.MODELS, name, make)
    options = (
        "--batch-size 4 --max-steps 5 --warmup-steps 2 --data synthetic --num-workers 0"
        f" --precision float32 --device cpu --run-dir {tmp_path / 'run'}"
    )
    written = train(parse(options.split()))
    run = training_run(tmp_path / "run")
    assert run.config["batch_size"] == 4
    assert run.steps["duration_ns"].tolist() == [record.duration_ns for record in written.records]
    assert run.steps["part"].tolist() == ["warmup"] * 2 + ["steady"] * 3
    assert run.steady["duration_ns"].median() == run.summary["median_step_ns"]
    assert run.origin.kind == "measured"
    assert run.device in run.origin.detail
    assert run.conditions.startswith("resnet, float32, batch 4, ")


def test_steps_have_the_documented_columns(tmp_path: Path) -> None:
    run = training_run(write_run(tmp_path / "run", TIMES_MS, warmup=2, profiled=[5]))
    assert {name: str(kind) for name, kind in run.steps.dtypes.items()} == STEP_DTYPES
    assert run.steps["duration_ns"].tolist() == [time * MILLISECOND for time in TIMES_MS]
    assert run.steps["images_per_second"].iloc[2] == pytest.approx(8 / 0.020)
    assert run.steady["step"].tolist() == [2, 3, 4]
    assert run.watched["step"].tolist() == [5]
    assert run.origin == Origin("measured", "Test GPU, this machine, 2026-08-21")


def damage(place: int, **changes: Any) -> list[dict]:
    entries = records(TIMES_MS)
    entries[place].update(changes)
    return entries


def test_a_run_of_another_machine_is_recorded_and_a_loss_may_diverge(tmp_path: Path) -> None:
    write_records(tmp_path, damage(0, host="node042"))
    assert training_run(tmp_path).origin == Origin("recorded", "Test GPU, node042, 2026-08-21")
    write_records(tmp_path, damage(3, loss=math.nan))
    assert math.isnan(training_run(tmp_path).steps["loss"].iloc[2])


def test_a_folder_needs_one_file_of_metrics(tmp_path: Path) -> None:
    source = write_run(tmp_path / "run", TIMES_MS) / "metrics_rank0_of_1.jsonl"
    (tmp_path / "run" / "metrics_rank0_of_4.jsonl").write_text(source.read_text())
    for folder in (tmp_path / "none", tmp_path, tmp_path / "run"):
        with pytest.raises(CourseError):
            training_run(folder)


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
        [["step", 0]],
    ],
)
def test_damaged_records_are_refused_in_one_line(tmp_path: Path, entries: list) -> None:
    with pytest.raises(CourseError) as error:
        training_run(write_records(tmp_path, entries))
    assert "\n" not in str(error.value)
    with (tmp_path / "metrics_rank0_of_1.jsonl").open("ab") as file:
        file.write(b"\xff{")
    with pytest.raises(CourseError):
        training_run(tmp_path)

"""Where the job's time goes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

import pytest

from tidyprof.running.report import Run, job_of

SECOND = 10**9


@pytest.fixture
def clock(inside: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job that was launched at 100 s, and a function that lets seconds pass."""
    now = [100 * SECOND]
    monkeypatch.setattr(inside.job.time, "time_ns", lambda: now[0])

    def wait(seconds: int) -> int:
        now[0] += seconds * SECOND
        return now[0]

    return inside.job.Job(100 * SECOND), wait


def test_the_parts_of_a_job_add_up_to_its_time(clock: Any) -> None:
    job, wait = clock
    wait(10)
    job.end_step()
    for number in range(1, 11):
        job.begin_training()
        wait(2)
        job.end_step()
        if number % 5 == 0:
            wait(1)  # the loader of the validation starts
            for _ in range(3):
                job.end_validation(wait(0))
                wait(1)
            job.end_validation(wait(0))
            job.note("checkpoints", wait(1) - SECOND)
    about = {"job": job.as_dict(), "closed": True}
    run = Run(Path(), MappingProxyType({0: about}), (), ())
    parts = job_of(run, 100 * SECOND, wait(4))
    assert parts == {
        "startup": 10,
        "training": 20,
        "validation": 8,
        "checkpoints": 2,
        "recording": 0,
        "shutdown": 4,
    }


def test_calls_without_gradients_in_each_step_are_training(clock: Any) -> None:
    """A teacher, or a target network."""
    job, wait = clock
    for _ in range(10):
        job.end_validation(wait(0))
        wait(1)
        job.begin_training()
        wait(1)
        job.end_step()
    found = job.as_dict()
    assert found["validation_ns"] == 0
    assert found["startup_ns"] + found["training_ns"] == 20 * SECOND


def test_a_timeout_of_the_program_passes_through_the_measurement_of_memory(
    inside: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TimeoutError is an OSError, and a signal handler may raise it at any time."""

    def ring(*details: object) -> NoReturn:
        raise TimeoutError("time limit")

    torch = ModuleType("torch")
    torch.__file__ = "/nowhere/torch/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(inside.job.os, "open", ring)
    with pytest.raises(TimeoutError, match="time limit"):
        inside.job.resident_bytes()

"""What marks a step, by the order of optimizers, and what is not in torch at all."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

import tidyprof.running.launch as launching
from tidyprof.running.inside.files import RANKS, WORLDS, launched
from tidyprof.running.launch import Asked, environment
from tidyprof.running.report import read_run


@pytest.mark.parametrize(
    ("events", "steps"),
    [
        ("AAAAAAAA", 8),
        ("DGDGDGDG", 4),
        ("DDDDDGDDDDDGDDDDDG", 3),
        ("ABCABCABC", 3),
        ("AAABBBCCC", 9),  # clients that train one after the other
        ("AABBAABB", 8),
        ("A", 1),
    ],
)
def test_a_round_of_optimizers_is_a_step(inside: ModuleType, events: str, steps: int) -> None:
    marker = inside.steps.Marker(last=True)
    for event in events:
        marker.is_step(event)
    assert marker.steps == steps


def test_a_new_optimizer_goes_on_with_the_steps(inside: ModuleType) -> None:
    marker = inside.steps.Marker(last=True)
    for _ in range(inside.steps.MAX_ORDERED_EVENTS):
        marker.is_step("first epoch")
    assert marker.is_step("second epoch")


def test_modules_begin_a_step_and_optimizers_end_one(inside: ModuleType) -> None:
    assert inside.steps.marks_of("EHEHEH", last=False) == {"E"}
    assert inside.steps.marks_of("DGDGDG", last=True) == {"G"}


def test_a_function_is_found_where_it_is_defined(inside: ModuleType) -> None:
    found = inside.hooks.function_named
    assert found("json.dumps") == (json, "dumps")
    assert found("json.JSONDecoder.decode") == (json.JSONDecoder, "decode")
    assert found("json.nothing") is None
    assert found("nothing.at.all") is None


def test_an_error_of_the_hooks_lets_go_of_the_profiler(inside: ModuleType, tmp_path: Path) -> None:
    import torch

    asked = {
        "out": str(tmp_path),
        "after": 30,
        "steps": 3,
        "stacks": False,
        "shapes": False,
        "mark": "",
    }
    hooks = inside.hooks.Hooks(torch, asked)
    hooks.recorder._begin_trace()
    hooks.recorder.profiler.step()  # the one that warms it up
    assert torch.autograd._profiler_enabled()
    hooks.give_up(OSError("the disk is full"))
    assert not torch.autograd._profiler_enabled()


def test_what_comes_after_the_last_timed_step_is_part_of_none(
    inside: ModuleType, tmp_path: Path
) -> None:
    """The program ends with 60 s of something else, while steps of 1 ms are timed."""
    import torch

    asked = {"out": str(tmp_path), "after": 30, "steps": 3, "mark": ""}
    recorder = inside.hooks.Hooks(torch, asked).recorder
    recorder.files, recorder.rank, recorder.world = inside.files.Files(str(tmp_path), 0), 0, 1
    recorder.all_steps = 4
    recorder._begin_timing(inside.recorder.BEFORE)
    recorder.rows = [{"forward": 1_000_000}] * 4
    recorder.begun -= 60
    recorder.close()
    assert recorder.about[inside.recorder.BEFORE]["step_ns"] == 1_000_000


def test_the_second_process_of_a_rank_has_a_folder_of_its_own(
    inside: ModuleType, tmp_path: Path
) -> None:
    first, second = (inside.files.Files(str(tmp_path), 0) for _ in range(2))
    assert first.folder == str(tmp_path)
    assert second.folder == str(tmp_path / "program-2")


def test_a_rank_that_was_killed_while_it_wrote_is_no_rank(tmp_path: Path) -> None:
    (tmp_path / "run_rank0.json").write_text("")
    (tmp_path / "run_rank1.json").write_text('{"rank": 1, "world": 2')
    assert not read_run(tmp_path).ranks


def test_the_program_finds_the_hooks_first_and_its_own_path_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/own")
    given = environment(Asked("/out", 30, 3, False, False, ""))
    assert given["PYTHONPATH"].split(":") == [str(launching.FIRST), "/own"]
    assert json.loads(given["TIDYPROF_RUN"])["out"] == "/out"


def test_the_script_of_a_job_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert launched(RANKS) is None
    assert launched(WORLDS) is None  # or three ranks of a plain program would be missing
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    assert launched(RANKS) == 0


def test_the_rank_of_a_launcher_that_slurm_started_counts_more_than_slurms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    monkeypatch.setenv("RANK", "3")
    assert launched(RANKS) == 3

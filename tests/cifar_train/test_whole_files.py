"""Files are whole or absent, and folders have one user, also where processes are killed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys

import pytest

from cifar_train.train import LOCK, run
from tidyprof import whole_files
from tidyprof.errors import UserError
from tidyprof.whole_files import locked, scratch_folder, whole_file

HOLD = """
import sys, time
from pathlib import Path
from tidyprof.whole_files import {name}
with {name}(Path(sys.argv[1])) as place:
    if place is not None and not place.is_dir():
        place.write_text("half of it")
    print("holding", flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def holding():
    """Start a process that uses a function of whole_files on a path, and is still at it:
    holding(name, path).
    """
    started = []

    def start(name, path):
        command = [sys.executable, "-c", HOLD.format(name=name), str(path)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "holding\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_file_appears_when_it_is_whole(tmp_path):
    target = tmp_path / "result.json"
    target.write_text("before")
    with whole_file(target) as partial:
        partial.write_text("after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert names(tmp_path) == {"result.json"}


def test_an_error_leaves_what_was_there_before(tmp_path):
    target = tmp_path / "result.json"
    target.write_text("before")
    with pytest.raises(FileNotFoundError), whole_file(target) as partial:
        partial.rename(tmp_path / "nowhere" / "result.json")
    assert target.read_text() == "before"
    assert names(tmp_path) == {"result.json"}


def test_what_a_killed_process_left_goes_with_the_next_file(holding, tmp_path):
    process = holding("whole_file", tmp_path / "first.json")
    kill(process)
    assert len(names(tmp_path)) == 2
    with whole_file(tmp_path / "second.json") as partial:
        partial.write_text("whole")
    assert names(tmp_path) == {"second.json"}


def test_what_a_living_process_or_this_one_writes_stays(holding, tmp_path):
    holding("whole_file", tmp_path / "first.json")
    with scratch_folder(tmp_path) as own:
        before = names(tmp_path)
        with scratch_folder(tmp_path):
            pass
        assert own.is_dir()
        assert names(tmp_path) == before
    assert len(names(tmp_path)) == 2


def test_a_file_system_without_locks_lets_everybody_in_and_clears_nothing(
    holding, tmp_path, monkeypatch
):
    kill(holding("whole_file", tmp_path / "first.json"))
    left = names(tmp_path)

    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(whole_files.fcntl, "lockf", refuse)
    with locked(tmp_path / "lock"), whole_file(tmp_path / "second.json") as partial:
        partial.write_text("whole")
    assert names(tmp_path) == left | {"second.json"}


def test_a_second_run_in_one_folder_is_refused_until_the_first_is_dead(holding, quick, tmp_path):
    config = quick(run_dir=tmp_path)
    first = holding("locked", tmp_path / LOCK)
    with pytest.raises(UserError, match=r"in use by another run.*--run-dir"):
        run(config)
    assert names(tmp_path) == {LOCK}
    kill(first)
    run(config)
    assert names(tmp_path) == {"config.json", "metrics_rank0_of_1.jsonl"}


@pytest.mark.parametrize("name", ["config.json", "metrics_rank0_of_1.jsonl"])
def test_a_full_disk_leaves_no_half_file(quick, tmp_path, monkeypatch, name):
    """The metrics would end after a whole line, and look whole to who counts no lines."""
    whole = whole_files.Path.write_text

    def full(path, text):
        if path.name != name:
            return whole(path, text)
        whole(path, "".join(text.splitlines(keepends=True)[:2]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole_files.Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        run(quick(run_dir=tmp_path))
    assert names(tmp_path) == {"config.json"} - {name}


def test_what_is_checked_at_the_end_is_added_to_whole_metrics(quick, tmp_path):
    run(quick(run_dir=tmp_path, check_gradients=True))
    lines = (tmp_path / "metrics_rank0_of_1.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == [
        "run",
        "step",
        "step",
        "step",
        "summary",
        "check",
    ]

"""What a notebook has started ends with its kernel, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import KernelManager, start_new_kernel

from proflab import kernel_guard
from tests.conftest import REPOSITORY, others_later
from tidyprof_tests.patience import PATIENCE_S

TRAINING = (
    "--data synthetic --device cpu --batch-size 4 --max-steps 100000 --num-workers 2 --precision"
    " float32"
)

CELLS = {
    "a cell's command": (
        f"%%bash\npython -m tests.cifar_train.tiny_trainer {TRAINING} --run-dir runs/one"
    ),
    "a command in the background": "%%bash\nsleep 100000 &\nsleep 100000",
    "forked copies": (
        "import multiprocessing, time\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n "
        "   pool.map(time.sleep, [100000, 100000])"
    ),
}
STARTED = {"a cell's command": 4, "a command in the background": 3, "forked copies": 2}
"""So many processes at least; 1 where nothing is said. The loader's two workers are the trainer's
own.
"""


@pytest.fixture
def kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[KernelManager, object]]:
    """A kernel in which a lesson has begun."""
    monkeypatch.delenv(kernel_guard.VARIABLE)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    )
    manager, client = start_new_kernel(cwd=str(tmp_path), startup_timeout=PATIENCE_S)
    client.execute_interactive(
        "import proflab\nproflab.start('00')", timeout=PATIENCE_S, output_hook=lambda _: None
    )
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def until(condition: Callable[[], object]) -> object:
    """What the condition gives as soon as that is something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def children_of(pid: int, least: int) -> list[psutil.Process]:
    """All that the kernel has started, but its guard, once it is as much as expected."""
    found = [
        process
        for process in psutil.Process(pid).children(recursive=True)
        if is_a_cells_own(process)
    ]
    return found if len(found) >= least else []


def is_a_cells_own(process: psutil.Process) -> bool:
    try:
        return "proflab.kernel_guard" not in process.cmdline()
    except (
        psutil.NoSuchProcess
    ):  # ended between the list and the question, as a shell's short helpers do
        return False


@pytest.mark.parametrize("cell", others_later(CELLS, ("a cell's command",)))
def test_a_killed_kernel_leaves_nothing(kernel, cell):
    manager, client = kernel
    pid = manager.provisioner.pid
    client.execute(CELLS[cell])
    started = until(lambda: children_of(pid, STARTED.get(cell, 1)))
    os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(is_alive, started)))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def guard(pid: int, mark: str) -> None:
    """The guard of a kernel that is gone, in a process of its own: here it would take the exit
    codes for itself.
    """
    subprocess.run([sys.executable, "-m", "proflab.kernel_guard", str(pid), mark], check=True)


def test_a_submitted_job_outlives_the_notebook():
    """A scheduler's job inherits the mark as it does the whole environment."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(100000)"]
    kernel = subprocess.Popen(sleeper)
    environment = os.environ | {kernel_guard.VARIABLE: "a mark of this test"}
    cells_own = subprocess.Popen(sleeper, env=environment)
    job = subprocess.Popen(sleeper, env=environment | {kernel_guard.JOB: "17"})
    kernel.kill()
    try:
        guard(kernel.pid, "a mark of this test")
        assert cells_own.wait(PATIENCE_S) == -signal.SIGTERM
        assert job.poll() is None
    finally:
        job.kill()
        kernel.wait()
        job.wait()


def test_a_process_that_takes_no_notice_is_killed():
    deaf = (
        "import signal, time, sys\nsignal.signal(signal.SIGTERM,"
        " signal.SIG_IGN)\nprint(flush=True)\ntime.sleep(1e6)"
    )
    environment = os.environ | {kernel_guard.VARIABLE: "another mark"}
    process = subprocess.Popen(
        [sys.executable, "-c", deaf], env=environment, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    guard(999999999, "another mark")
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    process.stdout.close()


def test_one_guard_for_one_process(monkeypatch):
    begun = []
    monkeypatch.setattr(
        kernel_guard.subprocess, "Popen", lambda *words, **more: begun.append(words)
    )
    monkeypatch.setenv(kernel_guard.VARIABLE, "17-of another kernel")
    kernel_guard.guard_this_process()
    kernel_guard.guard_this_process()
    assert len(begun) == 1

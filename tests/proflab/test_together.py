"""A room in one clone: learners who begin at the same moment, with the same new cache and folder of
results.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import proflab
import tidyprof
from proflab import kernel_guard
from proflab.tapes.__main__ import main
from tidyprof_tests.patience import PATIENCE_S

LEARNERS = 6
WORKLOAD = "python -m cifar_train.matmul --x-shape 50000 10000 --w-shape 10000 800"


def learn(together: Barrier, trace: Path) -> None:
    """Begin the lesson, record into the file of all, read it while others replace it, and do so
    again.
    """
    os.environ[kernel_guard.VARIABLE] = f"{os.getpid()}-0"
    together.wait(PATIENCE_S)
    proflab.start("06")
    for _ in range(3):
        if main(["runTracer.sh", "-o", str(trace), *WORKLOAD.split()]):
            sys.exit(3)
        if not len(tidyprof.read(trace).device_events):
            sys.exit(4)


def test_half_a_dozen_begin_at_once(tmp_path: Path, bench: Path) -> None:
    fork = multiprocessing.get_context("fork")
    together, trace = fork.Barrier(LEARNERS), bench / "06" / "small.rpd"
    learners = [fork.Process(target=learn, args=(together, trace)) for _ in range(LEARNERS)]
    for learner in learners:
        learner.start()
    for learner in learners:
        learner.join(PATIENCE_S)
    assert [learner.exitcode for learner in learners] == LEARNERS * [0]
    assert [path.name for path in bench.rglob("*")] == ["06", "small.rpd"]
    assert not list(tmp_path.rglob(".*"))

"""A made-up player for the tests of stand-ins: the handmade run, with as many ranks as were asked
for.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumodel.run import RankRun, Run
from gpumodel.workload import MatrixProduct, Workload
from proflab.standins.__main__ import main
from tests.gpumodel.handmade import small_run

RATES = (1_000.0, 2_000.0, 4_000.0)
"""Images per second of the three steps."""


def simulate(workload: Workload) -> Run:
    """The handmade run of three steps for any workload."""
    run = small_run()
    count = 1 if isinstance(workload, MatrixProduct) else workload.ranks
    rates = () if isinstance(workload, MatrixProduct) else RATES
    ranks = tuple(
        _rank(run.ranks[number % len(run.ranks)], number, rates) for number in range(count)
    )
    return replace(run, workload=workload, ranks=ranks)


def _rank(rank: RankRun, number: int, rates: tuple[float, ...]) -> RankRun:
    return replace(
        rank,
        rank=number,
        process_id=4200 + 10 * number,
        autograd_thread_id=4205 + 10 * number,
        device=number,
        agent=number + 2,
        images_per_second=rates,
    )


VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "PROFLAB_WORKLOAD",
)


def stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder, with the made-up player, tools of ROCm 7.2 and no variables that change what
    a stand-in does.
    """
    monkeypatch.setenv("PROFLAB_ROCM", "7.2")
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "gpumodel.simulation", SimpleNamespace(simulate=simulate))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return folder


def run(text: str) -> int:
    """The exit code of a stand-in's command line."""
    try:
        return main(shlex.split(text))
    except SystemExit as end:  # argparse ends by itself
        return end.code

"""A made-up player for the tests of stand-ins: the handmade run, with as many ranks as were asked for."""

from __future__ import annotations

from dataclasses import replace

from gpumodel.run import RankRun, Run
from gpumodel.workload import MatrixProduct, Workload
from tests.gpumodel.handmade import small_run

RATES = (1_000.0, 2_000.0, 4_000.0)
"""Images per second of the three steps."""


def simulate(workload: Workload) -> Run:
    """The handmade run of three steps for any workload."""
    run = small_run()
    count = 1 if isinstance(workload, MatrixProduct) else workload.ranks
    rates = () if isinstance(workload, MatrixProduct) else RATES
    ranks = tuple(_rank(run.ranks[number % len(run.ranks)], number, rates) for number in range(count))
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

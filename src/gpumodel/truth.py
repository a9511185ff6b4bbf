"""What a perfect reader must find in a played run.

The parts of a step are those of tidyprof.step_budget, by the same code, on the tables as they were played.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.workload import MatrixProduct
from tidyprof.analyses.budget import DEVICE_PARTS, step_budget
from tidyprof.names.short_names import category
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

if TYPE_CHECKING:
    from gpumodel.play.engine import PlayedStep


def of_run(run: Run) -> dict[str, Any]:
    """Plain values, times in ns.

    pathology          -- the fault that was put in, or None.
    steps              -- one dict per rank and step: rank, step, duration_ns, the parts of tidyprof.DEVICE_PARTS with
                          `_ns` (they add up to duration_ns), loader_wait_ns (waiting for a batch).
    kernel_ns_by_category -- rank -> category -> sum of the durations of kernels and collectives.
    exposed_communication_ns, launch_bound_percent -- per rank, over all its steps.
    memory_bound_kernels -- names of kernels most of whose time is bound by memory, largest first.
    collective_wait_ns -- per rank: how long its collectives waited for others.
    straggler          -- the rank that came last to most all-reduces, None if there are none.
    """
    steps = run.steps
    budget = step_budget(profile_of(run))
    rows = [] if isinstance(run.workload, MatrixProduct) else _step_rows(budget, steps)
    return {
        "pathology": getattr(getattr(run.workload, "config", None), "pathology", None),
        "steps": rows,
        "kernel_ns_by_category": {own.rank: _by_category(own) for own in run.ranks},
        "exposed_communication_ns": _per_rank(budget, "exposed_communication_ns"),
        "launch_bound_percent": _launch_bound(budget),
        "memory_bound_kernels": _memory_bound(run),
        "collective_wait_ns": {own.rank: int(sum(step.waited[own.rank].sum() for step in steps)) for own in run.ranks},
        "straggler": _straggler(steps),
    }


def profile_of(run: Run) -> Profile:
    """Device work, runtime calls and annotations of all ranks in tidyprof's terms, with launch_ns and collective."""
    parts = [
        part
        for own in run.ranks
        for part in (
            _device_events(own),
            _host_events(own, own.calls, "runtime"),
            _host_events(own, own.annotations, "annotation"),
        )
    ]
    events = pd.concat([part.astype(_PLAIN) for part in parts], ignore_index=True)
    events = events.sort_values("start_ns", kind="stable", ignore_index=True).astype(EVENT_DTYPES)
    return Profile(events, meta={"origin": Origin("modelled", run.error), "world_size": len(run.ranks)})


_PLAIN = {
    **{name: "object" if dtype == "category" else dtype for name, dtype in EVENT_DTYPES.items()},
    "launch_ns": "Int64",
    "collective": "string",
}
"""Types in which parts are put together; categories come last, since each part has its own."""


def _device_events(own: RankRun) -> pd.DataFrame:
    launched = own.calls.set_index("correlation_id")["start_ns"]
    work = own.device_work
    columns = ("stream", "kind", "name", "start_ns", "duration_ns", "correlation_id")
    return work[list(columns)].assign(
        rank=own.rank,
        process=own.process_id,
        thread=pd.NA,
        device=own.device,
        short_name=work["name"],
        launch_ns=work["correlation_id"].map(launched),
        collective=work["collective"].replace("", None),
    )


def _host_events(own: RankRun, events: pd.DataFrame, kind: str) -> pd.DataFrame:
    missing = dict.fromkeys(("device", "stream", "correlation_id", "launch_ns", "collective"), pd.NA)
    return events[["name", "start_ns", "duration_ns"]].assign(
        rank=own.rank,
        process=own.process_id,
        thread=events["thread_id"],
        kind=kind,
        short_name=events["name"],
        **missing,
    )


def _step_rows(budget: pd.DataFrame, steps: Sequence[PlayedStep]) -> list[dict[str, Any]]:
    columns = ["rank", "step", "duration_ns", *(f"{part}_ns" for part in DEVICE_PARTS)]
    rows = [{name: int(value) for name, value in row.items()} for row in budget[columns].to_dict("records")]
    for row in rows:
        row["loader_wait_ns"] = int(steps[row["step"]].loader_ns[row["rank"]])
    return rows


def _per_rank(budget: pd.DataFrame, column: str) -> dict[int, int]:
    return {int(rank): int(total) for rank, total in budget.groupby("rank")[column].sum().items()}


def _launch_bound(budget: pd.DataFrame) -> dict[int, float]:
    total, idle = _per_rank(budget, "duration_ns"), _per_rank(budget, "launch_bound_ns")
    return {rank: 100 * idle[rank] / total[rank] for rank in total}


def _by_category(own: RankRun) -> dict[str, int]:
    work = own.device_work[own.device_work["kind"].isin(["kernel", "collective"])]
    totals = work.groupby(["name", "kind"], sort=False)["duration_ns"].sum()
    found: dict[str, int] = {}
    for (name, kind), total in totals.items():
        group = category(name, kind)
        found[group] = found.get(group, 0) + int(total)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _memory_bound(run: Run) -> list[str]:
    work = pd.concat([own.device_work for own in run.ranks])
    work = work[work["kind"] == "kernel"]
    total = work.groupby("name")["duration_ns"].sum()
    bound = work[work["bound_by"] == "memory"].groupby("name")["duration_ns"].sum()
    names = bound[bound * 2 > total.reindex(bound.index)].sort_values(ascending=False, kind="stable")
    return names.index.tolist()


def _straggler(steps: Sequence[PlayedStep]) -> int | None:
    last = [
        int(np.argmax(step.start[:, number]))
        for step in steps
        for number, launch in enumerate(step.plan.launches)
        if launch.collective == "allreduce"
    ]
    return int(np.bincount(last).argmax()) if last else None

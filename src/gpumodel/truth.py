"""A played run as a perfect reader would return it: its tables in tidyprof's terms."""

from __future__ import annotations

import pandas as pd

from gpumodel.run import RankRun, Run
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile


def profile_of(run: Run) -> Profile:
    """Device work, runtime calls and annotations of all ranks in tidyprof's terms, including the
    columns launch_ns and collective.
    """
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
    detail = ", ".join(filter(None, (run.device.name, run.error)))
    return Profile(
        events, meta={"origin": Origin("modelled", detail), "world_size": len(run.ranks)}
    )


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
    missing = dict.fromkeys(
        ("device", "stream", "correlation_id", "launch_ns", "collective"), pd.NA
    )
    return events[["name", "start_ns", "duration_ns"]].assign(
        rank=own.rank,
        process=own.process_id,
        thread=events["thread_id"],
        kind=kind,
        short_name=events["name"],
        **missing,
    )

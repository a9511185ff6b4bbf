"""Device work beside the host calls that launched it."""

from __future__ import annotations

import pandas as pd

from gpumodel.run import RankRun

COPY_KINDS = {"HostToDevice": 1, "DeviceToHost": 2, "DeviceToDevice": 3}
"""hipMemcpyKind of the directions of a copy (HIP API reference)."""

WORK_ITEM_LAUNCHES = frozenset({"hipExtModuleLaunchKernel"})
"""Calls whose grid counts work-items; all other launches count workgroups (HIP API reference, module management)."""


def work_with_launches(rank: RankRun) -> pd.DataFrame:
    """`rank.device_work` with the columns call_name, call_start_ns and thread_id of the launching call.

    Work whose call is not in the table gets the rank's main thread, an empty name and <NA> as start.
    """
    calls = rank.calls[["correlation_id", "name", "start_ns", "thread_id"]]
    calls = calls.rename(columns={"name": "call_name", "start_ns": "call_start_ns"})
    work = rank.device_work.merge(calls, on="correlation_id", how="left", validate="many_to_one")
    work["call_name"] = work["call_name"].fillna("")
    work["thread_id"] = work["thread_id"].fillna(rank.main_thread_id).astype("int64")
    work["call_start_ns"] = work["call_start_ns"].astype("Int64")
    return work


def grid_of_call(work: pd.DataFrame) -> pd.DataFrame:
    """The grid as the launching call received it, columns x, y, z: workgroups, or work-items for some calls."""
    in_items = work["call_name"].isin(WORK_ITEM_LAUNCHES)
    columns = {}
    for axis in "xyz":
        items, size = work[f"grid_{axis}"], work[f"workgroup_{axis}"].clip(lower=1)
        columns[axis] = items.where(in_items, (items + size - 1) // size)
    return pd.DataFrame(columns)

"""`rocpd convert`: the rows of a database as rocprofv3's CSV files with a column Guid, or as a trace."""

from __future__ import annotations

import argparse
import csv
import sqlite3
import sys
import tempfile
from pathlib import Path

import pandas as pd

from cifar_train.errors import UserError
from proflab.standins.deliver import place
from proflab.standins.rocpd_window import windowed

_AGENT = {
    "absolute": "'Agent ' || {0}agent_abs_index",
    "relative": "'Agent ' || {0}agent_log_index",
    "type-relative": "{0}agent_type || ' ' || {0}agent_type_index",
}

_KERNELS = """
SELECT guid AS Guid, category AS Kind, {agent} AS Agent_Id, queue_id AS Queue_Id, stream_id AS Stream_Id,
  tid AS Thread_Id, dispatch_id AS Dispatch_Id, kernel_id AS Kernel_Id, {name} AS Kernel_Name,
  stack_id AS Correlation_Id, start AS Start_Timestamp,
  "end" AS End_Timestamp, lds_size AS LDS_Block_Size, scratch_size AS Scratch_Size,
  vgpr_count AS VGPR_Count, accum_vgpr_count AS Accum_VGPR_Count, sgpr_count AS SGPR_Count,
  workgroup_x AS Workgroup_Size_X, workgroup_y AS Workgroup_Size_Y, workgroup_z AS Workgroup_Size_Z,
  grid_x AS Grid_Size_X, grid_y AS Grid_Size_Y, grid_z AS Grid_Size_Z, start, "end"
FROM kernels ORDER BY start"""

_COPIES = """
SELECT guid AS Guid, category AS Kind, name AS Direction, stream_id AS Stream_Id, {source} AS Source_Agent_Id,
  {destination} AS Destination_Agent_Id, stack_id AS Correlation_Id, start AS Start_Timestamp,
  "end" AS End_Timestamp, start, "end"
FROM memory_copies ORDER BY start"""

_CALLS = """
SELECT guid AS Guid, category AS Domain,
  CASE WHEN category LIKE 'MARKER%' THEN COALESCE(json_extract(extdata, '$.message'), name) ELSE name END AS Function,
  pid AS Process_Id, tid AS Thread_Id, stack_id AS Correlation_Id, start AS Start_Timestamp, "end" AS End_Timestamp,
  start, "end"
FROM regions WHERE category LIKE ? ORDER BY start"""

CALL_FILES = {"HIP%": "hip_api", "HSA%": "hsa_api", "RCCL%": "rccl_api", "MARKER%": "marker_api"}
"""Categories of regions and the files that they go to."""


def convert(databases: sqlite3.Connection, options: argparse.Namespace) -> None:
    """Write the formats that were asked for into the output folder. Raises UserError."""
    if "otf2" in options.output_format:
        raise UserError("-f otf2 is not modelled; ask for csv or pftrace")
    base = options.output_path / (options.output_file or "out")
    if "csv" in options.output_format:
        _write_tables(databases, options, base)
    if "pftrace" in options.output_format:
        _write_trace(options, base)


def _write_tables(databases: sqlite3.Connection, options: argparse.Namespace, base: Path) -> None:
    agent = _AGENT[options.agent_index_value]
    name = "COALESCE(NULLIF(region, ''), name)" if options.kernel_rename else "name"
    queries = {
        "kernel_trace": (_KERNELS.format(agent=agent.format(""), name=name), ()),
        "memory_copy_trace": (
            _COPIES.format(source=agent.format("src_"), destination=agent.format("dst_")),
            (),
        ),
    }
    queries |= {f"{file}_trace": (_CALLS, (pattern,)) for pattern, file in CALL_FILES.items()}
    for file, (query, values) in queries.items():
        table = windowed(pd.read_sql_query(query, databases, params=values), databases, options)
        if len(table):
            _write_csv(table.drop(columns=["start", "end"]), base.with_name(f"{base.name}_{file}.csv"))


def _write_csv(table: pd.DataFrame, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / target.name
        table.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
        print(place(path, target))


def _write_trace(options: argparse.Namespace, base: Path) -> None:
    """All processes in one trace, in Chrome's JSON form under the name of a Perfetto trace: viewers go by content."""
    if options.start or options.end or options.kernel_rename or options.group_by_queue:
        raise UserError("-f pftrace is modelled for the whole run and by stream; leave the other options out")
    import tidyprof
    from tidyprof.analyses.common import join

    try:
        profiles = [tidyprof.read_rocpd(path) for path in options.input]
    except tidyprof.ProfileReadError as error:
        raise UserError(str(error)) from error
    events = join([profile.events for profile in profiles]).sort_values("start_ns", kind="stable", ignore_index=True)
    profile = tidyprof.Profile(events, join([profile.counters for profile in profiles]), profiles[0].meta)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "trace.json"
        tidyprof.write_chrome_trace(profile, path)
        print(place(path, base.with_name(f"{base.name}_results.pftrace")))
    print("rocpd: stand-in: the trace is in Chrome's JSON form, which ui.perfetto.dev opens as well", file=sys.stderr)

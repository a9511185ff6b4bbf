"""`rocprofv3 --pmc`: a row for each kernel and counter, of the counters that the model knows.

They are those that the model gives rocprof-compute: see gpumodel.writers.rocprof_compute.counters for what is exact
and what is estimated. Columns: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/docs/data (ROCm 7.0).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cifar_train.errors import UserError
from cifar_train.whole_files import whole_file
from gpumodel.devices import Device
from gpumodel.run import DEVICE_WORK, RankRun, Run
from gpumodel.writers.rocprof_compute.counters import LEVEL, counters_of, runs_of
from gpumodel.writers.rocprofv3.csv_files import LDS_BLOCK, csv_text
from gpumodel.writers.rocprofv3.records import Records

FILE = "counter_collection.csv"


def modelled_counters(device: Device) -> list[str]:
    """Names of the counters that the model gives; those that only rocprof-compute makes are left out."""
    nothing = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in DEVICE_WORK.items()})
    return [name for name in counters_of(nothing, device).columns if name != LEVEL]


def check_counters(names: Sequence[str], device: Device) -> None:
    """Raises UserError for a counter that is not modelled, and for more than the hardware counts in one pass."""
    known = modelled_counters(device)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(
            f"--pmc {' '.join(unknown)}: not modelled on {device.name}; `rocprofv3-avail list --pmc` names what is"
        )
    if len(runs_of(names)) > 1:
        raise UserError(
            f"--pmc with {len(names)} counters: more than the hardware counts in one pass (8 of SQ, 4 of TCC, 2 of SPI "
            "and GRBM each); start the program once for each group"
        )


def check(options: argparse.Namespace, device: Device) -> None:
    """Raises UserError for what the stand-in cannot do with counters."""
    check_counters(options.pmc, device)
    others = sorted(set(options.output_format or ["rocpd"]) - {"csv"})
    if others:
        raise UserError(f"--pmc is not modelled in the format {others[0]}; say --output-format csv")
    for pattern in (options.kernel_include_regex, options.kernel_exclude_regex):
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise UserError(f"{pattern!r} is no regular expression: {error}") from None


def write(run: Run, rank: RankRun, options: argparse.Namespace, prefix: Path) -> list[Path]:
    """Write `<prefix>_counter_collection.csv`; nothing where the filters leave no kernel. Raises UserError."""
    table = _chosen(Records(run, rank).dispatches, options)
    if table.empty:
        return []
    path = prefix.with_name(f"{prefix.name}_{FILE}")
    counted = _rows(table, rank, counters_of(table, run.device)[sorted(options.pmc)])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(csv_text(list(counted), list(counted.values())), encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another output folder") from error
    return [path]


def _chosen(table: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """The kernels that the regular expressions on names leave, in the order of their dispatch."""
    keep = pd.Series(True, index=table.index)
    for pattern, wanted in ((options.kernel_include_regex, True), (options.kernel_exclude_regex, False)):
        if pattern:
            keep &= table["name"].map(lambda name, pattern=pattern: bool(re.search(pattern, name))) == wanted
    return table[keep].sort_values("dispatch_id", ignore_index=True)


def _rows(table: pd.DataFrame, rank: RankRun, counters: pd.DataFrame) -> dict[str, Iterable[Any]]:
    """The columns: dispatch after dispatch, in each the counters by name."""
    sizes = {
        what: np.prod([table[f"{what}_{axis}"].clip(lower=1).to_numpy() for axis in "xyz"], axis=0)
        for what in ("grid", "workgroup")
    }
    columns = {
        "Correlation_Id": table["correlation_id"],
        "Dispatch_Id": table["dispatch_id"],
        "Agent_Id": [f"Agent {rank.agent}"] * len(table),
        "Queue_Id": table["queue"],
        "Process_Id": [rank.process_id] * len(table),
        "Thread_Id": table["thread_id"],
        "Grid_Size": sizes["grid"],
        "Kernel_Id": table["kernel_id"],
        "Kernel_Name": table["name"],
        "Workgroup_Size": sizes["workgroup"],
        "LDS_Block_Size": (table["lds_bytes"] + LDS_BLOCK - 1) // LDS_BLOCK * LDS_BLOCK,
        "Scratch_Size": table["scratch_bytes"],
        "VGPR_Count": table["vector_registers"],
        "Accum_VGPR_Count": table["accumulation_registers"],
        "SGPR_Count": table["scalar_registers"],
    }
    times = {"Start_Timestamp": table["start_ns"], "End_Timestamp": table["end_ns"]}
    each = len(counters.columns)
    six_digits = Decimal("0.000000")
    return {
        **{name: _repeated(column, each) for name, column in columns.items()},
        "Counter_Name": [*counters.columns] * len(table),
        "Counter_Value": [Decimal(value).quantize(six_digits) for value in counters.to_numpy().reshape(-1).tolist()],
        **{name: _repeated(column, each) for name, column in times.items()},
    }


def _repeated(column: Iterable[Any], times: int) -> list[Any]:
    return [value for value in list(column) for _ in range(times)]

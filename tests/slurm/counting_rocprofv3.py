"""A rocprofv3 for one purpose: takes --pmc and writes two dispatches' counters, named as the tool names them.

Columns: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/docs/data (ROCm 7.0).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from proflab.standins.placeholders import Process, expand

COLUMNS = (
    "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Grid_Size,Kernel_Id,Kernel_Name,Workgroup_Size,"
    "LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Counter_Name,Counter_Value,Start_Timestamp,"
    "End_Timestamp"
)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--pmc", nargs="+", required=True)
    parser.add_argument("--output-format", choices=["csv"], required=True)
    parser.add_argument("--output-directory", type=Path, required=True)
    parser.add_argument("--output-file", required=True)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    process = Process("here", os.getpid(), options.program[1:], os.environ)
    target = options.output_directory / f"{expand(options.output_file, process)}_counter_collection.csv"
    lines = [COLUMNS]
    for dispatch in (1, 2):
        for name in options.pmc:
            lines.append(
                f'{dispatch},{dispatch},"Agent 1",1,{os.getpid()},{os.getpid()},1024,7,"add(float*)",64,0,0,8,0,16,'
                f'"{name}",16.000000,{1000 * dispatch},{1000 * dispatch + 400}'
            )
    target.write_text("\n".join(lines) + "\n")


main()

"""The command `isa`: assembly for AMD GPUs in, what the compiler made of each kernel out."""

from __future__ import annotations

import json
import re
from argparse import Namespace

from tidyprof.analyses.gpu_peaks import COMPUTE_UNITS, occupancy
from tidyprof.cli.output import (
    Column,
    check_targets,
    columns_of,
    say,
    show,
    showing,
    texts,
    write_report,
)
from tidyprof.readers.assembly import read_assembly


def isa(options: Namespace) -> int:
    """Show the kernels, and write them if asked to. Returns 1 where one spills and that shall fail,
    else 0.
    """
    check_targets(options)
    kernels = read_assembly(options.files[0])
    table = kernels.join(occupancy(kernels))
    names = zip(table["file"], table["kernel"], strict=True)
    spilling = table[table["spilled_vgprs"].fillna(0) > 0]
    with showing(options):
        say(
            f"kernels: {len(table)}, that spill vector registers to memory: {len(spilling)}", "bold"
        )
        say("")
        headings = {"kernel": "kernel", "target": "target", "VGPR": "vgprs", "AGPR": "accum_vgprs"}
        headings |= {
            "spilled": "spilled_vgprs",
            "scratch B": "scratch_bytes",
            "LDS B": "lds_bytes",
            "warps": "warps",
        }
        waves = Column("waves", texts(table["waves"], "{:g}".format))
        rest = {"limited by": "limited_by", "MFMA": "matrix_instructions", "loads": "loads"}
        places = [re.sub(rf"/{re.escape(kernel)}\.\w+(\.gz)?$", "", file) for file, kernel in names]
        show(
            [
                *columns_of(table, headings),
                waves,
                *columns_of(table, rest),
                Column("file", places, is_text=True),
            ]
        )
        say(
            "waves: most wavefronts on each SIMD at a time; lines of code are counted, not how"
            " often they run",
            "dim",
        )
        if table["loads"].isna().any():
            say(
                "a code object has no text to count in: llvm-objdump --disassemble FILE shows its"
                " instructions",
                "dim",
            )
        if unknown := sorted({*table["target"]} - {*COMPUTE_UNITS}):
            say(f"waves of {', '.join(unknown)} are not known here", "dim")
        elif table["warps"].isna().any():
            say(
                "without Triton's JSON beside a file, LDS and workgroup are not known: no waves",
                "dim",
            )
    if options.json is not None:
        rows = json.loads(table.to_json(orient="records", double_precision=15))
        report = {"origin": str(kernels.attrs["origin"]), "kernels": rows}
        write_report("--json", options.json, json.dumps(report, indent=1) + "\n")
    return int(options.fail_on_spill and len(spilling) > 0)

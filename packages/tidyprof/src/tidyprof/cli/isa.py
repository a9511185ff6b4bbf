"""The command `isa`, which shows the properties of kernels in assembly for AMD GPUs."""

from __future__ import annotations

import json
import re
from argparse import Namespace

from tidyprof.analyses.gpu_peaks import occupancy
from tidyprof.cli.output import cells_of, check_targets, say, show, showing, write_report
from tidyprof.readers.assembly import read_assembly


def isa(options: Namespace) -> int:
    """Show a table of the kernels. Write it to a JSON file if requested.

    Return 1 if a kernel spills and --fail-on-spill was passed, otherwise 0.
    """
    check_targets(options)
    kernels = read_assembly(options.files[0])
    table = kernels.join(occupancy(kernels))
    spilling = table[table["spilled_vgprs"].fillna(0) > 0]
    with showing(options):
        say(
            f"kernels: {len(table)}, {len(spilling)} of them spill vector registers to memory",
            "bold",
        )
        say("")
        names = [_name(*row) for row in zip(table["kernel"], table["file"], strict=True)]
        name = {"kernel and file": names}
        registers = {"target": "target", "VGPR": "vgprs", "AGPR": "accum_vgprs"}
        memory = {"spilled": "spilled_vgprs", "scratch B": "scratch_bytes", "LDS B": "lds_bytes"}
        show(name | cells_of(table, registers | memory))
        runs = cells_of(
            table.assign(limited_by=table["limited_by"].map(_limit, na_action="ignore")),
            {
                "warps": "warps",
                "waves": "waves",
                "limited by": "limited_by",
                "MFMA": "matrix_instructions",
                "loads": "loads",
            },
        )
        if known := {heading: cells for heading, cells in runs.items() if any(cells)}:
            say("")
            show(name | known)
        say(
            "waves: maximum number of simultaneous wavefronts on each SIMD. Counts are lines of"
            " code, not executions.",
            "dim",
        )
        if table[["loads", "waves"]].isna().any(axis=None):
            say(
                "Empty cells are unknown. A code object contains no instructions (run llvm-objdump"
                " --disassemble FILE). Waves require a known GPU and Triton's JSON file next to the"
                " assembly.",
                "dim",
            )
    if options.json is not None:
        rows = json.loads(table.to_json(orient="records", double_precision=15))
        report = {"origin": str(kernels.attrs["origin"]), "kernels": rows}
        write_report("--json", options.json, json.dumps(report, indent=1) + "\n")
    return int(options.fail_on_spill and len(spilling) > 0)


def _name(kernel: str, file: str) -> str:
    """Return the kernel name for a row, and add the file name if it differs."""
    place = re.sub(rf"(^|/){re.escape(kernel)}\.\w+(\.gz)?$", "", file)
    return kernel if place in ("", kernel) else f"{kernel} {place}"


def _limit(words: str) -> str:
    """Shorten a description of what limits occupancy, and use the column names."""
    return words.replace("registers", "VGPR").replace(" and ", ", ")

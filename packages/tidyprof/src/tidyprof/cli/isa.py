"""The command `isa`, which shows the properties of kernels in assembly for AMD GPUs."""

from __future__ import annotations

import json
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
        name = {"kernel": "kernel", "file": "file"}
        registers = {"target": "target", "VGPR": "vgprs", "AGPR": "accum_vgprs"}
        memory = {"spilled": "spilled_vgprs", "scratch B": "scratch_bytes", "LDS B": "lds_bytes"}
        show(cells_of(table, name | registers | memory))
        limits = {"warps": "warps", "waves": "waves", "limited by": "limited_by"}
        counts = {"MFMA": "matrix_instructions", "loads": "loads"}
        say("")
        show(cells_of(table, name | limits | counts))
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
    return int(options.fail_on_spill and not spilling.empty)

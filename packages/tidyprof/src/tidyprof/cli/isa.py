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
    spilling = table[table["spilled_vgprs"].fillna(0) > 0]
    with showing(options):
        say(
            f"kernels: {len(table)}, that spill vector registers to memory: {len(spilling)}", "bold"
        )
        say("")
        names = [_name(*row) for row in zip(table["kernel"], table["file"], strict=True)]
        name = Column("kernel and file", names, is_text=True)
        registers = {"target": "target", "VGPR": "vgprs", "AGPR": "accum_vgprs"}
        memory = {"spilled": "spilled_vgprs", "scratch B": "scratch_bytes", "LDS B": "lds_bytes"}
        show([name, *columns_of(table, registers | memory)])
        runs = [
            *columns_of(table, {"warps": "warps"}),
            Column("waves", texts(table["waves"], "{:g}".format)),
            Column("limited by", texts(table["limited_by"], _limit), is_text=True),
            *columns_of(table, {"MFMA": "matrix_instructions", "loads": "loads"}),
        ]
        if known := [column for column in runs if any(column.values)]:
            say("")
            show([name, *known])
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


def _name(kernel: str, file: str) -> str:
    """What a row is called: the kernel, and its file without what repeats it."""
    place = re.sub(rf"(^|/){re.escape(kernel)}\.\w+(\.gz)?$", "", file)
    return kernel if place in ("", kernel) else f"{kernel} {place}"


def _limit(words: str) -> str:
    """What limits the waves, in the words of the columns."""
    return words.replace("registers", "VGPR").replace(" and ", ", ")

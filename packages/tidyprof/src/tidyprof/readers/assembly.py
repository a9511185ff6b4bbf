"""Assembly for AMD GPUs as LLVM writes it (`.amdgcn`, `.s`): what the compiler states about each
kernel, and counts of instructions.

Code objects state the same, and have no text to count in.

The metadata at the end of a file are those of LLVM's "User Guide for AMDGPU Backend", code object
V3 and later (https://llvm.org/docs/AMDGPUUsage.html). Triton leaves the LDS that it asks for at
launch out of them, and keeps it, with the size of a workgroup, in a JSON of the same name in its
cache.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import DAMAGED, MISSING, NO_FILE, ProfileReadError
from tidyprof.io.byte_stream import head_or_nothing, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.code_objects import ELF, stated_kernels
from tidyprof.readers.code_objects import ENDINGS as OF_CODE_OBJECTS
from tidyprof.tables.contract import Origin

LARGEST_BYTES = 256 * 2**20
"""A thousand times the largest kernel of lesson 16."""

LARGEST_NUMBER = 2**32 - 1
"""A size in bytes has 32 bits in a kernel's descriptor (LLVM's guide), and counts are far
smaller.
"""

STATED = {
    "vgprs": "vgpr_count",
    "accum_vgprs": "agpr_count",
    "sgprs": "sgpr_count",
    "spilled_vgprs": "vgpr_spill_count",
    "spilled_sgprs": "sgpr_spill_count",
    "scratch_bytes": "private_segment_fixed_size",
    "lds_bytes": "group_segment_fixed_size",
    "lanes": "wavefront_size",
}
"""Column -> key of LLVM's metadata."""

COLUMNS = {
    **dict.fromkeys(("file", "kernel", "target"), "string"),
    **dict.fromkeys(STATED, "Int64"),
    "warps": "Int64",
    **dict.fromkeys(("matrix_instructions", "spill_instructions"), "Int64"),
    "loads": "string",
}
"""Columns of the table."""

ENDINGS = (".amdgcn", ".amdgcn.gz", ".s", ".s.gz")

_METADATA = re.compile(
    r"^\s*\.amdgpu_metadata\n(.*?)^\s*\.end_amdgpu_metadata", re.DOTALL | re.MULTILINE
)
_KERNEL = re.compile(r"^  - (?=\.)", re.MULTILINE)
_ENTRY = re.compile(r"^    \.(\w+): +(\S+)$", re.MULTILINE)
_TARGET = re.compile(r"\.amdgcn_target\s+\"\S*?(gfx\w+)")
_MATRIX = re.compile(r"^\s+v_s?(?:mfma|wmma)\w*", re.MULTILINE)
_SPILL = re.compile(
    r"^\s+(?:scratch_(?:load|store)_|buffer_(?:load|store)_.*Folded (?:Spill|Reload))", re.MULTILINE
)
_LOAD = re.compile(
    r"^\s+(?:global|buffer|flat)_load_(?:lds_)?(\w+)(?!.*Folded Reload)", re.MULTILINE
)
_WIDTHS = {
    "dwordx4|b128": 16,
    "dwordx3|b96": 12,
    "dwordx2|b64": 8,
    "dword|b32": 4,
    "short|[bui]16": 2,
    "": 1,
}
"""Part of a load's name -> bytes that it loads for each lane; the first that matches counts."""


@guarded
def read_assembly(path: str | PathLike[str]) -> pd.DataFrame:
    """The kernels in a file of assembly, or in all those below a folder such as Triton's cache; or
    in a code object (ELF), such as rocprofv3 --att leaves, or in all of a folder without assembly.

    A row is one kernel: `file`, its path below the folder; `kernel`; `target` such as gfx942;
    `vgprs` of each work-item, of which `accum_vgprs` are accumulation registers; `sgprs` of a
    wavefront; `spilled_vgprs` and `spilled_sgprs`, stores of registers for which there was no room,
    anywhere in the code, so maybe more than lie in scratch at a time; `scratch_bytes` of each
    work-item;
    `lds_bytes` of a workgroup; `lanes` of a wavefront; `warps`, wavefronts of a workgroup. `warps`
    is <NA>, and `lds_bytes` lacks what a launch asks for, where Triton's JSON is not beside the
    file. `matrix_instructions`, `spill_instructions` and `loads` (such as `12 x 16 B`) count lines
    of code, not how often these run; of a code object they are <NA>.

    Raises ProfileReadError where there is no assembly, a file holds no kernel, or one is not as
    LLVM writes it.
    """
    path = Path(path)
    if not path.exists() or not (path.is_dir() or path.is_file()):
        raise ProfileReadError(path, *(NO_FILE if path.exists() else MISSING))
    files = _files(path, ENDINGS) or [
        file for file in _files(path, OF_CODE_OBJECTS) if _is_elf(file)
    ]
    if not files:
        cause = "the kernels are kept elsewhere, or none was compiled for an AMD GPU"
        next_step = (
            "give Triton's cache (~/.triton/cache, or the folder `triton` in that of torch.compile)"
        )
        raise ProfileReadError(
            path, f"no file that ends in {', '.join(ENDINGS)}, and no code object", cause, next_step
        )
    rows = []
    for file in files:
        name = str(file.relative_to(path)) if path.is_dir() else file.name
        rows += [row | {"file": name} for row in _kernels(file)]
    versions = {row["version"] for row in rows}
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    table.attrs["origin"] = Origin(
        "compiled", "Triton " + ", ".join(sorted(versions)) if None not in versions else ""
    )
    return table


def _files(path: Path, endings: tuple[str, ...]) -> list[Path]:
    """The file itself, or the files below the folder whose names end so."""
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.rglob("*") if one.is_file() and one.name.endswith(endings))


def _is_elf(file: Path) -> bool:
    return head_or_nothing(file, len(ELF)) == ELF


def _asked(file: Path) -> dict[str, Any]:
    """What Triton's JSON beside a file states; nothing where there is none."""
    beside = file.with_name(re.sub(r"\.\w+(\.gz)?$", ".json", file.name))
    if not beside.is_file():
        return {}
    try:
        stated = json.loads(read_bytes(beside, LARGEST_BYTES))
        numbers = [stated.get(key) for key in ("num_warps", "shared") if key in stated]
        sound = all(type(number) is int and 0 <= number <= LARGEST_NUMBER for number in numbers)
        if sound and stated.get("num_warps") != 0:
            has_version = isinstance(stated.get("triton_version", ""), str)
            return stated if has_version else {**stated, "triton_version": None}
    except (ValueError, AttributeError, RecursionError):
        pass
    raise ProfileReadError(beside, "it is not as Triton writes it", *DAMAGED)


def _kernels(file: Path) -> list[dict[str, Any]]:
    """The rows of one file, each with the `version` of Triton, None if not known. Raises
    ProfileReadError for what is no assembly before it looks into Triton's JSON.
    """
    data = read_bytes(file, LARGEST_BYTES)
    if data.startswith(ELF):
        target, kernels = stated_kernels(file, data)
        known = {"target": target, "version": None}
        return [
            _stated(file, one) | {"kernel": str(one.get("name", ""))} | known for one in kernels
        ]
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
    target, metadata = _TARGET.search(text), _METADATA.search(text)
    blocks = _KERNEL.split(metadata[1])[1:] if metadata else []
    if target is None or not blocks:
        found = (
            "assembly without metadata"
            if target and not metadata
            else "no kernel of an AMD GPU in it"
        )
        cause = (
            "it is cut off, for another GPU, or the output of a disassembler, which has no metadata"
        )
        raise ProfileReadError(
            file, found, cause, "compile again, and give what the compiler wrote"
        )
    rows, asked = [], _asked(file)
    # Triton writes one kernel a file, so its JSON says nothing about one of several.
    for block in blocks:
        stated = dict(_ENTRY.findall(f"    {block}"))
        name = stated.get("name", "").strip("'\"")
        code = re.search(
            rf"^{re.escape(name)}:.*?^\s*\.size\s+{re.escape(name)},",
            text,
            re.DOTALL | re.MULTILINE,
        )
        if not name or code is None:
            raise _unsound(file)
        row = _stated(file, stated)
        if len(blocks) == 1 and "shared" in asked:
            row["lds_bytes"] = (row["lds_bytes"] or 0) + asked["shared"]
        warps = asked.get("num_warps") if len(blocks) == 1 else None
        known = {
            "kernel": name,
            "target": target[1],
            "warps": warps,
            "version": asked.get("triton_version"),
        }
        rows.append(row | known | _counts(code[0]))
    return rows


def _stated(file: Path, metadata: dict[str, Any]) -> dict[str, int | None]:
    """The numbers of a kernel's metadata, named as columns; None for a number that they lack."""
    try:
        row = {
            column: int(metadata[key]) if key in metadata else None
            for column, key in STATED.items()
        }
    except (TypeError, ValueError, OverflowError):
        raise _unsound(file) from None
    if not all(value is None or 0 <= value <= LARGEST_NUMBER for value in row.values()):
        raise _unsound(file)
    return row


def _unsound(file: Path) -> ProfileReadError:
    return ProfileReadError(file, "metadata of a kernel that are not as LLVM writes them", *DAMAGED)


def _counts(code: str) -> dict[str, Any]:
    """How many lines of code there are of each kind that the table counts."""
    widths = Counter(
        next(width for part, width in _WIDTHS.items() if re.search(part, kind))
        for kind in _LOAD.findall(code)
    )
    return {
        "matrix_instructions": len(_MATRIX.findall(code)),
        "spill_instructions": len(_SPILL.findall(code)),
        "loads": ", ".join(
            f"{widths[width]} x {width} B" for width in sorted(widths, reverse=True)
        ),
    }

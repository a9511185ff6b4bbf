"""Reader for LLVM assembly for AMD GPUs (`.amdgcn`, `.s`). It reads the compiler's metadata for
each kernel and counts instructions.

A code object contains the same metadata, but it has no assembly text in which to count
instructions.

LLVM's "User Guide for AMDGPU Backend" describes the metadata at the end of an assembly file
(https://llvm.org/docs/AMDGPUUsage.html, code object V3 and later). The metadata doesn't include the
LDS that Triton requests at launch. Triton writes this LDS size and the workgroup size to a JSON
file with the same name in its cache.
"""

from __future__ import annotations

import re
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pandas as pd

from tidyprof.errors import DAMAGED, MISSING, NO_FILE, ProfileReadError
from tidyprof.io.byte_stream import head_or_nothing, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.code_objects import ELF, stated_kernels
from tidyprof.readers.code_objects import ENDINGS as OF_CODE_OBJECTS
from tidyprof.tables.contract import Origin

LARGEST_BYTES = 256 * 2**20
"""Maximum file size. The largest kernel in lesson 16 is a thousand times smaller."""

LARGEST_NUMBER = 2**32 - 1
"""Maximum value of any number. LLVM's guide says that kernel descriptors store sizes in 32 bits,
and instruction counts are far smaller.
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
"""LLVM's metadata key for each column."""

COLUMNS = {
    **dict.fromkeys(("file", "kernel", "target"), "string"),
    **dict.fromkeys(STATED, "Int64"),
    "warps": "Int64",
    **dict.fromkeys(("matrix_instructions", "spill_instructions"), "Int64"),
    "loads": "string",
}

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
"""Number of bytes that a load instruction loads per lane, by a part of its name. The first match
applies.
"""


@guarded
def read_assembly(path: str | PathLike[str]) -> pd.DataFrame:
    """Read the kernels from an assembly file or from all assembly files in a folder, such as
    Triton's cache.

    The path can also be a code object (ELF), such as one from `rocprofv3 --att`, or a folder that
    contains code objects but no assembly.

    Each row describes one kernel:

    - file: path relative to the folder
    - kernel: kernel name
    - target: GPU architecture, such as gfx942
    - vgprs: number of vector registers per work-item, including the accumulation registers
    - accum_vgprs: number of accumulation registers per work-item
    - sgprs: number of scalar registers per wavefront
    - spilled_vgprs: number of stores in the code that spill a vector register
    - spilled_sgprs: number of stores in the code that spill a scalar register
    - scratch_bytes: scratch memory per work-item
    - lds_bytes: LDS per workgroup
    - lanes: number of lanes per wavefront
    - warps: number of wavefronts per workgroup
    - matrix_instructions: number of matrix instructions in the code
    - spill_instructions: number of spill instructions in the code
    - loads: number of load instructions of each width, such as `12 x 16 B`

    A register can be spilled several times, so the number of spills can exceed the number of
    registers that are in scratch memory at the same time. The last three columns count lines of
    code, not executions. For a code object, these columns are `<NA>`.

    Without Triton's JSON file, `warps` is `<NA>`, and `lds_bytes` excludes the LDS that Triton
    requests at launch.

    Raises ProfileReadError if there is no assembly, if a file contains no kernels, or if a file
    doesn't have LLVM's structure.
    """
    path = Path(path)
    if not path.exists() or not (path.is_dir() or path.is_file()):
        raise ProfileReadError(path, *(NO_FILE if path.exists() else MISSING))
    files = _files(path, ENDINGS) or [
        one for one in _files(path, OF_CODE_OBJECTS) if head_or_nothing(one, len(ELF)) == ELF
    ]
    if not files:
        cause = "the kernels are in another folder, or no kernel was compiled for an AMD GPU"
        next_step = (
            "pass Triton's cache (~/.triton/cache, or the folder `triton` in torch.compile's cache)"
        )
        raise ProfileReadError(
            path, f"no assembly ({', '.join(ENDINGS)}) and no code object", cause, next_step
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
    """Return the file itself, or all files in the folder and its subfolders that have one of these
    endings.
    """
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.rglob("*") if one.is_file() and one.name.endswith(endings))


_Number = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_NUMBER)]


class _Asked(msgspec.Struct):
    """The content of a JSON file from Triton."""

    num_warps: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_NUMBER)] | None = None
    shared: _Number = 0
    triton_version: str | None = None


def _asked(file: Path) -> _Asked:
    """Return the contents of the Triton JSON file next to this file, if there is such a file."""
    beside = file.with_name(re.sub(r"\.\w+(\.gz)?$", ".json", file.name))
    if not beside.is_file():
        return _Asked()
    try:
        return msgspec.json.decode(read_bytes(beside, LARGEST_BYTES), type=_Asked)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ProfileReadError(beside, "the file isn't a JSON file from Triton", *DAMAGED) from None


def _kernels(file: Path) -> list[dict[str, Any]]:
    """Return one row per kernel in a file. Each row includes Triton's `version`, which is None if
    unknown.
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
        cause = (
            "the file is cut off, was compiled for another GPU, or comes from a disassembler, which"
            " doesn't write metadata"
        )
        raise ProfileReadError(
            file,
            "the file contains no metadata of an AMD GPU kernel",
            cause,
            "compile again, and pass the file that the compiler writes",
        )
    rows, asked = [], _asked(file)
    # Triton writes one kernel per file, so its JSON file doesn't apply if there are several.
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
        known = {"kernel": name, "target": target[1], "version": asked.triton_version}
        if len(blocks) == 1:
            known["warps"] = asked.num_warps
            row["lds_bytes"] = (row["lds_bytes"] or 0) + asked.shared
        rows.append(row | known | _counts(code[0]))
    return rows


def _stated(file: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    stated = {column: metadata.get(key) for column, key in STATED.items()}
    try:
        return msgspec.convert(stated, dict[str, _Number | None], strict=False)
    except msgspec.ValidationError:
        raise _unsound(file) from None


def _unsound(file: Path) -> ProfileReadError:
    return ProfileReadError(file, "the kernel metadata isn't in LLVM's format", *DAMAGED)


def _counts(code: str) -> dict[str, Any]:
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

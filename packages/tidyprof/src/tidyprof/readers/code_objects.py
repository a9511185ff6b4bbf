"""Reader for AMD GPU code objects (ELF files). It reads the compiler's metadata for each kernel.

The metadata is a MessagePack note of type NT_AMDGPU_METADATA. It has the same keys as the metadata
in assembly (https://llvm.org/docs/AMDGPUUsage.html, "Note Records" and "Code Object V4 Metadata").
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from tidyprof.errors import DAMAGED, ProfileReadError

ELF = b"\x7fELF"
ENDINGS = (".out", ".hsaco", ".co")
"""File name endings of code objects from `rocprofv3 --att`, Triton and hipcc."""

_START = re.compile(rb"\x7fELF\x02\x01.{12}\xe0\0.{44}", re.DOTALL)
"""Start of a code object, according to elf(5): `ELFCLASS64`, `ELFDATA2LSB`, and `EM_AMDGPU` (224)
at byte 18 of the 64 bytes.
"""

_NOTE = re.compile(rb"\x07\0\0\0(.{4})\x20\0\0\0AMDGPU\0\0", re.DOTALL)
"""Header of a note of type `NT_AMDGPU_METADATA` (32): the sizes of its name and content, the type,
and the name, which is padded to whole words.
"""

_GPUS = {0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950"}
"""AMD Instinct GPU for each value of the lowest byte of `e_flags` (`EF_AMDGPU_MACH` in LLVM's
guide).
"""


def stated_kernels(file: Path, data: bytes) -> tuple[str, list[dict[str, Any]]]:
    """Return the GPU of a code object, such as `gfx942`, and the metadata of its kernels. The
    leading dot of each metadata key is removed.

    Raises ProfileReadError if the code object isn't for an AMD GPU, has no kernels, or is damaged.
    """
    if not _START.match(data):
        cause = "it is a host program or library, which may contain code objects"
        raise ProfileReadError(
            file,
            "the ELF file isn't for an AMD GPU",
            cause,
            "extract the code objects that roc-obj-ls lists, and pass one of them",
        )
    note = _NOTE.search(data)
    stated: dict[str, Any] = {"amdhsa.kernels": []}
    try:
        if note:
            end = note.end() + int.from_bytes(note[1], "little")
            stated = msgspec.msgpack.decode(data[note.end() : end])
        # Before V4, a code object's GPU is only in e_flags, at byte 48 of the header.
        gpu = _GPUS.get(data[48], f"GPU {data[48]:#x} of LLVM")
        target = stated.get("amdhsa.target", gpu).rpartition("--")[2].partition(":")[0]
        kernels = [
            {key.removeprefix("."): value for key, value in one.items()}
            for one in stated["amdhsa.kernels"]
        ]
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise ProfileReadError(
            file, "the metadata of the code object can't be read", *DAMAGED
        ) from None
    if not kernels:
        cause = "the code object contains only functions, or its notes were stripped"
        next_step = "inspect the code with llvm-objdump --disassemble"
        raise ProfileReadError(file, "the metadata lists no kernels", cause, next_step)
    return target, kernels

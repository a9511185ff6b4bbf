"""Reader for AMD GPU code objects (ELF files). It reads the compiler's metadata for each kernel.

The metadata is a MessagePack note of type NT_AMDGPU_METADATA. It has the same keys as the metadata
in assembly (https://llvm.org/docs/AMDGPUUsage.html, "Note Records" and "Code Object V4 Metadata").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidyprof.errors import DAMAGED, ProfileReadError

ELF = b"\x7fELF"
ENDINGS = (".out", ".hsaco", ".co")
"""File name endings of code objects from `rocprofv3 --att`, Triton and hipcc."""

_CLASS_64, _LITTLE, _AMD_GPU, _NOTES, _METADATA = 2, 1, 224, 4, 32
"""Values of `ELFCLASS64`, `ELFDATA2LSB`, `EM_AMDGPU`, `PT_NOTE` and `NT_AMDGPU_METADATA`."""

_MAX_SEGMENTS = 1000

_GPUS = {0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950"}
"""AMD Instinct GPU for each value of the lowest byte of `e_flags` (`EF_AMDGPU_MACH` in LLVM's
guide).
"""


def stated_kernels(file: Path, data: bytes) -> tuple[str, list[dict[str, Any]]]:
    """Return the GPU of a code object, such as `gfx942`, and the metadata of its kernels. The
    leading dot of each metadata key is removed.

    Raises ProfileReadError if the code object isn't for an AMD GPU, has no kernels, or is damaged.
    """
    # A 64-bit ELF header is 64 bytes long, and e_machine starts at byte 18.
    if (
        len(data) < 64
        or (data[4], data[5]) != (_CLASS_64, _LITTLE)
        or _number(data, 18, "H") != _AMD_GPU
    ):
        cause = "it is a host program or library, which may contain code objects"
        raise ProfileReadError(
            file,
            "the ELF file isn't for an AMD GPU",
            cause,
            "extract the code objects that roc-obj-ls lists, and pass one of them",
        )
    try:
        note = next(_metadata_of(data))
        stated = msgspec.msgpack.decode(note)
        # Before V4, a code object's GPU is only in e_flags, at byte 48 of the header.
        gpu = _GPUS.get(data[48], f"GPU {data[48]:#x} of LLVM")
        target = stated.get("amdhsa.target", gpu).rpartition("--")[2].partition(":")[0]
        kernels = [
            {key.removeprefix("."): value for key, value in one.items()}
            for one in stated["amdhsa.kernels"]
        ]
    except StopIteration:
        kernels = []
    except (
        struct.error,
        msgspec.DecodeError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ):
        raise ProfileReadError(
            file, "the metadata of the code object can't be read", *DAMAGED
        ) from None
    if not kernels:
        cause = "the code object contains only functions, or its notes were stripped"
        next_step = f"run llvm-objdump --disassemble {file.name} to inspect the code"
        raise ProfileReadError(
            file, "the code object's metadata lists no kernels", cause, next_step
        )
    return target, kernels


def _metadata_of(data: bytes) -> Iterator[bytes]:
    # elf(5) describes e_phoff, e_phentsize and e_phnum in the header, and p_type, p_offset and
    # p_filesz of each segment. A note consists of three numbers, a name and its contents.
    start, size, count = _number(data, 32, "Q"), _number(data, 54, "H"), _number(data, 56, "H")
    for segment in range(min(count, _MAX_SEGMENTS)):
        at = start + segment * size
        if _number(data, at, "I") != _NOTES:
            continue
        offset, length = _number(data, at + 8, "Q"), _number(data, at + 32, "Q")
        end = min(offset + length, len(data))
        while offset + 12 <= end:
            name, content, kind = struct.unpack_from("<III", data, offset)
            begin = offset + 12 + _padded(name)
            owner = data[offset + 12 : offset + 12 + name].rstrip(b"\0")
            if kind == _METADATA and owner == b"AMDGPU":
                yield data[begin : begin + content]
            offset = begin + _padded(content)


def _number(data: bytes, offset: int, kind: str) -> int:
    return struct.unpack_from(f"<{kind}", data, offset)[0]


def _padded(length: int) -> int:
    """Round a length up to a multiple of 4 bytes, because note names and contents are padded to
    whole words.
    """
    return (length + 3) // 4 * 4

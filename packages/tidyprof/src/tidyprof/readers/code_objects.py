"""Code objects for AMD GPUs (ELF): what the compiler states about each kernel, without the code
itself.

Their metadata are a note of type NT_AMDGPU_METADATA, in MessagePack, with the same keys as in
assembly (https://llvm.org/docs/AMDGPUUsage.html, "Note Records" and "Code Object V4 Metadata").
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
"""Endings of code objects: of rocprofv3 --att, Triton and hipcc."""

_CLASS_64, _LITTLE, _AMD_GPU, _NOTES, _METADATA = 2, 1, 224, 4, 32
"""ELFCLASS64, ELFDATA2LSB, EM_AMDGPU, PT_NOTE and NT_AMDGPU_METADATA."""

_MAX_SEGMENTS = 1000

_GPUS = {0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950"}
"""Lowest byte of e_flags -> the GPU (EF_AMDGPU_MACH in LLVM's guide), for AMD Instinct."""


def stated_kernels(file: Path, data: bytes) -> tuple[str, list[dict[str, Any]]]:
    """The GPU that a code object is for, as `gfx942`, and the metadata of its kernels, with keys
    without their dot.

    Raises ProfileReadError where it is for no AMD GPU, states no kernel, or is damaged.
    """
    # The header of a 64-bit ELF file has 64 bytes; e_machine stands at byte 18.
    if (
        len(data) < 64
        or (data[4], data[5]) != (_CLASS_64, _LITTLE)
        or _number(data, 18, "H") != _AMD_GPU
    ):
        cause = (
            "a program or library for the host, which may hold code objects (roc-obj-ls lists them)"
        )
        raise ProfileReadError(
            file, "an ELF file for another processor than AMD's GPUs", cause, "give a code object"
        )
    try:
        note = next(_metadata_of(data))
        stated = msgspec.msgpack.decode(note)
        # Code objects before V4 state their GPU only in e_flags, at byte 48 of the header.
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
            file, "a code object whose metadata cannot be read", *DAMAGED
        ) from None
    if not kernels:
        cause = "it holds functions only, or its notes were stripped"
        next_step = f"look at its code with llvm-objdump --disassemble {file.name}"
        raise ProfileReadError(file, "a code object that states no kernel", cause, next_step)
    return target, kernels


def _metadata_of(data: bytes) -> Iterator[bytes]:
    """The contents of the notes with AMD's metadata."""
    # By elf(5): e_phoff, e_phentsize and e_phnum of the header, then p_type, p_offset and p_filesz
    # of each segment. A note is three numbers, its name and its content.
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
    """The length with its padding: names and contents of notes fill whole words of 4 bytes."""
    return (length + 3) // 4 * 4

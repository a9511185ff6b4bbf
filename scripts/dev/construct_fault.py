"""Write the constructed fault report of lesson 09.

    python scripts/dev/construct_fault.py

Nothing is measured. Every value follows from the inputs below and from the kernel's instructions.
Those are real: LLVM 22.1 made them for gfx942 (MI300X) from a kernel of this course, `picked[image]
= -logits[100 * image + label[image]]`, and the words beside each are its machine code. Registers
that the kernel does not determine are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "lessons/09_when_it_crashes"
KERNEL = "pick_logits(float*, float const*, long const*)"
LANES, CLASSES, FLOAT_BYTES, PAGE_BYTES = 64, 100, 4, 4096
LOGITS_AT, PICKED_AT, CODE_AT, FUNCTION_AT = 0x7A8A4BE00000, 0x7A8A4BC02000, 0x7A8A3C000000, 0x1900
"""Where tensors and code object are in GPU memory, and where the kernel begins in its code
object.
"""

INSTRUCTIONS = (
    ("s_load_dwordx2 s[0:1], s[4:5], 0x10", "C0060002 00000010"),
    ("v_and_b32_e32 v0, 0x3ff, v0", "260000FF 000003FF"),
    ("v_lshl_or_b32 v0, s8, 6, v0", "D2000000 04010C08"),
    ("v_mov_b32_e32 v1, 0", "7E020280"),
    ("s_waitcnt lgkmcnt(0)", "BF8CC07F"),
    ("v_lshl_add_u64 v[2:3], v[0:1], 3, s[0:1]", "D2080002 00010700"),
    ("global_load_dwordx2 v[2:3], v[2:3], off", "DC548000 027F0002"),
    ("s_load_dwordx4 s[0:3], s[4:5], 0x0", "C00A0002 00000000"),
    ("s_movk_i32 s4, 0x64", "B0040064"),
    ("s_waitcnt vmcnt(0)", "BF8C0F70"),
    ("v_mad_u64_u32 v[2:3], s[4:5], v0, s4, v[2:3]", "D1E80402 04080900"),
    ("s_waitcnt lgkmcnt(0)", "BF8CC07F"),
    ("v_lshl_add_u64 v[2:3], v[2:3], 2, s[2:3]", "D2080002 00090502"),
    ("global_load_dword v2, v[2:3], off", "DC508000 027F0002"),
    ("v_lshl_add_u64 v[0:1], v[0:1], 2, s[0:1]", "D2080000 00010500"),
    ("s_waitcnt vmcnt(0)", "BF8C0F70"),
    ("v_xor_b32_e32 v2, 0x80000000, v2", "2A0404FF 80000000"),
    ("global_store_dword v[0:1], v2, off", "DC708000 007F0200"),
    ("s_endpgm", "BF810000"),
)
"""The kernel's instructions and their machine code, whose words of 32 bits give the length."""

STOPPED_AT = 15
"""Place of the instruction at which the waves stop: it waits for the guilty load, of which no lane
has an answer yet. So v2, which that load writes, still holds the lower half of the addresses.
"""


def misread_labels() -> list[int]:
    """256 labels of 32 bits, read as 128 of 64 bits."""
    return np.random.default_rng(9).integers(0, CLASSES, 256, dtype=np.int32).view("<i8").tolist()


def addresses(labels: Sequence[int]) -> list[int]:
    """What each image's lane reads in `logits`."""
    return [
        LOGITS_AT + FLOAT_BYTES * (CLASSES * image + label) for image, label in enumerate(labels)
    ]


def faulting_page(labels: Sequence[int]) -> int:
    """A page outside of the tensor that a single lane looked at: of many, one of the last wave."""
    pages = [address // PAGE_BYTES * PAGE_BYTES for address in addresses(labels)]
    inside = range(LOGITS_AT, LOGITS_AT + FLOAT_BYTES * CLASSES * 256)
    alone = [page for page in pages if page not in inside and pages.count(page) == 1]
    last = [page for page in pages[-LANES:] if page in alone]
    return last[len(last) // 3] if last else alone[0]


def instruction_addresses() -> list[int]:
    """Where each of INSTRUCTIONS begins in the code object."""
    lengths = [4 * len(words.split()) for _, words in INSTRUCTIONS]
    return [FUNCTION_AT + sum(lengths[:place]) for place in range(len(lengths))]


def report(labels: Sequence[int]) -> str:
    """The report as the agent would print it."""
    event = (
        "System event (HSA_AMD_GPU_MEMORY_FAULT_EVENT: page not present or supervisor privilege)"
    )
    waves = [
        _wave(wave, addresses(labels)[wave * LANES : (wave + 1) * LANES])
        for wave in range(len(labels) // LANES)
    ]
    return "\n".join([f"{event}\nFaulting page: {faulting_page(labels):#x}\n", *waves])


def _wave(wave: int, looked_at: list[int]) -> str:
    pc = CODE_AT + instruction_addresses()[STOPPED_AT]
    scalars = {**_halves(0, PICKED_AT), **_halves(2, LOGITS_AT), "s4": 0, "s5": 0, "s8": wave}
    stores = [PICKED_AT + FLOAT_BYTES * image for image in range(wave * LANES, (wave + 1) * LANES)]
    code = [
        f"    {CODE_AT + at:#x} <+{at - FUNCTION_AT}>:    {text}" for at, (text, _) in _from_stop()
    ]
    lines = [
        "-" * 56,
        (
            f"wave_{wave + 1}: pc={pc:#x} (kernel_code_entry={CODE_AT + FUNCTION_AT:#x} <{KERNEL}>)"
            " (stopped, reason: MEMORY_VIOLATION)"
        ),
        "\nscalar registers:",
        "  ".join(f"{name:>4}: {value:08x}" for name, value in scalars.items()),
        "\nvector registers:",
        *_vector_lines(0, stores),
        *_vector_lines(2, looked_at),
        "\ngeneral registers:",
        f"  pc: {pc:016x}  exec: {(1 << LANES) - 1:016x}",
        f"\nDisassembly for function {KERNEL}:",
        f"    code object: memory://4711#offset={CODE_AT:#x}&size=8192",
        f"    loaded at: [{CODE_AT:#x}-{CODE_AT + 0x2000:#x}]",
        f" => {code[0].strip()}",
        *code[1:],
        "End of disassembly.\n",
    ]
    return "\n".join(lines)


def _from_stop() -> list[tuple[int, tuple[str, str]]]:
    """Instructions from the program counter on: without debug information the agent prints no
    others.
    """
    return list(zip(instruction_addresses(), INSTRUCTIONS, strict=True))[STOPPED_AT:]


def _halves(first: int, value: int) -> dict[str, int]:
    return {f"s{first}": value & 0xFFFFFFFF, f"s{first + 1}": value >> 32}


def _vector_lines(first: int, values: list[int]) -> list[str]:
    lines = []
    for place, shift in enumerate((0, 32)):
        lanes = " ".join(
            f"[{lane}] {value >> shift & 0xFFFFFFFF:08x}" for lane, value in enumerate(values)
        )
        lines.append(f"  v{first + place}: {lanes}")
    return lines


def files() -> dict[str, str]:
    """Name and content of what is written."""
    return {"constructed_fault.txt": report(misread_labels())}


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")

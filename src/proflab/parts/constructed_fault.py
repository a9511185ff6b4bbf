"""A fault with a known cause, in the layout of the ROCm Debug Agent: constructed, not measured.

Every value follows from the inputs below and from the kernel's instructions. Those are real: LLVM 22.1 made them for
gfx942 (MI300X) from a kernel of this course, `picked[image] = -logits[100 * image + label[image]]`, and the words
behind `//` are the machine code. Registers that the kernel does not determine are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from proflab.parts.fault_report import PAGE_BYTES, FaultReport, parse_fault_report
from tidyprof.tables.contract import Origin

if TYPE_CHECKING:
    import numpy as np

KERNEL = "pick_logits(float*, float const*, long const*)"
LANES = 64
FUNCTION_AT = 0x1900
"""Where the kernel begins in its code object."""

FLOAT_BYTES = 4

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

GUILTY = "global_load_dword v2, v[2:3], off"
"""Reads logits[...]; the first load, of two words, reads the labels, which are where they should be."""

STOPPED_AT = 15
"""Place of the instruction at which the waves stop: it waits for the guilty load, of which no lane has an answer yet.

So v2, which that load writes, still holds the lower half of the addresses.
"""


@dataclass(frozen=True)
class ConstructedFault:
    """The fault: a tensor of 32-bit labels is given to a kernel that reads 64-bit ones.

    images -- labels in the batch; classes -- valid ones are 0 to classes - 1; seed -- of the labels;
    logits_at, picked_at, code_at -- addresses in GPU memory.
    """

    images: int = 256
    classes: int = 100
    seed: int = 9
    logits_at: int = 0x7A8A4BE00000
    picked_at: int = 0x7A8A4BC02000
    code_at: int = 0x7A8A3C000000

    @cached_property
    def labels(self) -> np.ndarray:
        """What the batch holds: `images` labels, int32."""
        import numpy as np

        return np.random.default_rng(self.seed).integers(0, self.classes, self.images, dtype=np.int32)

    @cached_property
    def misread(self) -> np.ndarray:
        """What the kernel reads: half as many labels, int64."""
        return self.labels.view("<i8")

    @property
    def waves(self) -> int:
        """How many waves read labels; those behind them read what comes after, and are not part of the report."""
        return len(self.misread) // LANES

    def addresses(self, wave: int) -> list[int]:
        """What each lane of a wave (counted from 0) reads in `logits`."""
        images = range(wave * LANES, (wave + 1) * LANES)
        return [self.logits_at + FLOAT_BYTES * (self.classes * image + int(self.misread[image])) for image in images]

    @cached_property
    def culprit(self) -> tuple[int, int, int]:
        """Wave, lane and page of the reported access: a lane of the last wave that is alone on its page."""
        places = [
            (wave, lane, address // PAGE_BYTES * PAGE_BYTES)
            for wave in range(self.waves)
            for lane, address in enumerate(self.addresses(wave))
        ]
        pages = [page for _, _, page in places]
        mapped = range(self.logits_at, self.logits_at + FLOAT_BYTES * self.classes * self.images)
        alone = [place for place in places if pages.count(place[2]) == 1 and place[2] not in mapped]
        last = [place for place in alone if place[0] == self.waves - 1]
        return last[len(last) // 3]

    @property
    def pc(self) -> int:
        """Where both waves stopped, in memory."""
        return self.code_at + instruction_addresses()[STOPPED_AT]

    def text(self) -> str:
        """The report as the agent would print it."""
        event = "System event (HSA_AMD_GPU_MEMORY_FAULT_EVENT: page not present or supervisor privilege)"
        blocks = [f"{event}\nFaulting page: {self.culprit[2]:#x}\n"]
        return "\n".join([*blocks, *map(self._wave, range(self.waves))])

    def report(self) -> FaultReport:
        """The same, read."""
        return parse_fault_report(self.text(), ORIGIN)

    def _wave(self, wave: int) -> str:
        entry = self.code_at + FUNCTION_AT
        scalars = {
            **_halves(0, self.picked_at),
            **_halves(2, self.logits_at),
            **_halves(4, 0),
            "s8": wave,
        }
        images = range(wave * LANES, (wave + 1) * LANES)
        vectors = {0: [self.picked_at + FLOAT_BYTES * image for image in images], 2: self.addresses(wave)}
        lines = [
            "-" * 56,
            f"wave_{wave + 1}: pc={self.pc:#x} (kernel_code_entry={entry:#x} <{KERNEL}>) "
            "(stopped, reason: MEMORY_VIOLATION)",
            "\nscalar registers:",
            "  ".join(f"{name:>4}: {value:08x}" for name, value in scalars.items()),
            "\nvector registers:",
            *(line for first, values in vectors.items() for line in _vector_lines(first, values)),
            "\ngeneral registers:",
            f"  pc: {self.pc:016x}  exec: {(1 << LANES) - 1:016x}",
            f"\nDisassembly for function {KERNEL}:",
            f"    code object: memory://4711#offset={self.code_at:#x}&size=8192",
            f"    loaded at: [{self.code_at:#x}-{self.code_at + 0x2000:#x}]",
            *self._code(),
            "End of disassembly.\n",
        ]
        return "\n".join(lines)

    def _code(self) -> Iterator[str]:
        """From the program counter on, as without debug information."""
        for place, address in enumerate(instruction_addresses()):
            if place >= STOPPED_AT:
                arrow = "=>" if place == STOPPED_AT else "  "
                offset = address - FUNCTION_AT
                yield f" {arrow} {self.code_at + address:#x} <+{offset}>:    {INSTRUCTIONS[place][0]}"


ORIGIN = Origin("modelled", "constructed by the course; machine code by LLVM 22.1 for gfx942, never run")


def instruction_addresses() -> list[int]:
    """Where each of INSTRUCTIONS begins in the code object."""
    places, at = [], FUNCTION_AT
    for _, words in INSTRUCTIONS:
        places.append(at)
        at += 4 * len(words.split())
    return places


def listing() -> str:
    """The kernel as `llvm-objdump --disassemble-all` lists the code object that the agent saved."""
    lines = [
        f"\t{text:<60}// {address:012X}: {words}"
        for address, (text, words) in zip(instruction_addresses(), INSTRUCTIONS, strict=True)
    ]
    head = f"memory___4711_offset_size_8192:\tfile format elf64-amdgpu\n\n{FUNCTION_AT:016x} <pick_logits>:"
    return "\n".join([head, *lines])


def _halves(first: int, value: int) -> dict[str, int]:
    return {f"s{first}": value & 0xFFFFFFFF, f"s{first + 1}": value >> 32}


def _vector_lines(first: int, values: list[int]) -> Iterator[str]:
    for place, shift in enumerate((0, 32)):
        lanes = " ".join(f"[{lane}] {value >> shift & 0xFFFFFFFF:08x}" for lane, value in enumerate(values))
        yield f"  v{first + place}: {lanes}"

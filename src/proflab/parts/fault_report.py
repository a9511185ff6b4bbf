"""Read what the ROCm Debug Agent prints at a fault: the event, the waves, their registers and the code around them.

The format is that of the agent's user guide (github.com/ROCm/rocr_debug_agent, docs/how-to/user-guide.rst) and of its
sources of 2024 to 2026 (github.com/ROCm/rocm-systems, projects/rocr-debug-agent), which add the kernel to the line of
a wave. Listings are those of `llvm-objdump --disassemble-all`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.errors import CourseError

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Origin

PAGE_BYTES = 4096
"""Size of the smallest page of GPU memory (Linux, drivers/gpu/drm/amd/amdgpu: AMDGPU_GPU_PAGE_SIZE)."""

_WAVE = re.compile(r"^\s*wave_(\d+): pc=(0x[0-9a-f]+)\s*(.*?)\s*\((running|stopped, reason: [A-Z0-9_|]+)\)\s*$")
_KERNEL = re.compile(r"\(kernel_code_entry=(0x[0-9a-f]+)(?: <(.*)>)?(?:, \w+=\S+?)*\)$")
_EVENT = re.compile(r"^\s*((?:Queue error|System event) \(.*\))\s*$")
_PAGE = re.compile(r"^\s*Faulting page: (0x[0-9a-f]+)")
_SCALAR = re.compile(r"\b([a-z]\w*): ([0-9a-f]{8,16})\b")
_VECTOR = re.compile(r"^\s*([va]\d+): \[0\]")
_LANE = re.compile(r"\[(\d+)\] ([0-9a-f]{8})")
_FUNCTION = re.compile(r"^\s*Disassembly for function (.+):$")
_OBJECT = re.compile(r"^\s*code object: (\S+)")
_LOADED = re.compile(r"^\s*loaded at: \[(0x[0-9a-f]+)-(0x[0-9a-f]+)\]")
_INSTRUCTION = re.compile(r"^\s*(?:=>)?\s*(0x[0-9a-f]+) <\+\d+>:\s+(.*?)\s*$")
_LISTED = re.compile(r"^\s+(\S.*?)\s+// ([0-9A-F]+): ([0-9A-F ]+)$")


@dataclass
class Code:
    """The code around a wave's program counter.

    function -- name of the kernel; code_object -- where its machine code came from; loaded_from, loaded_to -- where in
    memory it was; instructions -- address and text of each printed instruction.
    """

    function: str
    code_object: str = ""
    loaded_from: int = 0
    loaded_to: int = 0
    instructions: dict[int, str] = field(default_factory=dict)


@dataclass
class Wave:
    """One wave. Addresses and registers are integers.

    number -- the agent's own count; pc -- program counter; reasons -- why it stopped, () while running;
    kernel, kernel_entry -- name and first address, where the agent prints them, else "" and None;
    scalars -- registers that hold one value; vectors -- one value of 32 bits per lane; code -- None if not printed.
    """

    number: int
    pc: int
    reasons: tuple[str, ...] = ()
    kernel: str = ""
    kernel_entry: int | None = None
    scalars: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, list[int]] = field(default_factory=dict)
    code: Code | None = None

    @property
    def listing_pc(self) -> int:
        """The program counter as the listing of the code object counts; raises CourseError without its code."""
        if self.code is None:
            raise CourseError(f"wave {self.number} has no disassembly: its pc lies in no code object that was loaded")
        return self.pc - self.code.loaded_from

    def active_lanes(self) -> list[int]:
        """Lanes whose bit is set in `exec`, lane 0 being the lowest; raises CourseError if it was not printed."""
        if "exec" not in self.scalars:
            raise CourseError(f"wave {self.number} was printed without its register exec")
        mask = self.scalars["exec"]
        return [lane for lane in range(64) if mask >> lane & 1]

    def scalar_pair(self, first: int) -> int:
        """The 64 bits of scalar registers `first` (low) and `first` + 1; raises CourseError if one is missing."""
        low, high = (self._found(self.scalars, f"s{first + place}") for place in (0, 1))
        return high << 32 | low

    def vector_pair(self, first: int) -> list[int]:
        """The 64 bits of vector registers `first` (low) and `first` + 1 of every lane; raises CourseError."""
        low, high = (self._found(self.vectors, f"v{first + place}") for place in (0, 1))
        return [upper << 32 | lower for lower, upper in zip(low, high, strict=True)]

    def _found(self, registers: dict, name: str):
        if name not in registers:
            raise CourseError(f"wave {self.number} was printed without {name}; it has {', '.join(registers) or 'none'}")
        return registers[name]


@dataclass(frozen=True)
class FaultReport:
    """A report: the event that caused it ("" if none was printed), the page of a memory fault, and the waves."""

    event: str
    faulting_page: int | None
    waves: tuple[Wave, ...]
    origin: Origin | None = None

    def table(self) -> pd.DataFrame:
        """One row per wave: wave, reason, pc (hexadecimal), kernel, active_lanes (a count, <NA> if not printed)."""
        import pandas as pd

        rows = [
            {
                "wave": wave.number,
                "reason": " and ".join(wave.reasons) or "running",
                "pc": hex(wave.pc),
                "kernel": wave.kernel or (wave.code.function if wave.code else ""),
                "active_lanes": len(wave.active_lanes()) if "exec" in wave.scalars else pd.NA,
            }
            for wave in self.waves
        ]
        table = pd.DataFrame(rows).astype({"active_lanes": "Int64"})
        table.attrs["origin"] = self.origin
        return table


def read_fault_report(path: str | Path, origin: Origin | None = None) -> FaultReport:
    """The report in a file that `--output` wrote, or in a log that holds one; raises CourseError if there is none."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CourseError(
            f"{path}: {error.strerror}; the agent writes a file only after a fault, or on SIGQUIT"
        ) from None
    try:
        return parse_fault_report(text, origin)
    except CourseError as error:
        raise CourseError(f"{path}: {error}") from None


def parse_fault_report(text: str, origin: Origin | None = None) -> FaultReport:
    """The report in `text`, which may hold other lines too. Raises CourseError if there is no wave in it."""
    event, page, waves = "", None, []
    for line in text.splitlines():
        if found := _WAVE.match(line):
            waves.append(_wave(*found.groups()))
        elif found := _EVENT.match(line):
            event = event or found[1]
        elif found := _PAGE.match(line):
            page = int(found[1], 16) if page is None else page
        elif waves:
            _add(waves[-1], line)
    if not waves:
        raise CourseError(
            "no wave in it; without HSA_TOOLS_LIB the runtime prints one line and no waves: load the agent at the start"
        )
    return FaultReport(event, page, tuple(waves), origin)


def read_listing(text: str) -> dict[int, str]:
    """Address -> instruction of a listing by llvm-objdump; raises CourseError if it holds no instruction."""
    found = {int(line[2], 16): line[1] for line in filter(None, map(_LISTED.match, text.splitlines()))}
    if not found:
        raise CourseError("no instruction in the listing: was the file that the agent saved disassembled?")
    return found


def around(instructions: dict[int, str], address: int, before: int = 8, after: int = 2) -> str:
    """Some lines of a listing as text, an arrow at `address`; raises CourseError if no instruction begins there."""
    places = sorted(instructions)
    if address not in instructions:
        raise CourseError(
            f"no instruction begins at {address:#x}: the listing covers {places[0]:#x} to {places[-1]:#x}"
        )
    middle = places.index(address)
    return "\n".join(_listed(places[max(0, middle - before) : middle + after + 1], instructions, address))


def _listed(places: Iterable[int], instructions: dict[int, str], address: int) -> Iterator[str]:
    for place in places:
        yield f"{'=>' if place == address else '  '} {place:#x}  {instructions[place]}"


def _wave(number: str, pc: str, middle: str, state: str) -> Wave:
    kernel = _KERNEL.match(middle)
    reasons = state.partition("reason: ")[2]
    return Wave(
        number=int(number),
        pc=int(pc, 16),
        reasons=tuple(reasons.split("|")) if reasons else (),
        kernel=(kernel[2] or "") if kernel else "",
        kernel_entry=int(kernel[1], 16) if kernel else None,
    )


def _add(wave: Wave, line: str) -> None:
    """Put what a line says into the wave it belongs to; other lines are left out."""
    if found := _FUNCTION.match(line):
        wave.code = Code(found[1])
    elif wave.code is not None:
        _add_code(wave.code, line)
    elif found := _VECTOR.match(line):
        wave.vectors[found[1]] = [int(value, 16) for _, value in _LANE.findall(line)]
    elif not line.lstrip().startswith("0x"):  # lines of local memory begin with their address
        wave.scalars |= {name: int(value, 16) for name, value in _SCALAR.findall(line)}


def _add_code(code: Code, line: str) -> None:
    if found := _INSTRUCTION.match(line):
        code.instructions[int(found[1], 16)] = found[2]
    elif found := _OBJECT.match(line):
        code.code_object = found[1]
    elif found := _LOADED.match(line):
        code.loaded_from, code.loaded_to = (int(address, 16) for address in found.groups())

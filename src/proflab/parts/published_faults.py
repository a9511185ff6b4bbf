"""Two faults that AMD published: an old memory fault with all that is needed to explain it, and an assert of today.

Shortened, otherwise as printed. AMD publishes both in the repository of its Debug Agent, under the NCSA licence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from proflab.parts.fault_report import FaultReport, parse_fault_report
from tidyprof.tables.contract import Origin

GUIDE = (
    "https://github.com/ROCm/rocr_debug_agent/blob/2a15276b1f983d8b304c918af886907bb9cd5887/docs/how-to/user-guide.rst"
)
OLD_README = "https://github.com/ROCm/rocr_debug_agent/blob/2c2437ad7efc3a448af4acc6494af1a8b34847e6/README.md"

ASSERT_TRAP = """\
Queue error (HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.)

--------------------------------------------------------
wave_1: pc=0x7fd4f100d0e8 (stopped, reason: ASSERT_TRAP)

system registers:
            m0: 00000000        status: 00012461       trapsts: 20000000          mode: 000003c0
            exec: 0000000000000001           vcc: 0000000000000000

scalar registers:
            s0: f520c000            s1: 00007fd5            s2: 00000000            s3: 00ea4fac

vector registers:
            v0: [0] 00000000 [1] f1002004 [2] f1002008 [3] f100200c [4] f1002010

Disassembly for function vector_add_assert_trap(int*, int*, int*):
    code object: file:////rocm-debug-agent/build/test/rocm-debug-agent-test#offset=14309&size=31336
    loaded at: [0x7fd4f100c000-0x7fd4f100e070]

53          __builtin_trap ();
    0x7fd4f100d0e4 <+228>:    s_mov_b64 s[0:1], s[6:7]
=>  0x7fd4f100d0e8 <+232>:    s_trap 2
    0x7fd4f100d0ec <+236>:    s_endpgm

End of disassembly.
Aborted (core dumped)
"""
"""From GUIDE: an `__builtin_trap()` in a test program. Five of 64 lanes of one register are kept."""

MEMORY_FAULT = """\
Memory access fault by GPU agent: AMD gfx900
Node: 1
Address: 0x18DB4xxx (page not present;write access to a read-only page;)

64 wavefront(s) found in XNACK error state @PC: 0x0000001100E01310
printing the first one:

   EXEC: 0xFFFFFFFFFFFFFFFF
     s8: 0x00000000    s9: 0x00000000   s10: 0x17D78400   s11: 0x04000000
    s20: 0x01037060   s21: 0x00000000   s22: 0x00000000   s23: 0x00000011

Lane 0x0
     v0: 0x00000003    v1: 0x18DB4400    v2: 0x18DB4400    v3: 0x00000000
Lane 0x1
     v0: 0x00000004    v1: 0x18DB4400    v2: 0x18DB4400    v3: 0x00000000

; /home/.../vector_add_kernel.cl:12
; d[100000000] = ga[gid & 31];
        v_mov_b32_e32 v1, v2                // 0000000012F0: 7E020302
        v_mov_b32_e32 v4, v3                // 0000000012F4: 7E080303
        v_add_i32_e32 v1, vcc, s10, v1      // 0000000012F8: 3202020A
        v_mov_b32_e32 v5, s22               // 0000000012FC: 7E0A0216
        v_addc_u32_e32 v4, vcc, v4, v5, vcc // 000000001300: 38080B04
        v_mov_b32_e32 v2, v1                // 000000001304: 7E040301
        v_mov_b32_e32 v3, v4                // 000000001308: 7E060304
        s_waitcnt lgkmcnt(0)                // 00000000130C: BF8CC07F
        flat_store_dword v[2:3], v0         // 000000001310: DC700000 00000002

Faulty PC offset: 1310

Aborted (core dumped)
"""
"""From OLD_README: a kernel of 32-bit integers that writes past its array. The layout has changed since."""

ELEMENT_BYTES = 4
"""An element of MEMORY_FAULT's array `d` is a 32-bit integer: `flat_store_dword` writes one."""

SUMMARY_SOURCE = "https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py"
LINES, WAVES = 14_635, 125
"""Lines of a report on this many waves, AMD GPUs of Frontier, ROCm 6.3.1 (SUMMARY_SOURCE, MIT licence)."""

WAVES_PER_COMPUTE_UNIT = 32
"""Most waves on one compute unit of an MI300X, as rocprof-compute reports it (sysinfo: max_waves_per_cu)."""


@dataclass(frozen=True)
class OldFault:
    """The published memory fault: its text without the source line, that line, its scalar registers, and lane 0."""

    text: str
    source_line: str
    scalars: dict[str, int]
    lane_0: dict[str, int]
    origin: Origin


def memory_fault() -> OldFault:
    """AMD's old memory fault, its registers as integers."""
    before, _, lanes = MEMORY_FAULT.partition("Lane 0x0")
    origin = Origin("recorded", "AMD gfx900, ROCm 1.9 or 2, published by AMD in ROCm/rocr_debug_agent (README)")
    source = [line for line in MEMORY_FAULT.splitlines() if line.startswith(";")]
    text = "\n".join(line for line in MEMORY_FAULT.splitlines() if line not in source)
    return OldFault(
        text,
        source[-1].removeprefix("; "),
        _registers(before, "s"),
        _registers(lanes.partition("Lane")[0], "v"),
        origin,
    )


def assert_trap() -> FaultReport:
    """AMD's assert trap, in the layout of today but for the kernel's name in the line of the wave."""
    origin = Origin("recorded", "GPU not stated, published by AMD in ROCm/rocr_debug_agent (user guide)")
    return parse_fault_report(ASSERT_TRAP, origin)


def lines_of_a_full_gpu() -> float:
    """Lines that `--all` writes for an MI300X on which no further wave fits: LINES per WAVES, for all its waves."""
    from tidyprof.analyses.gpu_peaks import MODELS

    compute_units = next(model.compute_units for model in MODELS if model.name == "MI300X")
    return compute_units * WAVES_PER_COMPUTE_UNIT * LINES / WAVES


def _registers(text: str, kind: str) -> dict[str, int]:
    return {name: int(value, 16) for name, value in re.findall(rf"\b({kind}\d+): 0x([0-9A-F]+)", text)}

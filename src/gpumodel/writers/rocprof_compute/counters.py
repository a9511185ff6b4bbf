"""Hardware counters of a kernel, made from what the model knows of it, so that published formulas
lead back to that.

The model knows operations and their data type, bytes to and from memory, grid, workgroup,
registers, local memory and duration. It does not know the traffic of the caches and of the local
data share, so there are no counters of these. How many instructions surround the arithmetic is an
estimate (PER_WAVE and MEMORY_INSTRUCTION_BYTES); all else is exact up to rounding to whole counts.

Formulas: ROCm/rocm-systems, projects/rocprofiler-compute, src/rocprof_compute_soc/analysis_configs.
Limits of a compute unit: "AMD Instinct MI300" Instruction Set Architecture Guide, sections on
dispatch and registers.

Which counters the report blocks and sets of rocprof-compute need, and in which runs of the program
they are counted: ROCm/rocm-systems, projects/rocprofiler-compute,
src/rocprof_compute_soc/analysis_configs/gfx942 and docs/how-to/profile/mode.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from gpumodel.devices import Device
from tidyprof.errors import UserError

LANES = 64
"""Work-items of a wavefront."""

MATRIX_UNIT = 512
"""Operations that one count of SQ_INSTS_VALU_MFMA_MOPS_* stands for."""

MAXIMUM_WAVES_PER_SIMD = 8
_REGISTERS_PER_SIMD, _REGISTER_BLOCK = 512, 8
_WORKGROUPS_PER_COMPUTE_UNIT = 16

MATRIX_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "float16": "F16",
        "bfloat16": "BF16",
        "float32": "F32",
        "float64": "F64",
        "float8": "F8",
        "int8": "I8",
    }
)
"""Data type -> its name in the counters of matrix instructions."""

VECTOR_TYPES: Mapping[str, str] = MappingProxyType(
    {"float16": "F16", "bfloat16": "F32", "float32": "F32", "float64": "F64"}
)
"""The same for vector instructions. CDNA has none for bfloat16: such values are widened to
float32.
"""

_MATRIX_INSTRUCTION_UNITS = {"F16": 32, "BF16": 32, "F32": 8, "F64": 4, "F8": 64, "I8": 64}
"""Operations of the largest dense instruction of each type, such as v_mfma_f32_32x32x8_f16, in
units of MATRIX_UNIT.
"""

PER_WAVE: Mapping[str, int] = MappingProxyType(
    {"SALU": 3, "SMEM": 3, "BRANCH": 1, "SENDMSG": 1, "OTHER": 3, "INT32": 3}
)
"""Instructions of every wave other than for arithmetic and memory: those of a copy kernel that was
recorded on an MI300X (https://github.com/AMDResearch/intellikit,
metrix/resources/ubench/coalescing: 19 per wave, 2 of them for memory).
"""

MEMORY_INSTRUCTION_BYTES = 16 * LANES
"""Bytes of the widest load or store of a wave, 16 bytes per work-item. Each wave has at least one
load if it reads, and one store if it writes.
"""


def counters_of(work: pd.DataFrame, device: Device) -> pd.DataFrame:
    """One row per kernel of `work`, one column of whole numbers per counter.

    work   -- rows of `gpumodel.run.DEVICE_WORK` that run on the compute units.
    device -- a device with an architecture of AMD.
    """
    cycles = np.maximum(
        1, np.rint(work["duration_ns"].to_numpy(float) * device.clock_mhz / 1000)
    ).astype(np.int64)
    groups, waves = launched(work)
    columns = _clocks(cycles, device)
    columns |= _wavefronts(work, device, groups, waves, cycles)
    columns |= _arithmetic(work, device)
    columns |= _memory(work, device, waves)
    columns |= _instructions(columns, waves)
    return pd.DataFrame(columns).astype("int64")


def launched(work: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Workgroups and wavefronts of every kernel; at least one of each."""
    groups = np.ones(len(work), np.int64)
    items = np.ones(len(work), np.int64)
    for axis in "xyz":
        size = np.maximum(1, work[f"workgroup_{axis}"].to_numpy(np.int64))
        groups *= np.maximum(1, -(-work[f"grid_{axis}"].to_numpy(np.int64) // size))
        items *= size
    return groups, groups * -(-items // LANES)


def resident_waves(work: pd.DataFrame, device: Device) -> np.ndarray:
    """Wavefronts of every kernel that run at once: all of them, or as many as registers, local
    memory and wave slots allow.

    Workgroups are placed as a whole. The module names the source of the limits.
    """
    groups, waves = launched(work)
    waves_per_group = waves // groups
    registers = work["vector_registers"].to_numpy(np.int64) + work[
        "accumulation_registers"
    ].to_numpy(np.int64)
    blocks = np.maximum(1, -(-registers // _REGISTER_BLOCK)) * _REGISTER_BLOCK
    per_simd = np.clip(_REGISTERS_PER_SIMD // blocks, 1, MAXIMUM_WAVES_PER_SIMD)
    fitting = np.maximum(1, per_simd * device.simds_per_compute_unit // waves_per_group)
    local = np.maximum(1, work["lds_bytes"].to_numpy(np.int64))
    fitting = np.minimum(fitting, np.maximum(1, device.lds_bytes // local))
    # A workgroup of one wave needs no barrier, of which a compute unit has a limited number.
    fitting = np.where(
        waves_per_group > 1, np.minimum(fitting, _WORKGROUPS_PER_COMPUTE_UNIT), fitting
    )
    return np.minimum(groups, fitting * device.compute_units) * waves_per_group


def _clocks(cycles: np.ndarray, device: Device) -> dict[str, np.ndarray]:
    """Cycles in which the device was busy: those of GRBM are a sum over chiplets, those of SQ over
    shader engines.
    """
    return {
        "GRBM_COUNT": cycles * device.chiplets,
        "GRBM_GUI_ACTIVE": cycles * device.chiplets,
        "SQ_CYCLES": cycles * device.shader_engines,
        "SQ_BUSY_CYCLES": cycles * device.shader_engines,
    }


def _wavefronts(
    work: pd.DataFrame, device: Device, groups: np.ndarray, waves: np.ndarray, cycles: np.ndarray
) -> dict[str, np.ndarray]:
    level = resident_waves(work, device) * cycles
    zero = np.zeros(len(work), np.int64)
    items = np.ones(len(work), np.int64)
    for axis in "xyz":
        items *= np.maximum(1, work[f"grid_{axis}"].to_numpy(np.int64))
    return {
        "SPI_CSN_NUM_THREADGROUPS": groups,
        "SPI_CSN_WAVE": waves,
        "SQ_WAVES": waves,
        "SQ_WAVES_RESTORED": zero,
        "SQ_WAVES_SAVED": zero,
        "SQ_ITEMS": items,
        "SQ_BUSY_CU_CYCLES": np.minimum(groups, device.compute_units) * cycles,
        # Wave cycles are counted in steps of four, their level in every cycle.
        "SQ_WAVE_CYCLES": level // 4,
        "SQ_LEVEL_WAVES_ACCUM": level,
    }


def _arithmetic(work: pd.DataFrame, device: Device) -> dict[str, np.ndarray]:
    """Matrix instructions, in units of MATRIX_UNIT operations, and vector instructions, in units of
    LANES.
    """
    flops = work["flops"].to_numpy(float)
    data_type = work["data_type"].to_numpy(object)
    is_matrix = work["matrix_cores"].to_numpy(bool) & np.isin(data_type, list(MATRIX_TYPES))
    columns = {
        f"SQ_INSTS_VALU_MFMA_{code}": np.zeros(len(work), np.int64)
        for code in MATRIX_TYPES.values()
    }
    columns |= {
        f"SQ_INSTS_VALU_MFMA_MOPS_{code}": np.zeros(len(work), np.int64)
        for code in MATRIX_TYPES.values()
    }
    busy = np.zeros(len(work))
    for name, code in MATRIX_TYPES.items():
        units = np.where(is_matrix & (data_type == name), np.rint(flops / MATRIX_UNIT), 0).astype(
            np.int64
        )
        columns[f"SQ_INSTS_VALU_MFMA_MOPS_{code}"] = units
        columns[f"SQ_INSTS_VALU_MFMA_{code}"] = -(-units // _MATRIX_INSTRUCTION_UNITS[code])
        peak = device.peak_flops.get(f"matrix {name}")
        if peak:
            # Each matrix core of a compute unit counts once per cycle; all together reach the peak.
            cores = device.compute_units * device.simds_per_compute_unit
            busy += units * (MATRIX_UNIT * cores * device.clock_mhz * 1e6 / peak)
    columns["SQ_VALU_MFMA_BUSY_CYCLES"] = np.rint(busy).astype(np.int64)
    return columns | _vector_arithmetic(
        flops, data_type, is_matrix, work["bound_by"].to_numpy(object) == "compute"
    )


def _vector_arithmetic(
    flops: np.ndarray, data_type: np.ndarray, is_matrix: np.ndarray, is_dense: np.ndarray
) -> dict[str, np.ndarray]:
    """Vector instructions: fused multiply-adds where arithmetic bounds the kernel, else half
    multiplications and half additions. Which they are is an assumption.
    """
    columns: dict[str, np.ndarray] = {}
    single = np.where(is_matrix, 0, np.rint(flops / LANES)).astype(np.int64)
    fused = np.where(is_dense, single // 2, 0)
    rest = single - 2 * fused
    for code in ("F16", "F32", "F64"):
        own = np.isin(data_type, [name for name, other in VECTOR_TYPES.items() if other == code])
        parts = {
            "ADD": rest - rest // 2,
            "MUL": rest // 2,
            "FMA": fused,
            "TRANS": np.zeros_like(fused),
        }
        columns |= {
            f"SQ_INSTS_VALU_{kind}_{code}": np.where(own, count, 0) for kind, count in parts.items()
        }
    is_integer = ~np.isin(data_type, list(VECTOR_TYPES))
    return columns | {"integer": np.where(is_integer, single, 0)}


def _memory(work: pd.DataFrame, device: Device, waves: np.ndarray) -> dict[str, np.ndarray]:
    """Requests to memory (see fabric_requests), and the instructions that made them."""
    columns = fabric_requests(
        work["bytes_read"].to_numpy(float), work["bytes_written"].to_numpy(float), device.gfx
    )
    for name, moved in (("RD", work["bytes_read"]), ("WR", work["bytes_written"])):
        needed = np.ceil(moved.to_numpy(float) / MEMORY_INSTRUCTION_BYTES).astype(np.int64)
        columns[f"SQ_INSTS_VMEM_{name}"] = np.where(needed > 0, np.maximum(needed, waves), 0)
    return columns


def fabric_requests(read: np.ndarray, written: np.ndarray, gfx: str) -> dict[str, np.ndarray]:
    """Counters between L2 and memory for these bytes, exact to 16 bytes: requests as large as
    possible, then requests of 32 B.

    Large reads have 128 B from MI300 on (on gfx942 TCC_BUBBLE counts them, too) and 64 B before;
    large writes have 64 B.
    """
    prefix = "TCC_EA" if gfx in ("gfx908", "gfx90a") else "TCC_EA0"
    size = 64 if prefix == "TCC_EA" else 128
    large = (read // size).astype(np.int64)
    small = np.rint((read - large * size) / 32).astype(np.int64)
    columns = {f"{prefix}_RDREQ_sum": large + small, f"{prefix}_RDREQ_32B_sum": small}
    if gfx == "gfx950":
        columns |= {
            f"{prefix}_RDREQ_128B_sum": large,
            f"{prefix}_RDREQ_64B_sum": np.zeros_like(large),
        }
    elif size == 128:
        columns["TCC_BUBBLE_sum"] = large
    full = (written // 64).astype(np.int64)
    rest = np.rint((written - full * 64) / 32).astype(np.int64)
    return columns | {f"{prefix}_WRREQ_sum": full + rest, f"{prefix}_WRREQ_64B_sum": full}


def _instructions(columns: dict[str, np.ndarray], waves: np.ndarray) -> dict[str, np.ndarray]:
    """Instructions by kind and in all, and the cycles in which they were issued. Takes `integer`
    out of `columns`.
    """
    memory = columns["SQ_INSTS_VMEM_RD"] + columns["SQ_INSTS_VMEM_WR"]
    found = {
        f"SQ_INSTS_{kind}": PER_WAVE[kind] * waves for kind in ("SALU", "SMEM", "BRANCH", "SENDMSG")
    }
    found |= {"SQ_INSTS_VMEM": memory, "SQ_INSTS_FLAT": memory}
    # Addresses take a 64-bit addition for every access, and the index of the work-item once.
    found["SQ_INSTS_VALU_INT64"] = memory
    found["SQ_INSTS_VALU_INT32"] = PER_WAVE["INT32"] * waves + columns.pop("integer")
    matrix = sum(columns[f"SQ_INSTS_VALU_MFMA_{code}"] for code in MATRIX_TYPES.values())
    kinds = [
        f"{kind}_{code}"
        for kind in ("ADD", "MUL", "FMA", "TRANS")
        for code in ("F16", "F32", "F64")
    ]
    vector = sum(columns[f"SQ_INSTS_VALU_{kind}"] for kind in kinds)
    found["SQ_INSTS_MFMA"] = found["SQ_INSTS_VALU_MFMA"] = matrix
    valu = matrix + vector + found["SQ_INSTS_VALU_INT32"] + found["SQ_INSTS_VALU_INT64"]
    found["SQ_INSTS_VALU"] = valu
    scalar = found["SQ_INSTS_SALU"] + found["SQ_INSTS_SMEM"]
    other = found["SQ_INSTS_BRANCH"] + found["SQ_INSTS_SENDMSG"]
    found["SQ_INSTS"] = valu + memory + scalar + other + PER_WAVE["OTHER"] * waves
    zero = np.zeros_like(memory)
    return found | {
        "SQ_ACTIVE_INST_VALU": valu,
        "SQ_ACTIVE_INST_SCA": scalar,
        "SQ_ACTIVE_INST_FLAT": memory,
        "SQ_ACTIVE_INST_VMEM": zero,
        "SQ_ACTIVE_INST_MISC": other,
        "SQ_THREAD_CYCLES_VALU": LANES * valu,
    }


HARDWARE_BLOCKS = ("SQ", "SQC", "TA", "TD", "TCP", "TCC", "SPI", "CPC", "CPF")
"""What `--block` takes before ROCm 7.1 (src/argparser.py): beginnings of the names of counters."""

LEVEL = "SQ_LEVEL_WAVES_ACCUM"
"""Sum of a level over cycles, which is counted in a run of its own."""

_ALWAYS = re.compile(r"GRBM_|SQ_BUSY_CYCLES")

_OPERATIONS = r"SQ_INSTS_VALU_(ADD|MUL|FMA|TRANS|MFMA_MOPS)_|SQ_INSTS_VALU_INT"
_FABRIC = r"TCC_"
_UTILISATION = r"SQ_ACTIVE_|SQ_THREAD_|SQ_BUSY_CU|SQ_VALU_MFMA_BUSY|SQ_INSTS$|SQ_WAVES$|SQ_CYCLES"
_WAVES = r"SPI_|SQ_WAVE|SQ_LEVEL|SQ_ITEMS|SQ_CYCLES|SQ_BUSY_CU"
_INSTRUCTIONS = r"SQ_INSTS|SQ_WAVES$"

BLOCKS: Mapping[int, str] = {
    2: "|".join((_OPERATIONS, _FABRIC, _UTILISATION, LEVEL)),
    3: "|".join((_FABRIC, _INSTRUCTIONS, LEVEL)),
    4: "|".join((_OPERATIONS, _FABRIC)),
    6: _WAVES,
    7: _WAVES,
    10: _INSTRUCTIONS,
    11: "|".join((_OPERATIONS, _UTILISATION, _INSTRUCTIONS)),
    17: _FABRIC,
}
"""Report block -> pattern of its counters. The model knows nothing of the other blocks (5, 12 to
16, 18).
"""

SETS: Mapping[str, str] = {
    "compute_thruput_util": _UTILISATION,
    "compute_thruput_flops": _OPERATIONS,
    "mem_thruput": _FABRIC,
    "launch_stats": _WAVES,
}
"""Set of metrics (`--set`) -> pattern of those of its counters that the model knows."""

_PER_RUN: Mapping[str, int] = {"SQ": 8, "TCC": 4, "SPI": 2, "GRBM": 2}
"""Part of the device -> how many counters it can count at once."""


def chosen(counters: Iterable[str], blocks: Sequence[str], metric_set: str | None) -> list[str]:
    """Those of the counters that report blocks (`2`, `2.1.4`), hardware blocks (`SQ`) or a set of
    metrics need; all of them if none of these is given.

    Raises UserError for blocks together with a set, and for a block or set that the model does not
    know.
    """
    if blocks and metric_set:
        raise UserError(
            "report blocks (-b) and a set of metrics (--set) exclude each other; pass one of them"
        )
    if metric_set is not None and metric_set not in SETS:
        raise UserError(f"no set {metric_set!r} of metrics; there are {', '.join(SETS)}")
    patterns = [SETS[metric_set]] if metric_set else [_pattern(text) for text in blocks]
    wanted = re.compile("|".join(patterns)) if patterns else re.compile("")
    return [name for name in counters if _ALWAYS.match(name) or wanted.match(name)]


def _pattern(text: str) -> str:
    """The pattern of a block's counters. Raises UserError for a block that the model does not
    know.
    """
    if text in HARDWARE_BLOCKS:
        return f"{text}_"
    number = text.split(".")[0]
    if not re.fullmatch(r"\d+(\.\d+){0,2}", text) or int(number) not in BLOCKS:
        known = ", ".join(map(str, BLOCKS))
        raise UserError(
            f"report block {text!r} is not modelled; pass one of {known}, or an id within it such"
            " as 2.1"
        )
    return BLOCKS[int(number)]


def runs_of(counters: Sequence[str]) -> dict[str, list[str]]:
    """Name of a request file -> the counters of one run of the program: as many as can be counted
    at once.
    """
    runs: list[list[str]] = []
    for name in counters:
        if name == LEVEL:
            continue
        part = _part(name)
        free = next(
            (run for run in runs if sum(_part(other) == part for other in run) < _PER_RUN[part]),
            None,
        )
        if free is None:
            runs.append([name])
        else:
            free.append(name)
    found = {"SQ_LEVEL_WAVES": [LEVEL]} if LEVEL in counters else {}
    return found | {f"pmc_perf_{number}": run for number, run in enumerate(runs)}


def _part(counter: str) -> str:
    return counter.split("_")[0]

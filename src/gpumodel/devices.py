"""Devices as data, one TOML file each in gpumodel/data/devices, and the clause on the model's error
that figures carry.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tidyprof.errors import UserError


@dataclass(frozen=True)
class Device:
    """What one process sees of a GPU (of an MI250X: one of its two dies).

    name                 -- short name, e.g. "MI300X"; marketing_name -- as the tools print it.
    gfx                  -- architecture, e.g. "gfx942"; "" for other vendors.
    compute_units, simds_per_compute_unit, wavefront_size, shader_engines, chiplets -- counts.
    clock_mhz, memory_clock_mhz -- peaks; clock_share -- share of its peak at which the device runs,
        see `at_clock`.
    memory_bytes, memory_bandwidth -- bytes, bytes per second.
    l1_bytes, l2_bytes_per_chiplet, lds_bytes -- bytes; l2_channels -- count over the device.
    peak_flops           -- FLOP/s by unit and type: "vector float32", "matrix float16", ...
    power_watt, idle_watt -- limit of the board, and power when idle, in W.
    source               -- where the numbers come from.
    sysinfo              -- fields of rocprof-compute's sysinfo.csv that do not follow from the
        others.

    A device without `gfx` has peaks to compare with; its kernels are not modelled.
    """

    name: str
    marketing_name: str
    gfx: str
    compute_units: int
    simds_per_compute_unit: int
    wavefront_size: int
    shader_engines: int
    chiplets: int
    clock_mhz: int
    memory_clock_mhz: int
    memory_bytes: int
    memory_bandwidth: float
    l1_bytes: int
    l2_bytes_per_chiplet: int
    l2_channels: int
    lds_bytes: int
    power_watt: float
    idle_watt: float
    source: str
    clock_share: float = 1.0
    peak_flops: dict[str, float] = field(default_factory=dict)
    sysinfo: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """The names of all devices, in alphabetical order."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in _folder().iterdir()
        if entry.name.endswith(".toml")
    )


@cache
def device(name: str) -> Device:
    """The device of that name, in upper or lower case. Raises UserError for a device that is not
    modelled.
    """
    for known in names():
        if known.lower() == name.lower():
            return Device(**tomllib.loads((_folder() / f"{known}.toml").read_text()))
    raise UserError(f"device {name!r} is not modelled; there are {', '.join(names())}")


def at_clock(name: str, share: float) -> Device:
    """The device of that name at a share of its peak clock: its arithmetic and its chains of
    dependent steps are slower, its memory is not.

    Raises UserError for a share outside of 0 to 1, or 0 itself, and where `device` does.
    """
    if not 0 < share <= 1:
        raise UserError(f"a clock is a share of the peak, above 0 and up to 1, not {share!r}")
    whole = device(name)
    peaks = {unit: share * flops for unit, flops in whole.peak_flops.items()}
    return replace(
        whole, clock_mhz=round(share * whole.clock_mhz), clock_share=share, peak_flops=peaks
    )


def _folder() -> Any:
    return files("gpumodel") / "data" / "devices"


_ERROR_FILE = files("gpumodel") / "data" / "model_error.toml"


@cache
def model_error() -> str:
    """The clause on the model's error, as `python -m gpumodel validate --write` last wrote it."""
    return tomllib.loads(_ERROR_FILE.read_text())["clause"]


def write_model_error(clause: str) -> Path:
    """Write the clause into the package's data and return the file."""
    target = Path(str(_ERROR_FILE))
    head = "# Made by `python -m gpumodel validate --write`; do not edit.\n"
    target.write_text(f"{head}clause = {json.dumps(clause, ensure_ascii=False)}\n")
    model_error.cache_clear()
    return target

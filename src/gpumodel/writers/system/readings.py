"""What the driver of each device reports at the times at which a monitor asks it.

rocm-smi's names for that: projects/rocm-smi-lib/python_smi_tools/rocm_smi.py of ROCm/rocm-systems.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.files import put, ranks_of, write_marker
from tidyprof.errors import UserError

QUANTITIES = (
    *(
        "gfx_activity",
        "memory_activity",
        "power",
        "gfx_clock",
        "memory_clock",
        "temperature",
        "memory_used",
    ),
)
"""Names in `gpumodel.run.COUNTERS`."""


NOT_AVAILABLE = "N/A"
"""What AMD's tools show for a value that they do not know."""


@dataclass(frozen=True)
class Reading:
    """One device at one time.

    unix_ns -- in ns since 1970.
    values  -- quantity -> value in the unit of COUNTERS; None where there is no sample yet.
    """

    unix_ns: int
    device: int
    values: dict[str, float | None]

    def whole(self, quantity: str, divisor: int = 1) -> int | None:
        """The value as a whole number, as the driver reports it, in units of `divisor`."""
        value = self.values[quantity]
        return None if value is None else round(value) // divisor


def readings(run: Run, rank: int | None, interval_s: float) -> list[Reading]:
    """All devices at the start of the run, and after every interval up to the first time at or
    after its end.

    Sorted by time and device; each reading has the latest sample of its device. Raises UserError
    for an interval that is not positive, a rank that the run does not have, and a run without
    samples.
    """
    step = round(interval_s * 1e9) if 0 < interval_s < float("inf") else 0
    if step < 1:
        raise UserError(f"a sampling interval of {interval_s:g} s is no time; pass seconds above 0")
    count = -(-(run.end_ns - run.start_ns) // step) + 1
    times = run.start_ns + step * np.arange(count, dtype=np.int64)
    ranks = ranks_of(run, rank)
    if not any(len(one.counters) for one in ranks):
        raise UserError(
            "the modelled run has no samples of power, clocks and use, so a monitor would show"
            " nothing"
        )
    of_rank = [(one, _held(one, times)) for one in sorted(ranks, key=lambda one: one.device)]
    return [
        Reading(
            time + run.wall_clock_offset_ns,
            one.device,
            {name: held[name][place] for name in QUANTITIES},
        )
        for place, time in enumerate(times.tolist())
        for one, held in of_rank
    ]


def _held(rank: RankRun, times: np.ndarray) -> dict[str, list[float | None]]:
    """Quantity -> its latest value at each time."""
    found: dict[str, list[float | None]] = {}
    for name in QUANTITIES:
        own = rank.counters[rank.counters["name"] == name]
        place = np.searchsorted(own["time_ns"].to_numpy(), times, side="right") - 1
        values = own["value"].tolist()
        found[name] = [None if index < 0 else values[index] for index in place.tolist()]
    return found


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_text(run: Run, folder: Path, name: str, text: str) -> list[Path]:
    """Write a file and its marker; returns both."""
    folder.mkdir(parents=True, exist_ok=True)
    return [put(folder / name, text), write_marker(run, folder)]


def card(row: Reading, memory: int) -> dict[str, str]:
    """What rocm-smi prints about one device, all of it as text. memory -- the device's, in
    bytes.
    """
    used, values = row.whole("memory_used"), row.values
    return {
        "GPU use (%)": _text(row.whole("gfx_activity")),
        "GPU Memory Allocated (VRAM%)": _text(None if used is None else round(100 * used / memory)),
        "GPU Memory Read/Write Activity (%)": _text(row.whole("memory_activity")),
        "Current Socket Graphics Package Power (W)": _text(_tenth(values["power"])),
        "Temperature (Sensor edge) (C)": NOT_AVAILABLE,
        "Temperature (Sensor junction) (C)": _text(_tenth(values["temperature"])),
        "Temperature (Sensor memory) (C)": NOT_AVAILABLE,
        "sclk clock speed:": _clock(row.whole("gfx_clock")),
        "mclk clock speed:": _clock(row.whole("memory_clock")),
        "VRAM Total Memory (B)": str(memory),
        "VRAM Total Used Memory (B)": _text(used),
    }


def _tenth(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _clock(megahertz: int | None) -> str:
    return NOT_AVAILABLE if megahertz is None else f"({megahertz}Mhz)"


def _text(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else str(value)

"""Exercises of lesson 05: is this kernel near its ceiling?

Exercise 05.1 takes a layer, 05.2 a run of rocprof-compute, and 05.3 the recorded counters from a
CSV file.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

import tidyprof
from proflab.exercises import Exercise, Mistake, Number
from tidyprof import Profile

KNEE = 1307.4e12 / 5.3e12
"""FLOP per byte at the knee of an MI300X in half precision. The lesson names the sources."""


def intensity(
    layer: Mapping[str, int],
    operations: int = 2,
    weights_too: bool = True,
    squared: tuple[int, int] = (2, 2),
) -> float:
    """Return the FLOP per byte of a convolution with padding and numbers of two bytes.

    squared -- the powers of size and filter_width.
    """
    pixels = layer["images"] * layer["size"] ** squared[0]
    weights = layer["filters"] * layer["channels"] * layer["filter_width"] ** squared[1]
    moved = pixels * (layer["channels"] + layer["filters"]) + weights * weights_too
    return operations * pixels * weights / (2 * moved)


def share_of_roof(profile: Profile, flat: bool = False, moved: float = 1.0) -> float:
    """Return what the longest kernel reaches, in percent of the lower of its two roofs.

    flat  -- compare with the peak of the vector units.
    moved -- share of the bytes that count.
    """
    row, limits = tidyprof.roofline_points(profile).iloc[0], tidyprof.roofline_ceilings(profile)
    known = limits.set_index("name")["value"]
    roof = known["vector fp32"]
    if not flat:
        roof = min(roof, row["flops"] / (moved * row["hbm_bytes"]) * known["HBM"])
    return float(100 * row["flops"] / (row["duration_ns"] / 1e9) / roof)


def fabric_bytes(raw: pd.DataFrame, writes: bool = True, bubble: bool = True) -> pd.Series:
    """Return the bytes through the fabric: reads of 64 bytes, some of 128 or 32, and writes of 32
    or 64.
    """
    read = 64 * (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_BUBBLE_sum"] * bubble)
    written = 32 * (raw["TCC_EA0_WRREQ_sum"] + raw["TCC_EA0_WRREQ_64B_sum"])
    return read - 32 * raw["TCC_EA0_RDREQ_32B_sum"] + written * writes


def moved_per_needed(
    raw: pd.DataFrame, kernel: str = "stride", needed: int = 8, **counted: bool
) -> float:
    """Return the bytes that a kernel moves per byte that its work-items need.

    needed  -- bytes per work-item.
    counted -- as in `fabric_bytes`.
    """
    moved = fabric_bytes(raw, **counted)[kernel]
    return float(moved / (needed * raw.at[kernel, "Grid_Size"]))


def growth(values: pd.Series) -> float:
    """Return the value of the kernel `stride` divided by that of `coalesced`."""
    return float(values["stride"] / values["coalesced"])


EXERCISES = (
    Exercise(
        id="05.1",
        answer=Number(intensity, unit="FLOP per byte"),
        mistakes=(
            Mistake(
                lambda layer: intensity(layer, operations=1),
                "Your answer is half of the intensity. Count a multiplication and an addition"
                " as two operations, and count two bytes (not four bytes) per number.",
            ),
            Mistake(
                lambda layer: intensity(layer, operations=4),
                "You computed FLOP per number. Each number takes two bytes, so divide by two.",
            ),
            Mistake(
                lambda layer: intensity(layer, weights_too=False),
                "You left out the weights. The kernel reads them too, so add their bytes.",
            ),
            Mistake(
                lambda layer: intensity(layer, squared=(1, 2)),
                "You counted only one row of each image. `size` is both width and height, so"
                " an image has `size**2` numbers per channel.",
            ),
            Mistake(
                lambda layer: intensity(layer, squared=(2, 1)),
                "You counted only one row of each filter. A filter has `filter_width**2`"
                " weights per channel.",
            ),
        ),
        hints=(
            (
                "Count three kinds of numbers: the input (`images * channels * size**2`), the"
                " output (with `filters` instead of `channels`) and all weights."
            ),
            (
                "For each output number, count two operations per weight of *one* filter. Count"
                " two bytes per number."
            ),
        ),
        insight=f"The peak's knee is at {KNEE:.0f}. Is this convolution left or right of it?",
    ),
    Exercise(
        id="05.2",
        answer=Number(share_of_roof, unit="percent"),
        mistakes=(
            Mistake(
                lambda profile: share_of_roof(profile, flat=True),
                "You divided by the flat roof. At this intensity, the slanted roof is lower,"
                " so divide by the slanted roof.",
            ),
            Mistake(
                lambda profile: (
                    share_of_roof(profile) / tidyprof.roofline_points(profile)["calls"].iloc[0]
                ),
                (
                    "You divided by the number of calls. `duration_ns`, `flops` and `hbm_bytes`"
                    " are all totals over the calls, so omit this division."
                ),
            ),
            Mistake(
                lambda profile: share_of_roof(profile, moved=0.5),
                "You counted half of the bytes. A normalization reads and writes data, so use"
                " all of `hbm_bytes`.",
            ),
        ),
        hints=(
            'Compute the slanted roof: `point.flops / point.hbm_bytes * limits["HBM"]`.',
            "Compute the rate: `point.flops / (point.duration_ns / 1e9)`.",
            "Divide the rate by the lower roof (`min`), and multiply by 100.",
        ),
        insight=(
            "Below the slanted roof, this percentage is also the bytes per second divided by the"
            " bandwidth because the operations cancel out. The tool reports reads and writes"
            " separately, so add up rows 2.1.23 and 2.1.24 (`L2-Fabric ... BW`)."
        ),
    ),
    Exercise(
        id="05.3",
        answer=Number(moved_per_needed, unit="bytes per byte"),
        mistakes=(
            Mistake(
                lambda raw: growth(fabric_bytes(raw)),
                "You divided by the bytes that the coalesced kernel moved. Divide by the bytes"
                " that *must* be moved: four in and four out for each of the `Grid_Size`"
                " work-items.",
            ),
            Mistake(
                lambda raw: moved_per_needed(raw, kernel="coalesced"),
                "You computed the answer for the `coalesced` kernel. The question is about"
                " `stride`.",
            ),
            Mistake(
                lambda raw: moved_per_needed(raw, bubble=False),
                "You left out `TCC_BUBBLE_sum`. Each of these reads moves 128 bytes, so add 64"
                " more bytes for each one.",
            ),
            Mistake(
                lambda raw: moved_per_needed(raw, needed=4),
                "You counted four needed bytes per work-item. Each number is both read and"
                " written, so count eight bytes.",
            ),
            Mistake(
                lambda raw: moved_per_needed(raw, writes=False),
                "You counted only the reads. The writes also go through the fabric, so add them.",
            ),
            Mistake(
                lambda raw: float(
                    (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_EA0_WRREQ_sum"])["stride"]
                    / (8 * raw.at["stride", "Grid_Size"])
                ),
                (
                    "You counted requests. A request moves 128, 64 or 32 bytes, so multiply each"
                    " count by its size."
                ),
            ),
        ),
        hints=(
            'Compute the needed bytes, four in and four out: `8 * raw["Grid_Size"]`.',
            (
                "Count 64 bytes per read, 64 bytes more for each `BUBBLE`, and 32 bytes less for"
                " each `32B` read. Count 32 bytes per write, and 32 bytes more for each `64B`"
                " write."
            ),
            "Add up read and written bytes, divide by the needed bytes, and select `stride`.",
        ),
        insight=lambda raw: (
            f"The coalesced kernel moves {moved_per_needed(raw, kernel='coalesced'):.2f} bytes per"
            " needed byte, so using more bandwidth isn't an achievement by itself. `stride` takes"
            f" only {growth(raw['End_Timestamp'] - raw['Start_Timestamp']):.1f} times as long"
            " because such a small launch mostly waits for memory."
        ),
    ),
)

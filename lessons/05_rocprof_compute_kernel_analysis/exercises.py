"""Exercises of lesson 05, is this kernel near its ceiling?

Each says what it is put to: a layer, a run of rocprof-compute made here, or counters of a recording
as its CSV file has them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

import tidyprof
from proflab.exercises import Exercise, Mistake, Number
from tidyprof import Profile

BANDWIDTH, PEAK, ACHIEVABLE = 5.3e12, 1307.4e12, 654e12
"""Bytes per second and FLOP/s of an MI300X in half precision: the sources stand in the lesson."""


def intensity(
    layer: Mapping[str, int],
    operations: int = 2,
    bytes_each: int = 2,
    weights_too: bool = True,
    squared: tuple[int, int] = (2, 2),
) -> float:
    """FLOP per byte of a convolution with a padded border; `squared` has the powers of size and
    filter_width.
    """
    pixels = layer["images"] * layer["size"] ** squared[0]
    weights = layer["filters"] * layer["channels"] * layer["filter_width"] ** squared[1]
    moved = pixels * (layer["channels"] + layer["filters"]) + weights * weights_too
    return operations * pixels * weights / (bytes_each * moved)


def share_of_roof(profile: Profile, flat: bool = False, moved: float = 1.0) -> float:
    """What the longest kernel reaches, in percent of the lower of its two roofs, or of the vector
    units' peak.

    `moved` is the part of the bytes that is counted.
    """
    row, limits = tidyprof.roofline_points(profile).iloc[0], tidyprof.roofline_ceilings(profile)
    known = limits.set_index("name")["value"]
    roofs = [known["vector fp32"], row["flops"] / (moved * row["hbm_bytes"]) * known["HBM"]]
    return float(
        100 * row["flops"] / (row["duration_ns"] / 1e9) / (roofs[0] if flat else min(roofs))
    )


def fabric_bytes(
    counts: pd.DataFrame | pd.Series, reads: bool = True, writes: bool = True
) -> pd.Series | float:
    """Bytes through the fabric: reads of 64 bytes, some of 128 or 32, and writes of 32 or 64."""
    read = (
        64 * (counts["TCC_EA0_RDREQ_sum"] + counts["TCC_BUBBLE_sum"])
        - 32 * counts["TCC_EA0_RDREQ_32B_sum"]
    )
    return (
        read * reads
        + (32 * counts["TCC_EA0_WRREQ_sum"] + 32 * counts["TCC_EA0_WRREQ_64B_sum"]) * writes
    )


def moved_for_needed(
    raw: pd.DataFrame,
    kernel: str = "stride",
    bytes_each: int = 8,
    reads: bool = True,
    writes: bool = True,
) -> float:
    """Bytes that a kernel moves for each that its work-items have to: one number in, one out."""
    return float(
        fabric_bytes(raw, reads, writes)[kernel] / (bytes_each * raw.at[kernel, "Grid_Size"])
    )


def growth(values: pd.Series) -> float:
    """The kernel with the stride by the coalesced one."""
    return float(values["stride"] / values["coalesced"])


EXERCISES = (
    Exercise(
        id="05.1",
        answer=Number(intensity),
        mistakes=(
            Mistake(
                lambda layer: intensity(layer, operations=1),
                "Half of it. Either multiplying and adding count as one, and are two; or a number"
                " has four bytes, and in half precision it has two.",
            ),
            Mistake(
                lambda layer: intensity(layer, bytes_each=1),
                "That is per number, of two bytes each.",
            ),
            Mistake(
                lambda layer: intensity(layer, weights_too=False),
                "The weights have to be read too.",
            ),
            Mistake(
                lambda layer: intensity(layer, squared=(1, 2)),
                "One row of each image: `size` is its width and its height, so it has `size**2`"
                " numbers a channel.",
            ),
            Mistake(
                lambda layer: intensity(layer, squared=(2, 1)),
                "One row of each filter: it has `filter_width**2` weights for each channel.",
            ),
        ),
        hints=(
            (
                "Count three things: input, `images * channels * size**2`, output with `filters`"
                " channels, all weights."
            ),
            (
                "Operations: two for each output number and each weight of *one* filter. Bytes: two"
                " for each number."
            ),
        ),
        insight=(
            f"The knees are at {ACHIEVABLE / BANDWIDTH:.0f} and {PEAK / BANDWIDTH:.0f}: where does"
            " that put it?"
        ),
    ),
    Exercise(
        id="05.2",
        answer=Number(share_of_roof, unit="percent"),
        mistakes=(
            Mistake(
                lambda profile: share_of_roof(profile, flat=True),
                "That is of the flat roof. Is it the lower?",
            ),
            Mistake(
                lambda profile: (
                    share_of_roof(profile) / tidyprof.roofline_points(profile)["calls"].iloc[0]
                ),
                "You divided by the calls once more: `duration_ns` is the sum over all of them,"
                " like the bytes.",
            ),
            Mistake(
                lambda profile: share_of_roof(profile, moved=0.5),
                "That is half of the bytes: a normalization reads and writes.",
            ),
        ),
        hints=(
            'The slanted roof is `point.flops / point.hbm_bytes` times `limits["HBM"]`.',
            "FLOP/s are `point.flops / (point.duration_ns / 1e9)`.",
            "Divide them by the `min` of both roofs, and multiply by 100.",
        ),
        insight=(
            "Under the slanted roof this is the same as bytes per second by the bandwidth: the"
            " operations cancel. The tool has it, too, reads and writes apart: add up rows 2.1.23"
            " and 2.1.24 (`L2-Fabric ... BW`)."
        ),
    ),
    Exercise(
        id="05.3",
        answer=Number(moved_for_needed, unit="bytes per byte"),
        mistakes=(
            Mistake(
                lambda raw: growth(fabric_bytes(raw)),
                "That is by what the coalesced kernel moved, a little more than it has to. Count"
                " what *must* be moved: four bytes in and four out for each of the `Grid_Size`"
                " work-items.",
            ),
            Mistake(
                lambda raw: moved_for_needed(raw, bytes_each=4),
                "Each number is read and written: two times four bytes have to be moved for a"
                " work-item.",
            ),
            Mistake(
                lambda raw: moved_for_needed(raw, writes=False),
                "These are the reads, over what has to be read and written. The writes go through"
                " the fabric too.",
            ),
            Mistake(
                lambda raw: moved_for_needed(raw, bytes_each=4, writes=False),
                "That is right for the reads alone. Writing counts too.",
            ),
            Mistake(
                lambda raw: float(
                    (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_EA0_WRREQ_sum"])["stride"]
                    / (8 * raw.at["stride", "Grid_Size"])
                ),
                "These are requests. They move 128, 64 or 32 bytes each.",
            ),
            Mistake(
                lambda raw: 1 / moved_for_needed(raw),
                "That is the useful part of what is moved: turn the fraction round.",
            ),
        ),
        hints=(
            'What must be moved is `8 * raw["Grid_Size"]`: four bytes in, four out.',
            (
                "Reads: 64 bytes each, 64 more for a `BUBBLE`, 32 less for a `32B`. Writes: 32"
                " bytes, 32 more for a `64B`."
            ),
            (
                "Write `raw[...]` for `c[...]` in the two lines of `read` and `written`, add,"
                " divide, and take `stride`."
            ),
        ),
        insight=lambda raw: (
            f"The coalesced kernel moves {moved_for_needed(raw, kernel='coalesced'):.2f}. Yet the"
            f" time grew only {growth(raw['End_Timestamp'] - raw['Start_Timestamp']):.1f} times: so"
            " small a launch mostly waits for answers."
        ),
    ),
)

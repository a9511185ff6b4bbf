"""Exercises of lesson 05, is this kernel near its ceiling?

Each says what it is put to: a layer, AMD's published tables, a run of rocprof-compute made here, or counters of a
recording as its CSV file has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

import tidyprof
from proflab.exercises import Exercise, Mistake, Number
from tidyprof import Profile

BANDWIDTH, PEAK, ACHIEVABLE = 5.3e12, 1307.4e12, 654e12
"""Bytes per second and FLOP/s of an MI300X in half precision: the sources stand in the lesson."""

PRINTED_METRIC = "MFMA FLOPs (F16)"
"""The row of the published table that 05.6 is about."""

CLOCK_GHZ = 2.1


def intensity(layer: Mapping[str, int], operations: int = 2, bytes_each: int = 2, weights_too: bool = True) -> float:
    """FLOP per byte of a convolution with a padded border."""
    pixels = layer["images"] * layer["size"] ** 2
    weights = layer["filters"] * layer["channels"] * layer["filter_width"] ** 2
    moved = pixels * (layer["channels"] + layer["filters"]) + weights * weights_too
    return operations * pixels * weights / (bytes_each * moved)


def mean_share(layers: pd.DataFrame, rate: float = ACHIEVABLE, flat: bool = False) -> float:
    """What the layers reach on average, in percent of their roofs with this rate, or of the rate alone."""
    reached = layers["flops"] / layers["duration_ns"] * 1e9
    roofs = (layers["intensity"] * BANDWIDTH).clip(upper=rate)
    return float((100 * reached / (rate if flat else roofs)).mean())


def longest_matrix_kernel(profile: Profile) -> pd.Series:
    """The row of `roofline_points` that is longest in total among the kernels that use the matrix units most."""
    points = tidyprof.roofline_points(profile)
    return points[points["main_type"].str.startswith("matrix", na=False)].iloc[0]


def share_of_roof(profile: Profile, flat: bool = False) -> float:
    """What this kernel reaches, in percent of the lower of its two roofs, or of the matrix units' peak."""
    row, limits = longest_matrix_kernel(profile), tidyprof.roofline_ceilings(profile).set_index("name")["value"]
    roofs = [limits[row["main_type"]], row["hbm_intensity"] * limits["HBM"]]
    return float(100 * row["flops_per_second"] / (roofs[0] if flat else min(roofs)))


def share_of_all_dispatches(profile: Profile) -> float:
    """What the Speed-of-Light table says of all kernels together."""
    return float(tidyprof.speed_of_light(profile).set_index("metric").at[PRINTED_METRIC, "percent"])


def fabric_bytes(counts: pd.DataFrame | pd.Series, prefix: str = "TCC_EA0") -> pd.Series | float:
    """Bytes through the fabric: reads of 64 bytes, some of 128 or 32, and writes of 32 or 64."""
    read = 64 * counts[f"{prefix}_RDREQ_sum"] - 32 * counts[f"{prefix}_RDREQ_32B_sum"]
    if prefix == "TCC_EA0":
        read = read + 64 * counts["TCC_BUBBLE_sum"]
    return read + 32 * counts[f"{prefix}_WRREQ_sum"] + 32 * counts[f"{prefix}_WRREQ_64B_sum"]


def growth(values: pd.Series) -> float:
    """The second row by the first."""
    return float(values.iloc[1] / values.iloc[0])


def of_first(numerator: str, *parts: str) -> Callable[[pd.DataFrame], float]:
    """A counter of the first kernel by the first of `parts`, less the others."""
    return lambda lds: float(
        lds[numerator].iloc[0] / (lds[parts[0]].iloc[0] - sum(lds[name].iloc[0] for name in parts[1:]))
    )


def true_share(table: pd.DataFrame, units: float | None = None, factor: float = 1.0) -> float:
    """The published F16 rate in percent of `factor` times the true peak of a gfx942 GPU with so many compute units."""
    rows = table.set_index("metric")
    units = units or rows.at["VALU FLOPs", "peak"] / (128 * CLOCK_GHZ)
    return float(100 * rows.at[PRINTED_METRIC, "value"] / (factor * 2048 * units * CLOCK_GHZ))


def share_of_memory(pair: tuple[pd.DataFrame, pd.DataFrame], writes: bool = True, launches: int = 3) -> float:
    """Percent of the measured HBM roof that the first launches together reach, with or without what they write."""
    counts, roofs = pair[0].head(launches), pair[1]
    read = 64 * counts["TCC_EA_RDREQ_sum"] - 32 * counts["TCC_EA_RDREQ_32B_sum"]
    moved = fabric_bytes(counts, "TCC_EA") if writes else read
    reached = moved.sum() / (counts["End_Timestamp"] - counts["Start_Timestamp"]).sum()
    return float(100 * reached / roofs["HBMBw"].iloc[0])


EXERCISES = (
    Exercise(
        id="05.1",
        answer=Number(intensity),
        mistakes=(
            Mistake(lambda layer: intensity(layer, operations=1), "Half of it: multiplying and adding are two."),
            Mistake(lambda layer: intensity(layer, bytes_each=1), "That is per number, of two bytes each."),
            Mistake(lambda layer: intensity(layer, weights_too=False), "The weights have to be read too."),
        ),
        hints=(
            "Count three things: input, `images * channels * size**2`, output with `filters` channels, all weights.",
            "Operations: two for each output number and each weight of *one* filter. Bytes: two for each number.",
        ),
        insight=f"The knees are at {ACHIEVABLE / BANDWIDTH:.0f} and {PEAK / BANDWIDTH:.0f}: where does that put it?",
    ),
    Exercise(
        id="05.2",
        answer=Number(mean_share, unit="percent"),
        mistakes=(
            Mistake(lambda layers: mean_share(layers, flat=True), "That is of the flat roof. Is it always the lower?"),
            Mistake(lambda layers: mean_share(layers, PEAK), "That is with the peak; the achievable rate is asked."),
        ),
        hints=(
            'FLOP/s are `layers["flops"] / layers["duration_ns"] * 1e9`.',
            'The roof of each row is the lower of `ACHIEVABLE` and `layers["intensity"] * BANDWIDTH`.',
            "`.clip(upper=ACHIEVABLE)` is `min` for a whole column. Then take the mean of the shares.",
        ),
        insight=lambda layers: (
            f"With the peak as flat roof it would be {mean_share(layers, PEAK):.1f} %: state which one you mean."
        ),
    ),
    Exercise(
        id="05.3",
        answer=Number(share_of_roof, unit="percent"),
        mistakes=(
            Mistake(lambda profile: share_of_roof(profile, flat=True), "That is of the flat roof. Is it the lower?"),
            Mistake(
                share_of_all_dispatches, "That is of all kernels together: take the row of one kernel in `points`."
            ),
        ),
        hints=(
            "`points` is sorted by total time; `main_type` tells which units a kernel uses most.",
            'The slanted roof is `hbm_intensity` times `limits["HBM"]`, the flat one `limits[...]` of the `main_type`.',
            "Divide `flops_per_second` by the `min` of both, and multiply by 100.",
        ),
        insight=lambda profile: (
            f"All dispatches together show {share_of_all_dispatches(profile):.2f} % of the F16 peak: many of them have "
            "nothing to do with the matrix units."
        ),
    ),
    Exercise(
        id="05.4",
        answer=Number(lambda raw: growth(fabric_bytes(raw)), unit="ratio"),
        mistakes=(
            Mistake(
                lambda raw: growth(raw["TCC_EA0_RDREQ_sum"] + raw["TCC_EA0_WRREQ_sum"]),
                "These are requests. They move 128, 64 or 32 bytes each.",
            ),
            Mistake(
                lambda raw: growth(64 * raw["TCC_EA0_RDREQ_sum"] + 64 * raw["TCC_BUBBLE_sum"]),
                "These are the reads. Writing counts too.",
            ),
        ),
        hints=(
            "Reads: 64 bytes each, 64 more for a `BUBBLE`, 32 less for a `32B`. Writes: 32 bytes, 32 more for a `64B`.",
            "Write `raw[...]` for `c[...]` in the two lines of `read` and `written`, add, and divide the second row by "
            "the first.",
        ),
        insight="The time grew much less, as you saw: such a launch mostly waits for answers.",
    ),
    Exercise(
        id="05.5",
        answer=Number(of_first("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE", "SQ_LDS_BANK_CONFLICT")),
        mistakes=(
            Mistake(of_first("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"), "That is the share of all LDS clocks."),
            Mistake(
                of_first("SQ_LDS_BANK_CONFLICT", "SQ_INSTS_LDS"),
                "That is for each LDS instruction. Even without conflicts, 64 work-items take more than one clock.",
            ),
        ),
        hints=(
            "Without conflicts an access would take `SQ_LDS_IDX_ACTIVE - SQ_LDS_BANK_CONFLICT` clocks.",
            "Divide the clocks of the conflicts by these.",
        ),
        insight="It is a mean: a wavefront has two accesses, of a row without conflicts and of a column, in which 32 "
        "work-items want one bank and wait 31 times.",
    ),
    Exercise(
        id="05.6",
        answer=Number(true_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda table: true_share(table, factor=2), "That is the printed share: its peak is twice the true."
            ),
            Mistake(lambda table: true_share(table, units=304), "That divides by the peak of an MI300X: is it one?"),
        ),
        hints=(
            "The rate was measured, so it stands. Only the peak is to be replaced.",
            "The peak of `VALU FLOPs` is 128 × compute units × clock: that tells the compute units.",
            "The true peak in GFLOP/s is 2048 × compute units × 2.1.",
        ),
        insight=lambda table: (
            f"Twice the {true_share(table, factor=2):.2f} % that was printed. It changes no decision here, "
            "but it would near the roof."
        ),
    ),
    Exercise(
        id="05.7",
        answer=Number(share_of_memory, unit="percent"),
        mistakes=(
            Mistake(lambda pair: share_of_memory(pair, writes=False), "These are the reads alone: a copy writes too."),
            Mistake(lambda pair: share_of_memory(pair, launches=1), "That is the first launch; all three are asked."),
        ),
        hints=(
            "The same formula as before, with other names: `TCC_EA_` for `TCC_EA0_`, and no `TCC_BUBBLE_sum`.",
            "`copies.sum(numeric_only=True)` adds up all launches; the time is the sum of `End_Timestamp` less that of "
            "`Start_Timestamp`.",
            'Bytes per nanosecond are 10⁹ bytes per second: divide by `roofs["HBMBw"].iloc[0]`, times 100.',
        ),
        insight=lambda pair: (
            f"So a plain copy is {'near' if share_of_memory(pair) > 50 else 'far from'} its roof, with not one FLOP: "
            "in a roofline plot it has no place at all. Bytes per second say it."
        ),
    ),
)

"""Exercises of lesson 05, is this kernel near its ceiling?

Each says what it is put to: a layer, AMD's published tables, a run of rocprof-compute made here, or a pair of
recordings to compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts import published_speed_of_light as published
from proflab.parts.roofline_by_hand import BANDWIDTH, HALF, RATES, Convolution, roofs_above

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tidyprof import Profile

FILTERS = 3
"""How many texts for -k may be given in 05.6."""

TIME_SHARE, DISPATCH_SHARE = 1 / 3, 1 / 5
"""Of all kernels, the share of time that the filters of 05.6 must keep, and of dispatches that they may keep."""

PRINTED_METRIC = "MFMA FLOPs (F16)"
"""The row of the published table that 05.4 is about."""


def between_knees(layers: pd.DataFrame) -> int:
    """Layers that are right of the achievable rate's knee and left of the peak's."""
    return right_of_knee(layers, "achievable") - right_of_knee(layers, "peak")


def right_of_knee(layers: pd.DataFrame, rate: str) -> int:
    """Layers whose intensity is above the knee of this rate (a key of RATES)."""
    return int((layers["intensity"] > RATES[rate] / BANDWIDTH).sum())


def longest_matrix_kernel(profile: Profile) -> pd.Series:
    """The row of `roofline_points` that is longest in total among the kernels that use the matrix units most."""
    points = tidyprof.roofline_points(profile)
    return points[points["main_type"].str.startswith("matrix", na=False)].iloc[0]


def share_of_roof(profile: Profile) -> float:
    """What this kernel reaches, in percent of the lower of its two roofs."""
    row = longest_matrix_kernel(profile)
    return float(100 * row["flops_per_second"] / min(roofs_above(row, tidyprof.roofline_ceilings(profile))))


def share_of_flat_roof(profile: Profile) -> float:
    """The same in percent of the matrix units' peak, wherever the kernel stands."""
    row = longest_matrix_kernel(profile)
    return float(100 * row["flops_per_second"] / roofs_above(row, tidyprof.roofline_ceilings(profile))[0])


def share_of_all_dispatches(profile: Profile) -> float:
    """What the Speed-of-Light table says of all kernels together."""
    table = tidyprof.speed_of_light(profile).set_index("metric")
    return float(table.at[PRINTED_METRIC, "percent"])


def true_share(table: pd.DataFrame, compute_units: float | None = None, factor: float = 1.0) -> float:
    """The published F16 rate in percent of `factor` times the true peak of a gfx942 GPU with so many compute units."""
    units = published.compute_units(table)
    scale = factor * (compute_units or units) / units
    return float(100 * table.set_index("metric").at[PRINTED_METRIC, "value"] / (scale * published.true_peak(table)))


def ratio(pair: Sequence[Profile], column: str = "hbm_bytes") -> float:
    """A column of `roofline_points`, summed over kernels: second profile over first."""
    first, second = (tidyprof.roofline_points(profile)[column].sum() for profile in pair)
    return float(second / first)


def filter_shares(profile: Profile, texts: Sequence[str]) -> dict[str, float]:
    """Shares (0-1) of `time` and `dispatches` of the kernels that have one of the texts in their name."""
    events = profile.events
    names = events["name"].astype(str)
    kept = events[[any(text in name for text in texts) for name in names]]
    time = kept["duration_ns"].sum() / events["duration_ns"].sum()
    return {"time": float(time), "dispatches": len(kept) / len(events)}


def filter_problem(answer: Any, profile: Profile) -> str | None:
    """None if `answer` lists a few texts that choose few dispatches with much time, else what is wrong."""
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        return f"A list of texts is asked, this is a {type(answer).__name__}."
    texts = list(answer)
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        return "Each entry is a text with a part of a kernel's name."
    if len(texts) > FILTERS:
        return f"These are {len(texts)} texts; {FILTERS} at most are asked."
    names = profile.events["name"].astype(str)
    for text in texts:
        if not names.str.contains(text, regex=False).any():
            return f"No kernel has `{text}` in its name: that run would be wasted. Capital letters matter."
    shares = filter_shares(profile, texts)
    if shares["dispatches"] > DISPATCH_SHARE:
        return f"These are {100 * shares['dispatches']:.0f} % of the dispatches, which is more than a fifth."
    if shares["time"] < TIME_SHARE:
        return f"These kernels take only {100 * shares['time']:.0f} % of the time."
    return None


def good_filters(profile: Profile) -> list[str]:
    """First words of the names of convolutions and normalisations, the longest kernels first."""
    table = tidyprof.kernels(profile)
    chosen = table[table["category"].isin(["convolution", "normalisation"])]
    return list(chosen["name"].astype(str).str.split("_").str[0].unique()[:FILTERS])


def _without_weights(layer: Convolution) -> float:
    return layer.flops / (layer.bytes - HALF * layer.weights)


EXERCISES = (
    Exercise(
        id="05.1",
        answer=Number(lambda layer: layer.intensity),
        mistakes=(
            Mistake(
                lambda layer: layer.intensity / 2,
                "Half of it: a multiplication with an addition is two operations, and a number has two bytes.",
            ),
            Mistake(
                lambda layer: layer.intensity * HALF,
                "That is per number. Each of them has two bytes in half precision.",
            ),
            Mistake(_without_weights, "The weights have to be read too, and here they are more than the input."),
        ),
        hints=(
            "Count the numbers of the output first. Each needs one multiplication and one addition for each weight "
            "of one filter.",
            "One filter has `channels * filter_width**2` weights. The input has `images * channels * size**2` numbers; "
            "the output has as many channels as there are filters.",
            "Bytes: input, all weights and output, two bytes a number. Then divide operations by bytes.",
        ),
        insight=lambda layer: (
            "Keep it: the next table will tell on which side of a knee that is. At the achievable rate, "
            f"{RATES['achievable'] / 1e12:.0f} TFLOP/s, it would take {1e6 * layer.flops / RATES['achievable']:.1f} µs."
        ),
    ),
    Exercise(
        id="05.2",
        answer=Number(between_knees, relative=0),
        mistakes=(
            Mistake(
                lambda layers: right_of_knee(layers, "achievable"),
                "These are right of the achievable rate's knee; some of them are right of both.",
            ),
            Mistake(
                lambda layers: right_of_knee(layers, "peak"),
                "These are right of both knees: nobody argues about them.",
            ),
        ),
        hints=(
            "They lie on the grey ground of the figure. One of them stands close to its edge: use the numbers.",
            "Compare the column `intensity` of `layers` with the two numbers in `knees()`.",
            '`layers["intensity"].between(low, high)` marks the rows to count.',
        ),
        insight="So a verdict without its knee says little. AMD's workbook uses the lower knee, the text beside it "
        "explains the higher one.",
    ),
    Exercise(
        id="05.3",
        answer=Number(share_of_roof, unit="percent"),
        mistakes=(
            Mistake(
                share_of_flat_roof,
                "That is the share of the flat roof. Is it the lower one at this kernel's intensity?",
            ),
            Mistake(
                share_of_all_dispatches,
                "That is the Speed-of-Light table of all kernels together: take the row of one kernel in `points`.",
            ),
        ),
        hints=(
            "`points` is sorted by total time; `main_type` tells which units a kernel uses most.",
            "The slanted roof is `hbm_intensity` times the bandwidth of HBM, the flat one the rate of `main_type`.",
            '`roofs = ceilings.set_index("name")["value"]`, then divide by `min(roofs[...], ... * roofs["HBM"])`.',
        ),
        insight=lambda profile: (
            f"All dispatches together show {share_of_all_dispatches(profile):.2f} % of the F16 peak: many of them have "
            "nothing to do with the matrix units."
        ),
    ),
    Exercise(
        id="05.4",
        answer=Number(true_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda table: true_share(table, factor=2),
                "That is the printed share: its peak is twice what the GPU has.",
            ),
            Mistake(
                lambda table: true_share(table, factor=0.5),
                "Twice too much: the peak is to be halved once, so the share doubles once.",
            ),
            Mistake(
                lambda table: true_share(table, compute_units=304),
                "That divides by the peak of an MI300X. How many compute units had this GPU?",
            ),
        ),
        hints=(
            "The rate was measured, so it stands. Only the peak is to be replaced.",
            "The true peak: 2,048 operations per compute unit and clock, 228 units, 2,100 million clocks a second.",
            "`2048 * 228 * 2100 / 1000` is the peak in GFLOP/s.",
        ),
        insight=lambda table: (
            f"Twice the {true_share(table, factor=2):.2f} % that was printed. It changes no decision here, "
            "but it would near the roof."
        ),
    ),
    Exercise(
        id="05.5",
        answer=Number(ratio, unit="ratio"),
        mistakes=(
            Mistake(
                lambda pair: ratio(pair, "duration_ns"),
                "That is the ratio of the durations: the time grew much less than the traffic.",
            ),
            Mistake(lambda pair: ratio(pair, "l2_bytes"), "That is between L1 and L2; the fabric comes after."),
            Mistake(lambda pair: ratio(pair, "l1_bytes"), "That is what L1 looked up; the fabric is behind L2."),
        ),
        hints=(
            "The table `traffic` has one row per workload and level.",
            "Reading and writing both count; `bytes` holds their sum.",
            '`traffic.query("level == \'hbm\'")["bytes"]` has the two numbers.',
        ),
        insight=lambda pair: (
            f"The time grew by a factor of {ratio(pair, 'duration_ns'):.1f} only: with so little work a launch comes "
            "nowhere near the memory's bandwidth, and mostly waits for answers."
        ),
    ),
    Exercise(
        id="05.6",
        answer=Property(filter_problem, good_filters),
        mistakes=(
            Mistake(lambda profile: ["batch_norm_of_pytorch"], "that run would be wasted"),
            Mistake(lambda profile: [str(profile.events["name"].iloc[0])[:1]], "of the dispatches"),
            Mistake(lambda profile: [str(tidyprof.kernels(profile)["name"].iloc[-1])], "take only"),
            Mistake(lambda profile: "igemm", "A list of texts is asked"),
        ),
        hints=(
            "Long kernels in few dispatches are wanted: see `mean_ns` and `percent` of `tidyprof.kernels(mine)`.",
            "Kernels of one library begin alike: look at the first word of `name`, not at `short_name`.",
            "Convolutions and normalisations together have enough time.",
        ),
        insight="The tool still runs the whole program once per group of counters. The filter saves the counting, "
        "the files and the averages.",
    ),
)

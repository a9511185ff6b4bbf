"""Exercises of lesson 05, is this kernel near its ceiling?

Each says what it is put to: a layer, AMD's published table, a run of rocprof-compute made here, counters of a
recording as its CSV file has them, or the kernel tables of two runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping

import pandas as pd

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property, Text
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


ONE_KERNEL = "BatchNormFwd"
"""What the name of the forward batch normalisation contains, and no other: MIOpenBatchNormFwdTrainSpatial."""

RIGHT_COMMAND = f"rocprof-compute profile --name norm --no-roof -b 2 10 -k {ONE_KERNEL} -- $CASE --max-steps 2"


def values_of(option: str, words: list[str]) -> list[str]:
    """What stands behind an option, up to the next one."""
    if option not in words:
        return []
    rest = words[words.index(option) + 1 :]
    return rest[: next((place for place, word in enumerate(rest) if word.startswith("-")), len(rest))]


def command_problem(command: object, launched: pd.DataFrame) -> str | None:
    """What is wrong with a command that should count one kernel of the case, or None."""
    if not isinstance(command, str):
        return "A command line is asked, as a text."
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"The shell can't read it: {error}."
    return next(problems_of(words, launched["name"]), None)


def problems_of(words: list[str], names: pd.Series) -> Iterator[str]:
    """All that is wrong, the worst first."""
    if words[:2] != ["rocprof-compute", "profile"]:
        yield "It begins with `rocprof-compute profile`."
    if "--" not in words:
        yield "`--` has to stand between the tool's options and the program."
        return
    own, program = words[: words.index("--")], words[words.index("--") + 1 :]
    if "-k" in program:
        yield "Behind `--` everything belongs to the training: `-k` stands before it."
    wanted = values_of("-k", own)
    if not wanted:
        yield f"Without `-k` all {len(names):,} dispatches are counted: which of them are asked?"
        return
    kept = names[names.str.contains("|".join(map(re.escape, wanted)))]
    if not len(kept):
        yield f"No kernel has {' or '.join(wanted)} in its name. Capitals matter, and operators are named differently."
    others = kept[~kept.str.contains(ONE_KERNEL)]
    if len(others):
        yield f"It keeps {len(others):,} dispatches of other kernels, too, such as {others.iloc[0][:40]}."
    if "--max-steps" not in program:
        yield "The whole training would run, once for each group of counters: add `--max-steps 2`."
    if program[:1] != ["$CASE"] and "cifar_train" not in program:
        yield "The program is missing: `$CASE` stands behind `--`."
    if values_of("-b", own) != ["2", "10"]:
        yield "`-b 2 10` says which blocks to count; without it all are, in many more runs."
    if values_of("--name", own) != ["norm"] or "--no-roof" not in own:
        yield "`--name norm` and `--no-roof` are missing."


def without(part: str, instead: str = "") -> Callable[[pd.DataFrame], str]:
    """The right command without one part, or with another one in its place."""
    return lambda launched: " ".join(RIGHT_COMMAND.replace(part, instead).split())


def share_of_roof(profile: Profile, flat: bool = False, moved: float = 1.0) -> float:
    """What the longest kernel reaches, in percent of the lower of its two roofs, or of the vector units' peak.

    `moved` is the part of the bytes that is counted.
    """
    row, limits = tidyprof.roofline_points(profile).iloc[0], tidyprof.roofline_ceilings(profile)
    known = limits.set_index("name")["value"]
    roofs = [known["vector fp32"], row["flops"] / (moved * row["hbm_bytes"]) * known["HBM"]]
    return float(100 * row["flops"] / (row["duration_ns"] / 1e9) / (roofs[0] if flat else min(roofs)))


def fabric_bytes(counts: pd.DataFrame | pd.Series, prefix: str = "TCC_EA0") -> pd.Series | float:
    """Bytes through the fabric: reads of 64 bytes, some of 128 or 32, and writes of 32 or 64."""
    read = 64 * counts[f"{prefix}_RDREQ_sum"] - 32 * counts[f"{prefix}_RDREQ_32B_sum"]
    if prefix == "TCC_EA0":
        read = read + 64 * counts["TCC_BUBBLE_sum"]
    return read + 32 * counts[f"{prefix}_WRREQ_sum"] + 32 * counts[f"{prefix}_WRREQ_64B_sum"]


def growth(values: pd.Series) -> float:
    """The kernel with the stride by the coalesced one."""
    return float(values["stride"] / values["coalesced"])


def block_shares(pair: tuple[pd.DataFrame, pd.DataFrame]) -> pd.Series:
    """Of the kernel with bank conflicts: percent of the peak by block, LDS by its busy clocks."""
    kernel, shares = pair[0].loc["conflict"], pair[1].set_index("block")["conflict"]
    shares = shares[["vL1D", "L2", "fabric"]].astype(float)
    shares["LDS"] = 100 * kernel["SQ_LDS_IDX_ACTIVE"] / (kernel["clocks"] * kernel["CUs"])
    return shares


def not_the_nearest(block: str, why: str) -> Mistake:
    """Another block than the nearest."""
    return Mistake(
        lambda _: block,
        lambda pair: (
            f"{block} is at {block_shares(pair)[block]:.0f} %, LDS at {block_shares(pair)['LDS']:.0f} %. {why}"
        ),
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


def mean_share_of_memory(pair: tuple[pd.DataFrame, pd.DataFrame]) -> float:
    """The mean of what each launch reaches by itself."""
    each = [share_of_memory((pair[0].iloc[[place]], pair[1])) for place in range(len(pair[0]))]
    return sum(each) / len(each)


def grown_ns(pair: tuple[pd.DataFrame, pd.DataFrame]) -> pd.Series:
    """How much longer each kernel is in total in the second run, by name, the largest first."""
    before, after = (table.set_index("name")["total_ns"].astype(float) for table in pair)
    return after.sub(before, fill_value=0).sort_values(ascending=False)


def names_of(pair: tuple[pd.DataFrame, pd.DataFrame], name: str) -> list[str]:
    """A kernel's name in full and in the ways in which a table shows it."""
    both = pd.concat(pair)
    short = both.loc[both["name"] == name, "short_name"].iloc[0]
    return [short, name, short.split()[0]]


def longest(table: pd.DataFrame, text: str = "") -> str:
    """The name of the longest kernel whose name contains a text."""
    return str(table[table["name"].str.contains(text)].sort_values("total_ns")["name"].iloc[-1])


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
        answer=Property(command_problem, lambda launched: RIGHT_COMMAND),
        mistakes=(
            Mistake(
                without(f"-k {ONE_KERNEL}"),
                lambda launched: f"Without `-k` all {len(launched):,} dispatches are counted: which of them are asked?",
            ),
            Mistake(
                without("--max-steps 2"),
                "The whole training would run, once for each group of counters: add `--max-steps 2`.",
            ),
            Mistake(
                without(ONE_KERNEL, "batch_norm"),
                "No kernel has batch_norm in its name. Capitals matter, and operators are named differently.",
            ),
            Mistake(
                lambda launched: f"rocprof-compute profile --name norm --no-roof -b 2 10 -- $CASE -k {ONE_KERNEL}",
                "Behind `--` everything belongs to the training: `-k` stands before it.",
            ),
            Mistake(without("-b 2 10"), "`-b 2 10` says which blocks to count; without it all are, in many more runs."),
        ),
        hints=(
            "Take the first command of this lesson. Only the name and the filter change.",
            "The table of options has the filter; the loop over texts shows what keeps normalisations.",
            f"Forward passes have `Fwd` in their name: `-k {ONE_KERNEL}`.",
        ),
        insight="Fewer dispatches to count, in as many runs: the number of runs depends on the counters.",
    ),
    Exercise(
        id="05.3",
        answer=Number(share_of_roof, unit="percent"),
        mistakes=(
            Mistake(lambda profile: share_of_roof(profile, flat=True), "That is of the flat roof. Is it the lower?"),
            Mistake(
                lambda profile: share_of_roof(profile) / tidyprof.roofline_points(profile)["calls"].iloc[0],
                "You divided by the calls once more: `duration_ns` is the sum over all of them, like the bytes.",
            ),
            Mistake(
                lambda profile: share_of_roof(profile, moved=0.5),
                "That is half of the bytes: a normalisation reads and writes.",
            ),
        ),
        hints=(
            'The slanted roof is `point.flops / point.hbm_bytes` times `limits["HBM"]`.',
            "FLOP/s are `point.flops / (point.duration_ns / 1e9)`.",
            "Divide them by the `min` of both roofs, and multiply by 100.",
        ),
        insight="Under the slanted roof this is the same as bytes per second by the bandwidth: the operations cancel.",
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
            Mistake(
                lambda raw: 1 / growth(fabric_bytes(raw)),
                "That is the coalesced kernel by the other one: turn the fraction round.",
            ),
        ),
        hints=(
            "Reads: 64 bytes each, 64 more for a `BUBBLE`, 32 less for a `32B`. Writes: 32 bytes, 32 more for a `64B`.",
            "Write `raw[...]` for `c[...]` in the two lines of `read` and `written`, add, and divide the second row by "
            "the first.",
        ),
        insight=lambda raw: (
            f"The time grew {growth(raw['End_Timestamp'] - raw['Start_Timestamp']):.1f} times, much less: so small a "
            "launch mostly waits for answers."
        ),
    ),
    Exercise(
        id="05.5",
        answer=Text(lambda pair: str(block_shares(pair).idxmax())),
        mistakes=(
            not_the_nearest("fabric", "The row of LDS in table 2.1 counts bytes, and not the clocks of conflicts."),
            not_the_nearest("L2", "It is not even the first of the table."),
            not_the_nearest("vL1D", "That is where the bytes of LDS come from."),
        ),
        hints=(
            "`nearest` has the shares of vL1D, L2 and fabric. Only that of LDS has to be computed.",
            'Divide `SQ_LDS_IDX_ACTIVE` by `clocks` times `CUs`, all of `raw.loc["conflict"]`, times 100.',
        ),
        insight=lambda pair: (
            f"LDS is busy {block_shares(pair)['LDS']:.0f} % of the clocks, and "
            f"{100 * pair[0].at['conflict', 'SQ_LDS_BANK_CONFLICT'] / pair[0].at['conflict', 'SQ_LDS_IDX_ACTIVE']:.0f} "
            "% of that are conflicts. Still far from a limit: the launch is small."
        ),
    ),
    Exercise(
        id="05.6",
        answer=Number(true_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda table: true_share(table, factor=2), "That is the printed share: its peak is twice the true."
            ),
            Mistake(lambda table: true_share(table, units=304), "That divides by the peak of an MI300X: is it one?"),
            Mistake(
                lambda table: true_share(table, factor=2, units=304),
                "That is the doubled peak, and of an MI300X: is it one?",
            ),
        ),
        hints=(
            "The rate was measured, so it stands. Only the peak is to be replaced.",
            "The peak of `VALU FLOPs` is 128 × compute units × clock: that tells the compute units.",
            "The true peak in GFLOP/s is 2048 × compute units × 2.1.",
        ),
        insight=lambda table: (
            f"Twice the {true_share(table, factor=2):.2f} % that was printed. Here both say the same: far from the "
            "roof. Near it a factor of two would decide."
        ),
    ),
    Exercise(
        id="05.7",
        answer=Number(share_of_memory, unit="percent", relative=0.002),
        mistakes=(
            Mistake(
                mean_share_of_memory,
                "That is the mean of three ratios, where a short launch counts as much as a long one. Together they "
                "moved the sum of the bytes in the sum of the times: divide those.",
            ),
            Mistake(lambda pair: share_of_memory(pair, writes=False), "These are the reads alone: a copy writes too."),
            Mistake(lambda pair: share_of_memory(pair, launches=1), "That is the first launch; all three are asked."),
            Mistake(
                lambda pair: share_of_memory(pair) / 100,
                "That is the fraction: the answer is asked in percent.",
            ),
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
    Exercise(
        id="05.8",
        answer=Text(lambda pair: names_of(pair, grown_ns(pair).index[0])),
        mistakes=(
            Mistake(
                lambda pair: longest(pair[0], "batched_transpose"),
                "The transposes are gone: that is the gain. Which kernel costs more than they did?",
            ),
            Mistake(lambda pair: longest(pair[0]), "That was the largest before. It isn't in the second table at all."),
            Mistake(
                lambda pair: longest(pair[1], "igemm"),
                "A convolution is large in both tables: what counts is how much it grew.",
            ),
            Mistake(
                lambda pair: grown_ns(pair).index[1],
                lambda pair: (
                    f"It grew by {grown_ns(pair).iloc[1] / 1e6:.1f} ms in three steps, another one by "
                    f"{grown_ns(pair).iloc[0] / 1e6:.1f} ms."
                ),
            ),
        ),
        hints=(
            "Put the totals of both tables beside each other, by name.",
            '`set_index("name")["total_ns"]` of each; then `.sub(other, fill_value=0)` is the growth.',
            "`.idxmax()` gives the name of the largest.",
        ),
        insight=lambda pair: (
            f"All kernels that grew cost {grown_ns(pair).clip(lower=0).sum() / 1e6:.1f} ms more in three steps, those "
            f"that shrank save {-grown_ns(pair).clip(upper=0).sum() / 1e6:.1f} ms."
        ),
    ),
)

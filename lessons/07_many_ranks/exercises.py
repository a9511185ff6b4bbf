"""The exercises of lesson 07: file names of ranks, gradient buckets, the straggler, waiting, and binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tidyprof
from proflab.exercises.answers import Number, Property
from proflab.exercises.model import Exercise, Mistake
from proflab.parts.node_topology import Node, binding_problem, cpu_bind, example_binding
from proflab.parts.rank_names import naming_problem

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

OPEN_MPI_PATTERN = "rank%env{OMPI_COMM_WORLD_RANK}%_pid%pid%"
"""A good name under mpirun, in a Slurm job or not."""


def parameters(buckets: pd.DataFrame) -> int:
    """Gradients in all buckets of one step: one for each parameter of the model."""
    return int(buckets.loc[buckets["step"] == buckets["step"].iloc[0], "elements"].sum())


def bucket_bytes(buckets: pd.DataFrame) -> int:
    """The same in bytes."""
    return int(buckets.loc[buckets["step"] == buckets["step"].iloc[0], "bytes"].sum())


def largest_bucket(buckets: pd.DataFrame) -> pd.Series:
    """The bucket with the most bytes, the first of equals."""
    return buckets.loc[buckets["bytes"].idxmax()]


def bucket_rate(buckets: pd.DataFrame, time: str = "transfer_ns", size: str = "bytes") -> float:
    """Bytes of the largest bucket by its time, in GB/s: bytes per nanosecond are GB per second."""
    bucket = largest_bucket(buckets)
    return float(bucket[size] / bucket[time])


def straggler(profile: Profile) -> int:
    """The rank whose collectives took the least time in all. Raises ValueError without collectives of several ranks."""
    return _rank_of(profile, longest=False)


def longest_in_collectives(profile: Profile) -> int:
    """The rank whose collectives took the most time."""
    return _rank_of(profile, longest=True)


def _rank_of(profile: Profile, longest: bool) -> int:
    each = tidyprof.collectives(profile, per_rank=True)
    totals = each.groupby("rank")["duration_ns"].sum()
    return int(totals.idxmax() if longest else totals.idxmin())


def straggler_device(profile: Profile) -> int:
    """The number that the file gives to the straggler's GPU, which counts processors too."""
    table = tidyprof.ranks(profile)
    return int(table.loc[table["rank"] == straggler(profile), "device"].iloc[0])


def waiting_share(
    profile: Profile, part: str = "wait_ns", whole: tuple[str, ...] = ("wait_ns", "transfer_ns")
) -> float:
    """What share of rank 0's time in collectives passes before the last rank has entered, in percent."""
    row = tidyprof.ranks(profile).set_index("rank").loc[0]
    return float(100 * row[part] / sum(row[column] for column in whole))


def waiting_share_of_all(profile: Profile) -> float:
    """The same over all ranks, the straggler included."""
    table = tidyprof.ranks(profile)
    return float(100 * table["wait_ns"].sum() / (table["wait_ns"].sum() + table["transfer_ns"].sum()))


def in_order(node: Node) -> list[str]:
    """The wrong binding that gives the cores to the ranks in ascending order."""
    return sorted(example_binding(node), key=lambda text: int(text.split("-")[0]))


EXERCISES = (
    Exercise(
        id="07.1",
        answer=Property(naming_problem, lambda launcher: OPEN_MPI_PATTERN),
        mistakes=(
            Mistake(lambda launcher: "rank%rank%", "All 4 ranks write `rank0`"),
            Mistake(lambda launcher: "rank%rank%_%pid%", "two nodes count alike"),
            Mistake(lambda launcher: "rank%env{RANK}%", "All 4 ranks write `rank`"),
            Mistake(lambda launcher: "%hostname%_%pid%", "none tells its rank"),
        ),
        hints=(
            "The rows of this launcher show what it sets and what it inherits.",
            "`%rank%` looks at Slurm's variable first. The job script has it, with the value 0, and what mpirun starts "
            "inherits it.",
            "`%env{NAME}%` takes any variable; Open MPI's begin with `OMPI_COMM_WORLD_`.",
        ),
        insight="Keep `%pid%` too: a rank may start further processes. And count the files after every run.",
    ),
    Exercise(
        id="07.2",
        answer=Number(parameters, relative=0),
        mistakes=(
            Mistake(
                bucket_bytes,
                "Four times too many: these are bytes, or four ranks added up. Each rank has the whole model.",
            ),
            Mistake(
                lambda data: largest_bucket(data)["elements"],
                "That is the largest bucket alone; the model's gradients are in all buckets together.",
            ),
            Mistake(
                lambda data: parameters(data) - data["elements"].iloc[0],
                "The first bucket is missing: it is small, so that the exchange can begin early.",
            ),
        ),
        hints=(
            "Each parameter has one gradient, and each gradient is in one bucket.",
            "The column is `elements`.",
            '`buckets["elements"].sum()`',
        ),
        insight=lambda data: (
            f"{bucket_bytes(data) / 1e6:.2f} MB of gradients cross the links in every step, whatever the batch size."
        ),
    ),
    Exercise(
        id="07.3",
        answer=Number(bucket_rate, unit="GB/s"),
        mistakes=(
            Mistake(
                lambda data: bucket_rate(data, "longest_ns"),
                "You divided by the length of the kernel on the rank that waits longest: most of it is waiting.",
            ),
            Mistake(
                lambda data: bucket_rate(data, size="elements"),
                "These are elements per nanosecond: take the bytes.",
            ),
            Mistake(
                lambda data: bucket_bytes(data) / data["transfer_ns"].sum(),
                "That is the mean over all buckets. Small ones are slower: ask for the largest alone.",
            ),
        ),
        hints=(
            "The exchange lasts from the entry of the last rank to the end: `transfer_ns`.",
            "Bytes per nanosecond are GB per second.",
            '`big = buckets.loc[buckets["bytes"].idxmax()]`, then `big["bytes"] / big["transfer_ns"]`.',
        ),
        insight=lambda data: (
            f"By the kernel's own length it would be {bucket_rate(data, 'longest_ns'):.1f} GB/s. The links carry more "
            "than either number says: on its way round, a gradient crosses several of them."
        ),
    ),
    Exercise(
        id="07.4",
        answer=Number(straggler, relative=0),
        mistakes=(
            Mistake(
                longest_in_collectives,
                "That rank has the longest collectives: it came early, and waited. Who kept it waiting?",
            ),
            Mistake(straggler_device, "That is the number of its GPU in the file, which counts processors too."),
        ),
        hints=(
            "In the heat map a dot marks the rank that entered last.",
            "The rank that comes last does not wait: its collectives are the shortest.",
            '`each.groupby("rank")["duration_ns"].sum().idxmin()`',
        ),
        insight=lambda data: str(tidyprof.ranks(data).attrs["evidence"]),
    ),
    Exercise(
        id="07.5",
        answer=Number(waiting_share, unit="percent", relative=0.002),
        mistakes=(
            Mistake(
                lambda data: waiting_share(data, "transfer_ns"), "This is the exchange. The waiting is the other part."
            ),
            Mistake(waiting_share_of_all, "This is over all ranks, the straggler too. Only rank 0 is asked."),
            Mistake(
                lambda data: waiting_share(data, whole=("total_ns",)),
                "This is the share of all recorded time; the time in collectives is asked.",
            ),
        ),
        hints=(
            "`tidyprof.ranks(run)` has a row for each rank.",
            "A collective's time is `wait_ns` plus `transfer_ns`.",
            'Of the row with rank 0: `100 * row["wait_ns"] / (row["wait_ns"] + row["transfer_ns"])`.',
        ),
        insight="A faster network could shorten only the rest.",
    ),
    Exercise(
        id="07.6",
        answer=Property(binding_problem, example_binding),
        mistakes=(
            Mistake(in_order, "read the table by GPU"),
            Mistake(lambda node: [text.split("-")[0] for text in example_binding(node)], "with its loader processes"),
            Mistake(lambda node: [example_binding(node)[0]] * len(node.cores), "read the table by GPU"),
            Mistake(lambda node: [f"{first}-{last}" for first, last in node.cores], "is reserved for the system"),
            Mistake(lambda node: example_binding(node)[:-1], "one entry each"),
        ),
        hints=(
            "Local rank 0 uses GPU 0: find the cores of that row, leave out the reserved one.",
            "The cores do not ascend with the GPU's number.",
            "On LUMI the list can begin with `49-55`, `57-63`.",
        ),
        insight=lambda node: f"One right answer as the launcher's option: `{cpu_bind(example_binding(node), node)}`.",
    ),
)

"""Exercises of lesson 17, sharded training: bytes and memory by hand, and a published run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number

if TYPE_CHECKING:
    import pandas as pd

MIB = 2**20


def once_mb(facts: dict[str, Any]) -> float:
    """What a rank sends when everything is gathered once, in MB: float32, without its own part."""
    return (facts["ranks"] - 1) / facts["ranks"] * 4 * facts["parameters"] / 1e6


def held_mb(facts: dict[str, Any], copies: int = 3, shared: bool = True) -> float:
    """`copies` numbers of four bytes for each parameter, in MB, on one rank."""
    return copies * 4 * facts["parameters"] / 1e6 / (facts["ranks"] if shared else 1)


def rate(published: pd.DataFrame, parts: float = 7, unit: float = 1e9) -> float:
    """Of the gather of a layer: so many parts of a rank over its time."""
    row = published.iloc[0]
    return float(parts * row["in_mib"] * MIB / (row["transfer_us"] * 1e-6) / unit)


def of_total(run: pd.Series, column: str) -> float:
    """A column's share of the whole time, in percent."""
    return float(100 * run[column] / run["total_ms"])


EXERCISES = (
    Exercise(
        id="17.1",
        answer=Number(lambda facts: 3 * once_mb(facts), unit="MB"),
        mistakes=(
            Mistake(
                lambda facts: 2 * once_mb(facts),
                "That is what DDP sends. FSDP gathers a layer twice. When?",
            ),
            Mistake(
                once_mb, "That is one gather of everything. Which other transfers does a step have?"
            ),
            Mistake(
                lambda facts: 12 * facts["parameters"] / 1e6,
                "A rank has its own part already: of each transfer (N-1)/N is sent.",
            ),
        ),
        hints=(
            "Count the transfers of a layer: before forward, before backward, and the gradients.",
            "`3 * (ranks - 1) / ranks * 4 * parameters`, in MB.",
        ),
        insight=(
            "Half as much again as DDP: that is what it costs to give the parameters back after the"
            " forward pass."
        ),
    ),
    Exercise(
        id="17.2",
        answer=Number(held_mb, unit="MB"),
        mistakes=(
            Mistake(
                lambda facts: held_mb(facts, shared=False),
                "That is DDP: under FSDP each rank keeps 1/N of it.",
            ),
            Mistake(
                lambda facts: held_mb(facts, copies=2),
                "Three numbers for each parameter: the gradients, too.",
            ),
            Mistake(
                lambda facts: held_mb(facts, copies=4),
                "Four numbers for each parameter? Adam has two states, this optimizer has one. Or"
                " is it one gathered layer besides? At the end of the backward pass layers are"
                " given back.",
            ),
        ),
        hints=("Parameter, gradient, momentum: four bytes each.", "Divide by the number of ranks."),
        insight=(
            "With Adam it is 16 bytes a parameter, shared by all ranks. Activations come on top,"
            " unshared."
        ),
    ),
    Exercise(
        id="17.3",
        answer=Number(rate, unit="GB/s", relative=0.01),
        mistakes=(
            Mistake(
                lambda published: rate(published, 7 / 8),
                "`in_mib` is one rank's part. All eight are gathered: a rank gets seven others.",
            ),
            Mistake(
                lambda published: float(published["tool_bus"].iloc[0]),
                "That is the tool's own column. It takes one rank's part for the whole: work it out"
                " from `in_mib` and `transfer_us`.",
            ),
            Mistake(
                lambda published: rate(published) * 1e6 / MIB,
                "You took a MiB for 10^6 bytes. It has 2**20.",
            ),
            Mistake(
                lambda published: rate(published, 1),
                "That is one part. A rank gets those of seven others.",
            ),
            Mistake(
                lambda published: rate(published, 8), "One of the eight parts is there already."
            ),
            Mistake(
                lambda published: rate(published, 7, 2**30),
                "You divided by 1024 three times; links are rated in 10^9 bytes a second.",
            ),
        ),
        hints=("Seven parts of `in_mib` MiB in `transfer_us`.", "A MiB is 2**20 bytes."),
        insight=(
            "The tool's column has a value eight times lower, in GiB: it takes a part for the"
            " whole. Gather and reduce-scatter are about equally fast."
        ),
    ),
    Exercise(
        id="17.4",
        answer=Number(
            lambda run: of_total(run, "exposed_communication_ms"), unit="%", relative=0.02
        ),
        mistakes=(
            Mistake(
                lambda run: of_total(run, "communication_ms"),
                "Nearly all of it runs beside computation. Only what is exposed could be saved.",
            ),
            Mistake(
                lambda run: of_total(run, "exposed_communication_ms") + of_total(run, "idle_ms"),
                "No link cures the time in which nothing runs at all.",
            ),
        ),
        hints=("Communication beside computation costs no time of its own.",),
        insight=lambda run: (
            f"Before anybody buys links: rank 4 comes last in {run['arrived_last']:.0f} of"
            f" {run['calls']:.0f} collectives. Why is it slower?"
        ),
    ),
)

"""Exercises of lesson 17: the bytes and memory of sharded training, and a published run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number

if TYPE_CHECKING:
    import pandas as pd


def once_mb(facts: dict[str, Any]) -> float:
    """Return what a rank sends for one gather of all float32 parameters, in MB."""
    return (facts["ranks"] - 1) / facts["ranks"] * held_mb(facts, 1, 1)


def held_mb(facts: dict[str, Any], copies: int = 3, parts: int | None = None) -> float:
    """Return the size of `copies` numbers of 4 bytes per parameter, in MB, split into `parts`."""
    return copies * 4 * facts["parameters"] / 1e6 / (parts or facts["ranks"])


def rate(published: pd.DataFrame, parts: float = 7, mib: int = 2**20) -> float:
    """Return the bandwidth in GB/s at which `parts` ranks' parts of a layer are gathered."""
    row = published.iloc[0]
    return float(parts * row["in_mib"] * mib / row["transfer_us"] / 1e3)


EXERCISES = (
    Exercise(
        id="17.1",
        answer=Number(lambda facts: 3 * once_mb(facts), unit="MB"),
        mistakes=(
            Mistake(
                lambda facts: 2 * once_mb(facts),
                "You counted two transfers, which is what DDP sends. Under FSDP, each layer is"
                " gathered twice, so add the second gather.",
            ),
            Mistake(
                once_mb,
                "You counted one transfer, or only 1/N of the data in three. A rank makes three"
                " transfers of (N-1)/N each: two gathers and a reduce-scatter.",
            ),
            Mistake(
                lambda facts: held_mb(facts, parts=1),
                "You counted three transfers of all the data. A rank already has its own part, so"
                " multiply by (N-1)/N.",
            ),
        ),
        hints=(
            "Count the transfers of a layer: before its forward pass, before its backward pass, and"
            " for its gradients.",
            "Compute `3 * (ranks - 1) / ranks * 4 * parameters` and convert it to MB.",
        ),
        insight=(
            "FSDP sends 1.5 times as much data as DDP, because it frees the parameters after the"
            " forward pass and gathers them again."
        ),
    ),
    Exercise(
        id="17.2",
        answer=Number(held_mb, unit="MB"),
        mistakes=(
            Mistake(
                lambda facts: held_mb(facts, parts=1),
                "You computed the memory of DDP, where every rank holds the whole model. Under"
                " FSDP, divide it by the number of ranks.",
            ),
            Mistake(
                lambda facts: held_mb(facts, copies=2),
                "You counted two numbers per parameter. A rank holds three: parameter, gradient and"
                " momentum.",
            ),
            Mistake(
                lambda facts: held_mb(facts, copies=4),
                "You counted a fourth number per parameter or one gathered layer. SGD with momentum"
                " has only one state, and FSDP frees gathered layers by the end of the backward"
                " pass.",
            ),
        ),
        hints=(
            "Add 4 bytes each for the parameter, the gradient and the momentum.",
            "Divide by the number of ranks.",
        ),
        insight=(
            "With Adam, a rank would hold 16 bytes per parameter, divided by the number of ranks."
            " Activations come on top, because FSDP doesn't shard them."
        ),
    ),
    Exercise(
        id="17.3",
        answer=Number(rate, unit="GB/s", relative=0.01),
        mistakes=(
            Mistake(
                lambda published: rate(published, 7 / 8),
                "You treated `in_mib` as the size of the whole message and multiplied it by 7/8."
                " It is the size of one rank's part, so multiply it by the seven parts that each"
                " rank receives.",
            ),
            Mistake(
                lambda published: float(published["tool_bus"].iloc[0]),
                "You used the tool's own column, which mistakes one rank's part for the whole"
                " message. Compute the bandwidth from `in_mib` and `transfer_us`.",
            ),
            Mistake(
                lambda published: rate(published, mib=10**6),
                "You converted each MiB into 10^6 bytes. Use 2**20 bytes per MiB.",
            ),
            Mistake(
                lambda published: rate(published, 1),
                "You counted only one rank's part. Each rank receives seven of these parts.",
            ),
            Mistake(
                lambda published: rate(published, 8),
                "You counted all eight parts. A rank already has its own, so only seven are sent.",
            ),
        ),
        hints=(
            "Divide the size of seven parts (`in_mib` each) by `transfer_us`.",
            "Convert first: a MiB is 2**20 bytes, and a microsecond is 10**-6 s.",
        ),
        insight=(
            "The tool's column is too low by a factor of about eight, because the tool mistakes one"
            " rank's part for the whole message. Gather and reduce-scatter are about equally fast."
        ),
    ),
    Exercise(
        id="17.4",
        answer=Number(lambda run: run["exposed_communication_ms"] / 2, unit="ms"),
        mistakes=(
            Mistake(
                lambda run: run["exposed_communication_ms"],
                "You gave the exposed time of both recorded steps. Divide it by two.",
            ),
            Mistake(
                lambda run: run["communication_ms"] / 2,
                "You used all communication, but nearly all of it is hidden behind computation."
                " Only the exposed part can be saved.",
            ),
            Mistake(
                lambda run: (run["exposed_communication_ms"] + run["idle_ms"]) / 2,
                "You added the idle time. Nothing runs during that time, so faster communication"
                " doesn't shorten it.",
            ),
        ),
        hints=(
            "Find the column for communication that doesn't overlap with computation.",
            "Divide `exposed_communication_ms` by the number of steps.",
        ),
        insight=lambda run: (
            f"That is {100 * run['exposed_communication_ms'] / run['total_ms']:.1f}% of a step."
            " Before anyone buys faster links, find out why rank 4 is slower: it arrives last in"
            f" {run['arrived_last']:.0f} of {run['calls']:.0f} collectives."
        ),
    ),
)

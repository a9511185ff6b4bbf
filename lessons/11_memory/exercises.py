"""Exercises of lesson 11, memory: on shapes, a GPU's log and the allocator's snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.snapshots import play_requests

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

MEBIBYTE = 2**20
STEPS = 3
"""Of the modeled trainer."""

PARAMETERS = 8e9
PARAMETERS_BYTES = PARAMETERS * 2
"""In float16."""

GB_IN_GIB = 1e9 / 2**30

NAMED_BYTES = 192e9
"""Of an MI300X, as its data sheet names them."""

Requests = tuple[Sequence[tuple[int, bool]], int, int]
"""Requests (bytes, whether it stays), the last one, and the device, in bytes."""


def training_mib(in_float32: Sequence[int], bytes_of_each: int) -> float:
    """MiB of training with so many bytes for each parameter, gradient and states included."""
    return sum(in_float32) / 4 * bytes_of_each / MEBIBYTE


def used_by_the_first(logs: Profile) -> pd.Series:
    """`memory_used` of GPU 0, bytes."""
    return logs.counters.query("name == 'memory_used' and device == 0")["value"]


def total_of_the_first(logs: Profile) -> float:
    """`memory_total` of GPU 0, bytes."""
    return float(logs.counters.query("name == 'memory_total' and device == 0")["value"].max())


def by_line(profile: Profile) -> pd.Series:
    """Bytes that are in use, by the line that took them."""
    return tidyprof.memory_blocks(profile).groupby("source_line", observed=True)["bytes"].sum()


def leak(data: tuple[Profile, Profile]) -> tuple[str, float]:
    """The line that keeps more in the second run than in the first, and MiB of that in each step.

    Raises ValueError where no line does.
    """
    healthy, growing = data
    grown = by_line(growing).sub(by_line(healthy), fill_value=0)
    if grown.max() <= 0:
        raise ValueError("no line keeps more in the second snapshot than in the first")
    return str(grown.idxmax()), float(grown.max()) / STEPS / MEBIBYTE


def leak_problem(answer: Any, data: tuple[Profile, Profile]) -> str | None:
    """What is wrong with a line and MiB a step; None if both are right."""
    if (
        not isinstance(answer, tuple | list)
        or len(answer) != 2
        or not isinstance(answer[1], int | float)
    ):
        return "A pair is asked: the line as text, and MiB in each step."
    line, mib = leak(data)
    if not (answer[0] and line.endswith(str(answer[0]))):
        known = by_line(data[1])
        if answer[0] not in known:
            return (
                f"No block has the line {answer[0]!r}: take a text of `source_line` as it stands."
            )
        most = " has the most bytes of all, but" if answer[0] == known.idxmax() else ""
        return f"That line{most} has as much in the healthy run. Subtract the two."
    for factor, words in (
        (1, None),
        (STEPS, f"The line is right. So much is left after {STEPS} steps: how much in each?"),
        (
            STEPS * MEBIBYTE,
            f"The line is right. These are bytes, of {STEPS} steps; MiB of each are asked.",
        ),
        (MEBIBYTE, "The line is right. These are bytes, MiB are asked."),
        (MEBIBYTE / 1e6, "The line is right. These are MB, MiB are asked: divide by 2**20."),
    ):
        if abs(answer[1] / (factor * mib) - 1) < 0.01:
            return words
    return (
        "The line is right. Its bytes are not: add up `bytes` of its blocks, and divide by the"
        " steps."
    )


def played(data: Requests, first: bool | None = True) -> pd.DataFrame:
    """The blocks at the end, with what stays (True), or what goes (False), first; in the order
    given if None.
    """
    requests, last, capacity = data
    ordered = list(requests) if first is None else sorted(requests, key=lambda one: one[1] != first)
    return tidyprof.memory_blocks(play_requests(ordered, last, capacity, name="judged"))


def reserved_mib(data: Requests, first: bool | None = True) -> float:
    """MiB reserved at the end; `first` as in `played`."""
    return played(data, first)["bytes"].sum() / MEBIBYTE


def _active_mib(data: Requests) -> float:
    blocks = played(data)
    return blocks.loc[blocks["state"] == "active_allocated", "bytes"].sum() / MEBIBYTE


EXERCISES = (
    Exercise(
        id="11.1",
        answer=Number(lambda data: training_mib(data, 2 + 2 + 4 + 4), unit="MiB"),
        mistakes=(
            Mistake(
                lambda data: training_mib(data, 4 * 4),
                "That is everything in float32. Parameters and gradients have 2 bytes here.",
            ),
            Mistake(
                lambda data: training_mib(data, 2 + 2 + 4),
                "Adam has two states for each parameter, and each of them has 4 bytes here.",
            ),
            Mistake(
                lambda data: training_mib(data, 2 + 4 + 4),
                "The gradients are missing: 2 bytes more for each.",
            ),
            Mistake(
                lambda data: training_mib(data, 2 + 4),
                "The gradients are missing, and one of Adam's two states.",
            ),
        ),
        hints=(
            "How many bytes does one parameter bring with it: itself, its gradient, two states?",
            (
                "2 + 2 + 4 + 4 bytes for each number, and a quarter of the bytes in float32 is how"
                " many numbers there are."
            ),
            "`sum(in_float32) / 4 * 12 / MEBIBYTE`",
        ),
        insight=lambda data: (
            f"Everything in float32 takes {training_mib(data, 16):.0f} MiB: 16 bytes for each"
            " parameter, before the first activation."
        ),
    ),
    Exercise(
        id="11.2",
        answer=Number(
            lambda data: 100 * PARAMETERS_BYTES / used_by_the_first(data).max(), unit="percent"
        ),
        mistakes=(
            Mistake(
                lambda data: 100 * PARAMETERS / used_by_the_first(data).max(),
                "That is with one byte for each parameter. float16 has two.",
            ),
            Mistake(
                lambda data: 100 * 2 * PARAMETERS_BYTES / used_by_the_first(data).max(),
                "That is with four bytes for each parameter, as in float32. float16 has two.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / GB_IN_GIB / used_by_the_first(data).max(),
                "You took GiB for GB: 8 billion times 2 bytes are 16e9 bytes, not 16 * 2**30.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / total_of_the_first(data),
                "That is the share of the whole GPU. The share of what is used is asked.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / NAMED_BYTES,
                "Divide bytes by bytes: 16e9 by the highest `memory_used`. 192 GB is the GPU's name"
                " for all it has, and a GiB is no GB.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / used_by_the_first(data).mean(),
                "That is of the mean over the log, in which the server is still starting.",
            ),
        ),
        hints=(
            "8 billion numbers of 2 bytes, and the highest value of one quantity on one GPU.",
            "`logs.counters.query(\"name == 'memory_used' and device == 0\")`",
            '`100 * 8e9 * 2 / used["value"].max()`',
        ),
        insight=(
            "The server takes most of the GPU at its start, for what it will remember of the texts,"
            " and keeps it."
        ),
    ),
    Exercise(
        id="11.3",
        answer=Property(leak_problem, leak),
        mistakes=(
            Mistake(
                lambda data: (str(by_line(data[1]).idxmax()), leak(data)[1]),
                "has the most bytes of all, but has as much in the healthy run",
            ),
            Mistake(
                lambda data: (str(by_line(data[1]).idxmin()), leak(data)[1]),
                "has as much in the healthy run. Subtract",
            ),
            Mistake(
                lambda data: (leak(data)[0], STEPS * leak(data)[1]), "So much is left after 3 steps"
            ),
            Mistake(
                lambda data: (leak(data)[0], STEPS * MEBIBYTE * leak(data)[1]),
                "These are bytes, of 3 steps",
            ),
            Mistake(
                lambda data: (leak(data)[0], leak(data)[1] * MEBIBYTE / 1e6),
                "These are MB, MiB are asked",
            ),
            Mistake(lambda data: ("cifar_train/loop.py(1): nobody", 1.0), "No block has the line"),
            Mistake(lambda data: leak(data)[0], "A pair is asked"),
        ),
        hints=(
            (
                "Add up the bytes of each line, in both snapshots. What is in one alone, or larger"
                " there?"
            ),
            (
                '`tidyprof.memory_blocks(growing).groupby("source_line")["bytes"].sum()`, and so'
                " for `healthy`"
            ),
            (
                "It is the line that ends in `after_backward`. Three steps were played, and a MiB"
                " has 2**20 bytes."
            ),
        ),
        insight=lambda data: (
            f"At {leak(data)[1]:.0f} MiB a step memory is full after minutes, at a line that has"
            " nothing to do with it. The line with the most bytes is no suspect: what it keeps, a"
            " healthy step keeps too."
        ),
    ),
    Exercise(
        id="11.4",
        answer=Number(reserved_mib, unit="MiB", relative=1e-3),
        mistakes=(
            Mistake(
                lambda data: reserved_mib(data, first=None),
                "That is the whole device, which the order as it was fills: memory runs out.",
            ),
            Mistake(
                lambda data: reserved_mib(data, first=False),
                "That is the order turned round: what goes was first, and a segment of it holds"
                " what stays.",
            ),
            Mistake(
                _active_mib,
                "Those are the bytes in use. Reserved are whole segments, with what is free in"
                " them.",
            ),
            Mistake(
                lambda data: played(data)["requested_bytes"].sum() / MEBIBYTE,
                "That is what the tensors asked for. Reserved are whole segments.",
            ),
            Mistake(
                lambda data: reserved_mib(data) - data[1] / MEBIBYTE,
                "The last request is missing: it has a segment of its own.",
            ),
        ),
        hints=(
            (
                "The second entry of a request says whether it stays. Order by it, play, and add up"
                " the blocks."
            ),
            (
                "`sorted(requests, key=lambda one: not one[1])` puts what stays first and leaves"
                " the rest in order."
            ),
            (
                '`tidyprof.memory_blocks(play_requests(ordered, last, capacity))["bytes"].sum() /'
                " MEBIBYTE`"
            ),
        ),
        insight=(
            "Segments without a tensor that stays are empty in the end, and an empty segment can go"
            " back."
        ),
    ),
)

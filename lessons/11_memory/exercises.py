"""Exercises of lesson 11, memory: about shapes, a GPU's log and the allocator's snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.snapshots import MEBIBYTE, play_requests

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

STEPS = 3
"""Number of steps before each snapshot of the modeled trainer."""

PARAMETERS_BYTES = 8e9 * 2
"""Bytes of the language model's parameters, in float16."""

NAMED_BYTES = 192e9
"""Bytes that AMD states for an MI300X."""

Requests = tuple[Sequence[tuple[int, bool]], int, int]
"""Requests (bytes, whether the tensor stays), the last request and the device's memory, in bytes."""


def training_mib(in_float32: Sequence[int], bytes_per_parameter: int) -> float:
    """Return the MiB of training, with gradients and states in the bytes per parameter."""
    return sum(in_float32) / 4 * bytes_per_parameter / MEBIBYTE


def gpu_0(logs: Profile, name: str = "memory_used") -> pd.Series:
    """Return the values of one quantity on GPU 0, in bytes."""
    counters = logs.counters
    return counters.loc[(counters["name"] == name) & (counters["device"] == 0), "value"]


def share_of_used(logs: Profile, factor: float = 1.0) -> float:
    """Return the share of the parameters in the highest use, in percent, multiplied by `factor`."""
    return float(100 * factor * PARAMETERS_BYTES / gpu_0(logs).max())


def by_line(profile: Profile) -> pd.Series:
    """Return the bytes in use, by the line that requested them."""
    return tidyprof.memory_blocks(profile).groupby("source_line", observed=True)["bytes"].sum()


def leak(data: tuple[Profile, Profile]) -> tuple[str, float]:
    """Return the line that keeps more in the second run than in the first, and its MiB per step.

    Raises ValueError if there is none.
    """
    healthy, growing = data
    grown = by_line(growing).sub(by_line(healthy), fill_value=0)
    if grown.max() <= 0:
        raise ValueError("no line keeps more in the second snapshot than in the first")
    return str(grown.idxmax()), float(grown.max()) / STEPS / MEBIBYTE


def leak_problem(answer: Any, data: tuple[Profile, Profile]) -> str | None:
    """Return what is wrong with a line and its MiB per step, or None."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return "You didn't give a pair. Give the source line as a string, then the MiB per step."
    line, mib = leak(data)
    known = by_line(data[1])
    if answer[0] != line and answer[0] not in known:
        return f"No block has the line {answer[0]!r}. Copy a value from the `source_line` column."
    if answer[0] != line:
        most = " has the most bytes of all lines, but it" if answer[0] == known.idxmax() else ""
        return (
            f"That line{most} keeps as much memory in the healthy run. For each line, subtract the"
            " bytes of the healthy run."
        )
    number = Number(lambda steps: mib * steps, unit="MiB")
    if not number.judge(answer[1], STEPS * mib, STEPS):
        return f"You gave the bytes after {STEPS} steps. Divide by the number of steps."
    problem = number.judge(answer[1], mib, 1)
    return problem and f"The line is right, but the number isn't. {problem}"


def played(data: Requests, first: bool | None = True) -> pd.DataFrame:
    """Return the blocks at the end, after requesting first what stays (True), first what is freed
    (False), or in the given order (None).
    """
    requests, last, capacity = data
    ordered = list(requests) if first is None else sorted(requests, key=lambda one: one[1] != first)
    return tidyprof.memory_blocks(play_requests(ordered, last, capacity, name="judged"))


def reserved_mib(data: Requests, first: bool | None = True) -> float:
    """Return the MiB that are reserved at the end; `first` as in `played`."""
    return played(data, first)["bytes"].sum() / MEBIBYTE


EXERCISES = (
    Exercise(
        id="11.1",
        answer=Number(lambda data: training_mib(data, 2 + 2 + 4 + 4), unit="MiB"),
        mistakes=(
            Mistake(
                lambda data: training_mib(data, 4 * 4),
                "You counted everything in float32. Count only 2 bytes for each parameter and each"
                " gradient.",
            ),
            Mistake(
                lambda data: training_mib(data, 2 + 2 + 4),
                "You counted 8 bytes per parameter, so you left out one state or put both in"
                " bfloat16. Add two states of 4 bytes each to 2 + 2 bytes.",
            ),
            Mistake(
                lambda data: training_mib(data, 2 + 4 + 4),
                "You left out the gradients. Add 2 bytes per parameter for them.",
            ),
        ),
        hints=(
            "For each parameter, add up the bytes of the parameter itself, its gradient and its"
            " two states.",
            (
                "Divide the float32 bytes by 4 to get the number of parameters, and multiply it by"
                " 2 + 2 + 4 + 4 bytes."
            ),
            "Compute `sum(in_float32) / 4 * 12 / MEBIBYTE`.",
        ),
        insight=lambda data: (
            f"If everything is stored in float32, it takes up {training_mib(data, 16):.0f} MiB,"
            " which is 16 bytes per parameter, even before the first activation."
        ),
    ),
    Exercise(
        id="11.2",
        answer=Number(share_of_used, unit="percent"),
        mistakes=(
            Mistake(
                lambda data: share_of_used(data, 1 / 2),
                "You counted one byte per parameter. A float16 number takes two bytes.",
            ),
            Mistake(
                lambda data: share_of_used(data, 2),
                "You counted four bytes per parameter, as in float32. A float16 number takes two"
                " bytes.",
            ),
            Mistake(
                lambda data: share_of_used(data, 2**30 / 1e9),
                "You counted in GiB. 8 billion times 2 bytes is 16e9 bytes, not 16 * 2**30.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / float(gpu_0(data, "memory_total").max()),
                "You divided by the total memory of the GPU. Divide by the highest value of"
                " `memory_used`.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / NAMED_BYTES,
                "You divided by 192 GB, which is the nominal memory size. Divide by the highest"
                " value of `memory_used`.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / gpu_0(data).mean(),
                "You divided by the mean, which includes the start of the server. Divide by the"
                " highest value of `memory_used`.",
            ),
        ),
        hints=(
            "Count 2 bytes for each of 8 billion numbers, and find the highest value of"
            " `memory_used`.",
            "Select the rows: `logs.counters.query(\"name == 'memory_used' and device == 0\")`.",
            'Compute `100 * 8e9 * 2 / used["value"].max()` with these rows.',
        ),
        insight=(
            "When the server starts, it reserves most of the GPU memory for the keys and values of"
            " the texts that it will process. It then keeps this memory."
        ),
    ),
    Exercise(
        id="11.3",
        answer=Property(leak_problem, leak),
        mistakes=(
            Mistake(
                lambda data: (str(by_line(data[1]).idxmax()), leak(data)[1]),
                "has the most bytes of all lines, but it keeps as much memory in the healthy run",
            ),
            Mistake(
                lambda data: (str(by_line(data[1]).idxmin()), leak(data)[1]),
                "keeps as much memory in the healthy run. For each line",
            ),
            Mistake(
                lambda data: (leak(data)[0], STEPS * leak(data)[1]),
                "You gave the bytes after 3 steps",
            ),
            Mistake(
                lambda data: (leak(data)[0], leak(data)[1] * MEBIBYTE / 1e6),
                "You gave MB",
            ),
            Mistake(lambda data: ("cifar_train/loop.py(1): nobody", 1.0), "No block has the line"),
            Mistake(lambda data: leak(data)[0], "You didn't give a pair"),
        ),
        hints=(
            "Add up the bytes per source line in both snapshots, and find the line with a"
            " difference.",
            (
                'Compute `tidyprof.memory_blocks(growing).groupby("source_line")["bytes"].sum()`,'
                " and do the same for `healthy`."
            ),
            (
                "Use the line that ends in `after_backward`, and divide its bytes by three steps"
                " and by 2**20."
            ),
        ),
        insight=lambda data: (
            f"At {leak(data)[1]:.0f} MiB per step, memory runs out within minutes, and the error"
            " names an unrelated line. The line with the most bytes doesn't leak, because a healthy"
            " run keeps the same number of bytes."
        ),
    ),
    Exercise(
        id="11.4",
        answer=Number(reserved_mib, unit="MiB", relative=1e-3),
        mistakes=(
            Mistake(
                lambda data: reserved_mib(data, first=None),
                "You kept the original order, which fills the whole device. Allocate the tensors"
                " that stay first.",
            ),
            Mistake(
                lambda data: reserved_mib(data, first=False),
                "You reversed the order, so tensors that stay end up in segments with tensors that"
                " are freed. Allocate the tensors that stay first.",
            ),
            Mistake(
                lambda data: (
                    played(data).query("state == 'active_allocated'")["bytes"].sum() / MEBIBYTE
                ),
                "You counted the bytes in use. Count whole segments, including their free blocks.",
            ),
            Mistake(
                lambda data: played(data)["requested_bytes"].sum() / MEBIBYTE,
                "You counted what the tensors requested. Count whole segments.",
            ),
            Mistake(
                lambda data: reserved_mib(data) - data[1] / MEBIBYTE,
                "You left out the last request, which has a separate segment. Add its size.",
            ),
        ),
        hints=(
            (
                "Sort by the second entry of each request, which is True if the tensor stays. Then"
                " call `play_requests`, and add up the sizes of all blocks."
            ),
            (
                "Use `sorted(requests, key=lambda one: not one[1])`, which puts the tensors that"
                " stay first and doesn't change the order otherwise."
            ),
            (
                "Compute `tidyprof.memory_blocks(play_requests(ordered, last,"
                ' capacity))["bytes"].sum() / MEBIBYTE`.'
            ),
        ),
        insight=(
            "A segment without tensors that stay is empty in the end, so the allocator can return"
            " it to the driver."
        ),
    ),
)

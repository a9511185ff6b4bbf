"""Exercises of lesson 11, memory: on shapes, a trace, two measurements, a GPU's log and the allocator's snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tidyprof
from proflab.exercises import Exercise, Mistake, Number
from proflab.parts.snapshots import play_requests

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

MEBIBYTE = 2**20
STEPS = 3
"""Of the modelled trainer."""

PARAMETERS_BYTES = 8e9 * 2
"""8 billion in float16."""

NAMED_BYTES = 192e9
"""Of an MI300X, as its data sheet names them."""

Requests = tuple[Sequence[tuple[int, bool]], int, int]
"""Requests (bytes, whether it stays), the last one, and the device, in bytes."""


def training_mib(in_float32: Sequence[int], bytes_of_each: int) -> float:
    """MiB of training with so many bytes for each parameter, gradient and states included."""
    return sum(in_float32) / 4 * bytes_of_each / MEBIBYTE


def ends(profile: Profile) -> tuple[float, float]:
    """Highest and last memory in use, bytes."""
    value = profile.counters.loc[profile.counters["name"] == "allocated memory", "value"]
    return float(value.max()), float(value.iloc[-1])


def line_through(measured: pd.DataFrame) -> tuple[float, float]:
    """Bytes of one sample, and those that don't depend on the batch."""
    (small, low), (large, high) = measured[["batch", "peak_bytes"]].itertuples(index=False)
    each = (high - low) / (large - small)
    return each, low - each * small


def used_by_the_first(logs: Profile) -> pd.Series:
    """`memory_used` of GPU 0, bytes."""
    return logs.counters.query("name == 'memory_used' and device == 0")["value"]


def total_of_the_first(logs: Profile) -> float:
    """`memory_total` of GPU 0, bytes."""
    return float(logs.counters.query("name == 'memory_total' and device == 0")["value"].max())


def leak_and_peak(profile: Profile) -> tuple[float, float]:
    """Bytes that a step leaves behind, and the highest memory that tensors asked for."""
    blocks = tidyprof.memory_blocks(profile)
    leaked = blocks.loc[blocks["source_line"].str.endswith("after_backward", na=False), "bytes"].sum()
    peak = profile.counters.loc[profile.counters["name"] == "requested memory", "value"].max()
    return leaked / STEPS, float(peak)


def steps_until_full(profile: Profile, room: int) -> float:
    """Whole steps until the peak has no more room on a device with `room` bytes."""
    leak, peak = leak_and_peak(profile)
    return (room - peak) // leak


def step_ns(profile: Profile) -> float:
    """From the batch of the last step but one to the batch of the last: earlier steps also set things up."""
    loading = profile.events["source_line"].astype(str).str.endswith("next_batch")
    batches = profile.events.loc[loading & (profile.events["name"] == "alloc"), "start_ns"]
    return float(batches.iloc[::2].diff().iloc[-1])  # images, not labels


def reserved_mib(data: Requests, first: bool | None) -> float:
    """MiB reserved at the end, with what stays (True), or what goes (False), first; in the order given if None."""
    requests, last, capacity = data
    ordered = list(requests) if first is None else sorted(requests, key=lambda one: one[1] != first)
    profile = play_requests(ordered, last, capacity, name="judged")
    return tidyprof.memory_blocks(profile)["bytes"].sum() / MEBIBYTE


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
            Mistake(lambda data: training_mib(data, 2 + 4 + 4), "The gradients are missing: 2 bytes more for each."),
            Mistake(
                lambda data: training_mib(data, 2 + 4),
                "The gradients are missing, and one of Adam's two states.",
            ),
        ),
        hints=(
            "How many bytes does one parameter bring with it: itself, its gradient, two states?",
            "2 + 2 + 4 + 4 bytes for each number, and a quarter of the bytes in float32 is how many numbers there are.",
            "`sum(in_float32) / 4 * 12 / MEBIBYTE`",
        ),
        insight=lambda data: (
            f"Everything in float32 takes {training_mib(data, 16):.0f} MiB: 16 bytes for each parameter, before the "
            "first activation."
        ),
    ),
    Exercise(
        id="11.2",
        answer=Number(lambda data: 100 * (1 - ends(data)[1] / ends(data)[0]), unit="percent"),
        mistakes=(
            Mistake(lambda data: 100 * ends(data)[1] / ends(data)[0], "That is the share that stays."),
            Mistake(
                lambda data: 100 * (ends(data)[0] / ends(data)[1] - 1),
                "That is measured by what stays. The share of the highest use is asked.",
            ),
        ),
        hints=(
            "Two numbers of `curve`: the highest value, and the last one.",
            "`.max()` and `.iloc[-1]`",
            "`100 * (highest - at_the_end) / highest`",
        ),
        insight=(
            "The peak lies in `optimizer`, where no activation is left. What goes are the gradients, the batch and "
            "what Adam computes on the way: two results as large as the largest parameter here, and on a GPU, where it "
            "handles all parameters at once by default, one as large as all of them. A smaller batch changes little of "
            "it; `fused=True` or another optimizer does."
        ),
    ),
    Exercise(
        id="11.3",
        answer=Number(lambda data: (data[1] - line_through(data[0])[1]) // line_through(data[0])[0], relative=0),
        mistakes=(
            Mistake(
                lambda data: data[1] // (data[0]["peak_bytes"].iloc[-1] / data[0]["batch"].iloc[-1]),
                "You let everything grow with the batch. Parameters and states don't.",
            ),
            Mistake(
                lambda data: data[1] // line_through(data[0])[0],
                "You gave the whole device to the samples. Take off first what does not depend on the batch.",
            ),
        ),
        hints=(
            "A line through two points: bytes for each sample, and bytes for none.",
            "The difference of the peaks, by the difference of the batches, is what a sample takes.",
            "`(room - fixed) // each`, with `fixed = peak - each * batch` of either row",
        ),
        insight=lambda data: (
            f"{line_through(data[0])[1] / 1e9:.1f} GB are fixed, and each sample takes "
            f"{line_through(data[0])[0] / 1e6:.0f} MB. Leave some percent of room: the driver and RCCL need memory too."
        ),
    ),
    Exercise(
        id="11.4",
        answer=Number(lambda data: 100 * PARAMETERS_BYTES / used_by_the_first(data).max(), unit="percent"),
        mistakes=(
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / total_of_the_first(data),
                "That is the share of the whole GPU. The share of what is used is asked.",
            ),
            Mistake(
                lambda data: 100 * PARAMETERS_BYTES / NAMED_BYTES,
                "Divide bytes by bytes: 16e9 by the highest `memory_used`. 192 GB is the GPU's name for all it has.",
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
        insight="The server takes most of the GPU at its start, for what it will remember of the texts, and keeps it.",
    ),
    Exercise(
        id="11.5",
        answer=Number(lambda data: steps_until_full(*data), unit="steps", relative=1e-3),
        mistakes=(
            Mistake(
                lambda data: data[1] // leak_and_peak(data[0])[0],
                "You gave the whole device to the leak. A step needs its peak besides.",
            ),
            Mistake(
                lambda data: (data[1] - leak_and_peak(data[0])[1]) // (STEPS * leak_and_peak(data[0])[0]),
                "The blocks are those of three steps: divide by three.",
            ),
        ),
        hints=(
            "What is left of the device above the peak, by what one step leaves behind.",
            '`blocks["source_line"].str.endswith("after_backward", na=False)` marks the leaked blocks.',
            "`(room - peak) // (leaked_bytes / 3)`",
        ),
        insight=lambda data: (
            f"At {step_ns(data[0]) / 1e6:.1f} ms a step that is "
            f"{steps_until_full(*data) * step_ns(data[0]) / 60e9:.0f} minutes into the job, at a line "
            "that has nothing to do with it. The leak's own line is in a snapshot."
        ),
    ),
    Exercise(
        id="11.6",
        answer=Number(lambda data: reserved_mib(data, first=True), unit="MiB", relative=1e-3),
        mistakes=(
            Mistake(
                lambda data: reserved_mib(data, first=None), "That is the order as it was, in which memory runs out."
            ),
            Mistake(
                lambda data: data[2] / MEBIBYTE,
                "That is the whole device. Add up the blocks of the snapshot.",
            ),
        ),
        hints=(
            "The second entry of a request says whether it stays. Order by it, play, and add up the blocks.",
            "`sorted(requests, key=lambda one: not one[1])` puts what stays first and leaves the rest in order.",
            '`tidyprof.memory_blocks(play_requests(ordered, last, capacity))["bytes"].sum() / MEBIBYTE`',
        ),
        insight="Segments without a tensor that stays are empty in the end, and an empty segment can go back.",
    ),
)

"""Exercises of lesson 09, which kernel killed my job? They read reports, listings and a trace; one is a guard."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from proflab.exercises import Choice, Exercise, Mistake, Number, Property, Text
from proflab.parts.fault_report import PAGE_BYTES
from proflab.parts.kernel_operators import kernel_operators
from proflab.parts.published_faults import ELEMENT_BYTES

if TYPE_CHECKING:
    import numpy as np

    from proflab.parts.fault_report import FaultReport, Wave
    from proflab.parts.published_faults import OldFault
    from tidyprof.tables.contract import Profile

CLASSES = 100
FLOAT_BYTES = 4
LANES = 64

FAULTING_KERNEL = "nll_loss_forward"
"""The kernel of exercise 09.2: it picks each image's logit by its label, and so is the first to meet a wrong one."""

WRONG_TYPE = "32-bit labels read as 64-bit"
ONE_LABEL = "one label is too large"
NEGATIVE = "labels are negative"
NEVER_FILLED = "labels were never filled in"
CAUSES = (ONE_LABEL, NEGATIVE, WRONG_TYPE, NEVER_FILLED)

Checked = tuple["FaultReport", dict[int, str]]
"""A report, and the listing of the code object that it names."""


def written_index(fault: OldFault) -> float:
    """The element that the kernel wrote: the offset in s10, which it adds to the array's start, in elements."""
    return fault.scalars["s10"] / ELEMENT_BYTES


def operator_of(profile: Profile, like: str = FAULTING_KERNEL) -> str:
    """The operator that launched a kernel, without `aten::`. Raises ValueError if the trace has no such kernel."""
    found = kernel_operators(profile, like)
    if found.empty:
        raise ValueError(f"the trace has no kernel with {like!r} in its name")
    return str(found["operator"].iloc[0]).removeprefix("aten::")


def memory_accesses(code: dict[int, str]) -> dict[int, int]:
    """Address of each load and store of vector memory -> first of the two vector registers that hold its address."""
    found = {}
    for address, text in code.items():
        pairs = [int(first) for first in re.findall(r"v\[(\d+):\d+\]", text)]
        if pairs and re.match(r"(?:global|flat)_(?:load|store)_", text):
            found[address] = pairs[0] if "_store_" in text else pairs[-1]
    return found


def guilty_instruction(data: Checked) -> int:
    """The last access before the program counter whose address registers hold the faulting page.

    Raises ValueError if there is none.
    """
    report, code = data
    wave, _ = reported_lane(report)
    for address, first in sorted(memory_accesses(code).items(), reverse=True):
        pages = {place // PAGE_BYTES * PAGE_BYTES for place in wave.vector_pair(first)}
        if address < wave.listing_pc and report.faulting_page in pages:
            return address
    raise ValueError("no access before the program counter has the faulting page in its registers")


def other_access(data: Checked, later: bool) -> int:
    """An access that is not the guilty one: the last of all, or the first."""
    accesses = sorted(memory_accesses(data[1]))
    return accesses[-1] if later else accesses[0]


def reported_lane(report: FaultReport, first: int = 2) -> tuple[Wave, int]:
    """The wave and the lane whose address lies on the faulting page. Raises ValueError unless it is one lane."""
    found = [
        (wave, lane)
        for wave in report.waves
        for lane, address in enumerate(wave.vector_pair(first))
        if address // PAGE_BYTES * PAGE_BYTES == report.faulting_page
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} lanes looked at the faulting page, not one")
    return found[0]


def reported_image(report: FaultReport) -> int:
    """Which image of the batch that lane works on: 64 for each workgroup before its own, whose number is in s8."""
    wave, lane = reported_lane(report)
    return LANES * wave.scalars["s8"] + lane


def labels_used(report: FaultReport) -> list[int]:
    """The label of every image, from the addresses: address = logits + 4 bytes * (100 * image + label)."""
    found = []
    for wave in report.waves:
        base = wave.scalar_pair(2)
        for lane, address in enumerate(wave.vector_pair(2)):
            found.append((address - base) // FLOAT_BYTES - CLASSES * (LANES * wave.scalars["s8"] + lane))
    return found


def cause(report: FaultReport) -> str:
    """Which of CAUSES fits the labels. Raises ValueError if none is out of range."""
    labels = labels_used(report)
    bad = [label for label in labels if not 0 <= label < CLASSES]
    if not bad:
        raise ValueError("all labels are in range: the cause lies elsewhere")
    if len(bad) > 1 and all(label >= 0 and max(label >> 32, label & 0xFFFFFFFF) < CLASSES for label in labels):
        return WRONG_TYPE
    if max(bad) < 0:
        return NEGATIVE
    return ONE_LABEL if len(bad) == 1 else NEVER_FILLED


def guard_problem(answer: Any, classes: int = CLASSES) -> str | None:
    """What is wrong with a `guard(labels, classes)`, None if it lets good labels pass and stops bad ones."""
    if not callable(answer):
        return f"A function guard(labels, classes) is asked, this is a {type(answer).__name__}."
    import numpy as np

    good = np.array([0, 7, classes - 1, 0])
    if error := _complaint(answer, good, classes):
        return f"It stops good labels, 0 to {classes - 1}: {error}"
    for value, what in ((classes, f"the label {classes}, the first that is out of range"), (-1, "a negative label")):
        bad = np.insert(good, 2, value)
        error = _complaint(answer, bad, classes)
        if error is None:
            return f"It lets {what} pass."
        if not isinstance(error, ValueError):
            return f"For {what}, it raises {type(error).__name__}; ValueError is asked."
        numbers = re.findall(r"-?\d+", str(error))
        if str(value) not in numbers or "2" not in numbers:
            return f"Its message should name the label ({value}) and its position (2): it says {str(error)!r}."
    return None


def _complaint(check: Callable, labels: np.ndarray, classes: int) -> ValueError | IndexError | None:
    """What a guard raises of these two, None if it raises none of them."""
    try:
        check(labels, classes)
    except (ValueError, IndexError) as error:
        return error
    return None


def guard(labels: Sequence[int], classes: int) -> None:
    """A guard that does what is asked: ValueError with the first bad label and its position."""
    import numpy as np

    bad = np.flatnonzero((np.asarray(labels) < 0) | (np.asarray(labels) >= classes))
    if len(bad):
        raise ValueError(f"label {labels[bad[0]]} at position {bad[0]} is not in 0 to {classes - 1}")


def _only_upper(labels: Sequence[int], classes: int) -> None:
    if max(labels) >= classes:
        guard(labels, classes)


def _off_by_one(labels: Sequence[int], classes: int) -> None:
    guard([min(label, classes - 1) if label == classes else label for label in labels], classes)


def _as_index_error(labels: Sequence[int], classes: int) -> None:
    try:
        guard(labels, classes)
    except ValueError as error:
        raise IndexError(str(error)) from None


def _speechless(labels: Sequence[int], classes: int) -> None:
    if min(labels) < 0 or max(labels) >= classes:
        raise ValueError("bad labels")


EXERCISES = (
    Exercise(
        id="09.1",
        answer=Number(written_index, relative=0),
        mistakes=(
            Mistake(
                lambda data: data.scalars["s10"],
                "That is the distance in bytes: the question is for the element, and one has 4 bytes.",
            ),
            Mistake(
                lambda data: data.lane_0["v2"] / ELEMENT_BYTES,
                "That divides the whole address. The array does not begin at 0: what does `v_add_i32` add to it?",
            ),
            Mistake(
                lambda data: data.lane_0["v0"],
                "v0 is the value that the store writes: its address is in v[2:3].",
            ),
        ),
        hints=(
            "Follow v2 backwards from `flat_store_dword v[2:3], v0`: which instruction made the address?",
            "`v_add_i32_e32 v1, vcc, s10, v1` adds s10 to the start of the array: a distance in bytes.",
            "`old.scalars` has the scalar registers as integers: divide `s10` by 4.",
        ),
        insight=lambda data: (
            f"The source says the same: `{data.source_line}` With debug information the agent prints that line; "
            "the kernels of a PyTorch wheel have none."
        ),
    ),
    Exercise(
        id="09.2",
        answer=Text(lambda data: (f"aten::{operator_of(data)}", operator_of(data))),
        mistakes=(
            Mistake(
                lambda data: f"aten::{operator_of(data, 'nll_loss_backward')}",
                "That one runs later, in the backward pass: `forward` is in the kernel's name.",
            ),
            Mistake(
                lambda data: f"aten::{operator_of(data, 'softmax_warp_forward')}",
                "That operator runs just before. It reads all logits of an image, and needs no label.",
            ),
            Mistake(
                lambda data: kernel_operators(data, FAULTING_KERNEL)["short_name"].iloc[0],
                "That is the kernel. The column `operator` has what launched it.",
            ),
        ),
        hints=(
            "The table above has a row for each kernel with its operator.",
            f'`kernel_operators(trace, "{FAULTING_KERNEL}")` keeps the rows of this kernel.',
            'Take `["operator"].iloc[0]` of that table.',
        ),
        insight="It belongs to `cross_entropy`, and its only index is the label. So look at the labels first.",
    ),
    Exercise(
        id="09.3",
        answer=Number(guilty_instruction, relative=0),
        mistakes=(
            Mistake(
                lambda data: data[0].waves[0].listing_pc,
                "There the waves stopped: `s_waitcnt` only waits for memory. Who asked for it?",
            ),
            Mistake(
                lambda data: other_access(data, later=False),
                "That load brings the labels. The page is in v[2:3] as they are now, and later instructions made them.",
            ),
            Mistake(
                lambda data: other_access(data, later=True),
                "That store stands behind the program counter: no wave got there.",
            ),
            Mistake(
                lambda data: guilty_instruction(data) + data[0].waves[0].code.loaded_from,
                "Right instruction, but its address in memory: subtract the first address of `loaded at`.",
            ),
        ),
        hints=(
            "Only a load or store can fault. Which ones stand before the arrow?",
            "Which of them takes its addresses from v[2:3] as they are when the wave stops?",
            "It is the last `global_load` before the arrow; hexadecimal numbers can be typed as they are, with `0x`.",
        ),
        insight=lambda data: (
            f"The arrow was {data[0].waves[0].listing_pc - guilty_instruction(data)} bytes too far. With "
            "`--precise-memory` the wave stops just behind the access, where the GPU can do that."
        ),
    ),
    Exercise(
        id="09.4",
        answer=Number(reported_image, relative=0),
        mistakes=(
            Mistake(
                lambda data: reported_lane(data)[1],
                "That is the lane. A workgroup works on 64 images; s8 says how many workgroups come before this one.",
            ),
            Mistake(
                lambda data: LANES * reported_lane(data)[0].number + reported_lane(data)[1],
                "The number of a wave is the agent's own count. The kernel's number of the workgroup is in s8.",
            ),
        ),
        hints=(
            "Compare each address in `wave.vector_pair(2)` with the page, for both waves.",
            "An address lies on the page if `address // 4096 * 4096 == report.faulting_page`.",
            'Count the lane from 0 and add `64 * wave.scalars["s8"]`.',
        ),
        insight=lambda data: (
            f"{sum(not 0 <= label < CLASSES for label in labels_used(data))} of {len(labels_used(data))} lanes looked "
            "at a wrong place, and the agent names one page. It is the first one noticed, not the first one wrong."
        ),
    ),
    Exercise(
        id="09.5",
        answer=Choice(cause, CAUSES),
        mistakes=(
            Mistake(lambda data: ONE_LABEL, "Nearly all lanes are wrong, not one: look at the picture again."),
            Mistake(lambda data: NEGATIVE, "All distances are positive: the labels are too large."),
            Mistake(
                lambda data: NEVER_FILLED,
                "Memory that was never filled shows no order. Look at both halves of the hexadecimal labels.",
            ),
        ),
        hints=(
            "A label of this data set is a number below 100. Where do you see such numbers?",
            "Look at the lower and at the upper eight hexadecimal digits of a label, each as a number.",
            "Each half is a valid label: two labels were read as one.",
        ),
        insight="PyTorch's own operators refuse such labels by their type. A kernel that gets a bare pointer can't.",
    ),
    Exercise(
        id="09.6",
        answer=Property(lambda answer, data: guard_problem(answer), lambda data: guard),
        mistakes=(
            Mistake(lambda data: _only_upper, "lets a negative label pass"),
            Mistake(lambda data: _off_by_one, "the first that is out of range"),
            Mistake(lambda data: _speechless, "should name the label"),
            Mistake(lambda data: _as_index_error, "it raises IndexError; ValueError is asked"),
            Mistake(lambda data: CLASSES, "A function guard(labels, classes) is asked"),
        ),
        hints=(
            "Good labels are 0 to `classes` - 1: both ends can be missed.",
            "`for position, label in enumerate(labels)` gives both numbers for the message.",
            'Inside: `if not 0 <= label < classes: raise ValueError(f"label {label} at position {position}")`.',
        ),
        insight="Put it into the loader, where labels are on the processor. On the GPU it would wait at every step.",
        needs_data=False,
    ),
)

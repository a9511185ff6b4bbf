"""Exercises of lesson 09, which kernel killed my job? They read reports, a listing and a trace; one is a guard."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from proflab.exercises import Address, Exercise, Mistake, Number, Property, Text
from proflab.parts.fault_charts import PAGE_BYTES

if TYPE_CHECKING:
    import numpy as np

    from tidyprof.tables.contract import Profile

CLASSES = 100
FLOAT_BYTES = 4
LANES = 64

FAULTING_KERNEL = "nll_loss_forward_reduce_cuda_kernel_2d"
"""The kernel of exercise 09.1: it picks each image's logit by its label, and so is the first to meet a wrong one."""

WRONG_TYPE = "32-bit labels read as 64-bit"
ONE_LABEL = "one label is too large"
NEGATIVE = "labels are negative"
NEVER_FILLED = "labels were never filled in"
CAUSES = (ONE_LABEL, NEGATIVE, WRONG_TYPE, NEVER_FILLED)

AGAINST = {
    ONE_LABEL: "Nearly all lanes are wrong, not one: look at the picture again.",
    NEGATIVE: "All distances are positive: the labels are too large.",
    NEVER_FILLED: "Memory that was never filled shows no order. Look at both halves of the hexadecimal labels.",
    WRONG_TYPE: "Then both halves of each number would be labels. Are they?",
}
"""What speaks against each cause where it is not the right one."""

IMAGE = 7
"""The image whose label exercise 09.4 asks for."""

Checked = tuple[str, str]
"""A report, and the listing of the code object that it names."""


def operator_of(trace: Profile, like: str = FAULTING_KERNEL) -> str:
    """The operator that launched a kernel, without `aten::`. Raises ValueError if the trace has no such kernel."""
    kernels = trace.events[trace.events["kind"] == "kernel"]
    found = kernels.loc[kernels["name"].astype(str).str.contains(like, regex=False), "operator"].dropna()
    if found.empty:
        raise ValueError(f"the trace has no kernel with {like!r} in its name")
    return str(found.iloc[0]).removeprefix("aten::")


def number_after(text: str, words: str) -> int:
    """The first hexadecimal number behind some words of a report. Raises ValueError if there is none."""
    found = re.search(rf"{words}:? \[?(0x[0-9a-f]+)", text)
    if not found:
        raise ValueError(f"there is no {words!r} in the report: is it one of the Debug Agent?")
    return int(found[1], 16)


def lanes_of(report: str) -> list[tuple[int, int, int]]:
    """Of every lane of every wave: image of the batch, address in v[2:3], and the label that follows from both.

    address = logits + 4 bytes * (100 * image + label); s[2:3] is where the logits begin, s8 the workgroup's number.
    """
    lanes = []
    for block in re.split(r"^-{20,}$", report, flags=re.MULTILINE)[1:]:
        scalars = {name: int(value, 16) for name, value in re.findall(r"\b(s\d+): ([0-9a-f]{8})\b", block)}
        halves = [re.findall(r"\] ([0-9a-f]{8})", line) for line in re.findall(r"^ *v[23]: .*$", block, re.MULTILINE)]
        begin = scalars["s3"] << 32 | scalars["s2"]
        for lane, (low, high) in enumerate(zip(*halves, strict=True)):
            image, address = LANES * scalars["s8"] + lane, int(high + low, 16)
            lanes.append((image, address, (address - begin) // FLOAT_BYTES - CLASSES * image))
    return lanes


def labels_used(report: str) -> list[int]:
    """The label of every image."""
    return [label for _, _, label in lanes_of(report)]


def out_of_range(report: str) -> list[int]:
    """The labels that are none of the classes."""
    return [label for label in labels_used(report) if not 0 <= label < CLASSES]


def reported_image(report: str) -> int:
    """Which image of the batch the lane on the faulting page works on. Raises ValueError unless it is one lane."""
    page = number_after(report, "Faulting page")
    found = [image for image, address, _ in lanes_of(report) if address // PAGE_BYTES * PAGE_BYTES == page]
    if len(found) != 1:
        raise ValueError(f"{len(found)} lanes looked at the faulting page, not one")
    return found[0]


def stopped_at(data: Checked) -> int:
    """The program counter as the listing counts."""
    return int(re.search(r"pc=(0x[0-9a-f]+)", data[0])[1], 16) - number_after(data[0], "loaded at")


def accesses(data: Checked) -> list[int]:
    """Addresses of the loads and stores of vector memory in the listing."""
    return [int(at, 16) for at in re.findall(r"\tglobal_\w+ .*// ([0-9A-F]+):", data[1])]


def guilty_instruction(data: Checked) -> int:
    """The last access before the program counter: what stands behind it, no wave has reached."""
    return max(address for address in accesses(data) if address < stopped_at(data))


def cause(report: str) -> str:
    """Which of CAUSES fits the labels. Raises ValueError if none is out of range."""
    labels, bad = labels_used(report), out_of_range(report)
    if not bad:
        raise ValueError("all labels are in range: the cause lies elsewhere")
    if len(bad) > 1 and all(label >= 0 and max(label >> 32, label & 0xFFFFFFFF) < CLASSES for label in labels):
        return WRONG_TYPE
    if max(bad) < 0:
        return NEGATIVE
    return ONE_LABEL if len(bad) == 1 else NEVER_FILLED


def label_meant(report: str) -> int:
    """The label that image IMAGE has: with WRONG_TYPE a half of what was read, the lower half being the first."""
    labels = labels_used(report)
    if cause(report) != WRONG_TYPE:
        return labels[IMAGE]
    return [half for label in labels for half in (label & 0xFFFFFFFF, label >> 32)][IMAGE]


def diagnosis(report: str) -> tuple[str, int]:
    """The cause, and the label of image IMAGE."""
    return cause(report), label_meant(report)


def diagnosis_problem(answer: Any, report: str) -> str | None:
    """What is wrong with a cause and a label; None if both are right."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return f"A pair is asked: one of the four texts, and the label of image {IMAGE}."
    if answer[0] not in CAUSES:
        return f"{answer[0]!r} is none of the four: {', '.join(CAUSES)}."
    if answer[0] != cause(report):
        return AGAINST[answer[0]]
    if answer[1] != label_meant(report):
        return (
            f"The cause is right. But image {IMAGE} has another label: there are two labels in each of these numbers."
        )
    return None


def guard_problem(answer: Any, classes: int = CLASSES) -> str | None:
    """What is wrong with a `guard(labels, classes)`, None if it lets good labels pass and stops bad ones."""
    if not callable(answer):
        return f"A function guard(labels, classes) is asked, this is a {type(answer).__name__}."
    import numpy as np

    good = np.array([0, 7, classes - 1, 0])
    if error := _complaint(answer, good, classes):
        return f"It stops good labels, 0 to {classes - 1}: {error}"
    for value, what in ((classes, f"the label {classes}, the first that is out of range"), (-1, "a negative label")):
        error = _complaint(answer, np.insert(good, 2, value), classes)
        if not isinstance(error, ValueError):
            said = f"raises {type(error).__name__}; ValueError is asked" if error else "lets it pass"
            return f"For {what}, it {said}."
        if not {str(value), "2"} <= set(re.findall(r"-?\d+", str(error))):
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


def _off_by_one(labels: Sequence[int], classes: int) -> None:
    guard([min(label, classes - 1) if label == classes else label for label in labels], classes)


def _speechless(labels: Sequence[int], classes: int) -> None:
    if min(labels) < 0 or max(labels) >= classes:
        raise ValueError("bad labels")


EXERCISES = (
    Exercise(
        id="09.1",
        answer=Text(lambda trace: (f"aten::{operator_of(trace)}", operator_of(trace))),
        mistakes=(
            Mistake(
                lambda trace: f"aten::{operator_of(trace, 'softmax_warp_forward')}",
                "That operator runs just before. It reads all logits of an image, and needs no label.",
            ),
            Mistake(lambda trace: FAULTING_KERNEL, "That is the kernel. The column `operator` has what launched it."),
        ),
        hints=(
            "The table above was made by keeping the kernels with a word in their `name`: keep others.",
            f'`kernels["name"].str.contains("{FAULTING_KERNEL}")` keeps the rows of this kernel.',
            'Look at `["operator"].unique()` of these rows.',
        ),
        insight="It belongs to `cross_entropy`, and its only index is the label. So look at the labels first.",
    ),
    Exercise(
        id="09.2",
        answer=Address(guilty_instruction),
        mistakes=(
            Mistake(stopped_at, "There the waves stopped: `s_waitcnt` only waits for memory. Who asked for it?"),
            Mistake(
                lambda data: min(accesses(data)),
                "That load brings the labels. The page is in v[2:3] as they are now, and later instructions made them.",
            ),
            Mistake(
                lambda data: guilty_instruction(data) + number_after(data[0], "loaded at"),
                "Right instruction, but its address in memory: subtract the first address of `loaded at`.",
            ),
        ),
        hints=(
            "Only a load or store can fault. Which ones stand before the arrow?",
            "Which of them takes its addresses from v[2:3] as they are when the wave stops?",
            "It is the last `global_load` before the arrow; hexadecimal numbers can be typed as they are, with `0x`.",
        ),
        insight=lambda data: (
            f"The arrow was {stopped_at(data) - guilty_instruction(data)} bytes too far. With `--precise-memory` the "
            "wave stops just behind the access, where the GPU can do that."
        ),
    ),
    Exercise(
        id="09.3",
        answer=Number(reported_image, relative=0),
        mistakes=(
            Mistake(
                lambda report: reported_image(report) % LANES,
                "That is the lane. A workgroup works on 64 images; s8 says how many workgroups come before this one.",
            ),
            Mistake(
                lambda report: reported_image(report) + LANES,
                "The number of a wave is the agent's own count. The kernel's number of the workgroup is in s8.",
            ),
        ),
        hints=(
            "An address lies on the page if `address // 4096 * 4096 == page`.",
            'Count the lane from 0 and add `64 * wave["s8"]`.',
        ),
        insight=lambda report: (
            f"{len(out_of_range(report))} of {len(labels_used(report))} lanes looked at a wrong place, and the agent "
            "names one page. It is the first one noticed, not the first one wrong."
        ),
    ),
    Exercise(
        id="09.4",
        answer=Property(diagnosis_problem, diagnosis),
        mistakes=(
            Mistake(lambda report: (ONE_LABEL, 0), "Nearly all lanes are wrong, not one"),
            Mistake(lambda report: (NEGATIVE, 0), "the labels are too large"),
            Mistake(lambda report: (NEVER_FILLED, 0), "shows no order"),
            Mistake(lambda report: (WRONG_TYPE, labels_used(report)[IMAGE]), "two labels in each"),
            Mistake(lambda report: WRONG_TYPE, "A pair is asked"),
        ),
        hints=(
            "Look at the lower and at the upper eight hexadecimal digits of a label, each as a number.",
            "Each half is a valid label: two labels were read as one, the lower half is the first of them.",
            "`label & 0xFFFFFFFF` is the lower half, `label >> 32` the upper one. The halves in order are the labels.",
        ),
        insight="PyTorch's own operators refuse such labels by their type. A kernel that gets a bare pointer can't.",
    ),
    Exercise(
        id="09.5",
        answer=Number(lambda report: len(out_of_range(report)), relative=0),
        mistakes=(
            Mistake(lambda report: 1, "One lane looked at the page that is named. Compute the label of every lane."),
            Mistake(
                lambda report: sum(label >= CLASSES for label in labels_used(report)),
                "None is too large. What about the other end of the range?",
            ),
        ),
        hints=(
            "The address is `base + 4 * (100 * image + label)`, with `base` in s[2:3]: solve it for the label.",
            "`[one for wave in waves_of(second) for one in looked_at(wave)]` has one address an image, in order.",
            "Count the labels for which `0 <= label < 100` is false.",
        ),
        insight=lambda report: (
            f"All are {min(out_of_range(report))}, which stands for `no label` in PyTorch; this kernel does not know. "
            f"Image 0 looked before the tensor, and faulted. The other {len(out_of_range(report)) - 1} read the scores "
            "of their neighbours, without a sound: no fault is no proof."
        ),
    ),
    Exercise(
        id="09.6",
        answer=Property(lambda answer, data: guard_problem(answer), lambda data: guard),
        mistakes=(
            Mistake(lambda data: _off_by_one, "the first that is out of range"),
            Mistake(lambda data: _speechless, "should name the label"),
            Mistake(
                lambda data: lambda labels, classes: [range(classes)[one] for one in labels],
                "raises IndexError; ValueError is asked",
            ),
            Mistake(lambda data: CLASSES, "A function guard(labels, classes) is asked"),
        ),
        hints=(
            "`for position, label in enumerate(labels)` gives both numbers for the message.",
            'Inside: `if not 0 <= label < classes: raise ValueError(f"label {label} at position {position}")`.',
        ),
        insight="Put it into the loader, where labels are on the processor. On the GPU it would wait at every step.",
        needs_data=False,
    ),
)

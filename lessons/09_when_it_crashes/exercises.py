"""Exercises of lesson 09, which kernel killed my job? On last lines, a report, a trace and
settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Property, Text

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FAULTING_KERNEL = "nll_loss_forward_reduce_cuda_kernel_2d"
"""The kernel of exercise 09.3: it picks each image's logit by its label, and so is the first to
meet a wrong one.
"""

ADDRESS, CHECK, GPU_MEMORY, HOST, PYTHON = (
    "wrong address",
    "failed check",
    "GPU memory",
    "host",
    "Python",
)
KINDS = (ADDRESS, CHECK, GPU_MEMORY, HOST, PYTHON)

WORDS = {
    "Memory access fault": (ADDRESS, "the GPU touched a page that is not there, and ROCr says so"),
    "HSA_STATUS_ERROR_EXCEPTION": (
        CHECK,
        "an instruction of the kernel stopped it, and no address is named",
    ),
    "OutOfMemoryError": (GPU_MEMORY, "PyTorch's allocator found no room on the GPU"),
    "oom_kill": (HOST, "Slurm counts the memory of the node, not that of the GPU"),
    "Segmentation fault": (
        HOST,
        "a library on the processor crashed; the GPU's faults have other words",
    ),
    "IndexError": (PYTHON, "Python names the error, and its line: no kernel ran"),
}
"""Words of a last line -> who ended the job, and why it was that one."""

AGENT_NAME = "librocm-debug-agent.so.2"

Call = tuple[str, Mapping[str, Any]]
"""A report, and the tensors that its kernel was called with, in the order of its arguments."""

TYPES = {"float*": "float32", "float const*": "float32", "long const*": "int64"}
"""A type in the name of a kernel -> what it is called in PyTorch."""


def ended_by(text: str) -> tuple[str, str]:
    """Who ended a job by its last line, and why. Raises ValueError for a line without known
    words.
    """
    for words, found in WORDS.items():
        if words in text:
            return found
    raise ValueError(f"no known words in {text!r}")


def kinds(ends: Mapping[str, str]) -> dict[str, str]:
    """Letter -> who ended that job."""
    return {name: ended_by(text)[0] for name, text in ends.items()}


def kinds_problem(answer: Any, ends: Mapping[str, str]) -> str | None:
    """What is wrong with a dictionary from letter to kind; None if all are right."""
    if not isinstance(answer, Mapping):
        return f"A dictionary from letter to one of {', '.join(KINDS)} is asked."
    if missing := [name for name in ends if name not in answer]:
        return f"No kind for {', '.join(missing)} yet."
    for name, text in ends.items():
        kind, why = ended_by(text)
        if answer[name] not in KINDS:
            return f"{name}: {answer[name]!r} is none of {', '.join(KINDS)}."
        if answer[name] != kind:
            return f"{name} is not {answer[name]!r}: {why}."
    return None


def arguments(report: str) -> list[str]:
    """Types of the arguments of the kernel that a report names. Raises ValueError if it names
    none.
    """
    found = re.search(r"^Disassembly for function \w+\((.*)\):$", report, re.MULTILINE)
    if not found:
        raise ValueError("the report names no kernel: is it one of the Debug Agent?")
    return found[1].split(", ")


def misread(data: Call) -> tuple[str, str]:
    """The one tensor that does not fit its kernel, and the type that is read. Raises ValueError
    unless it is one.
    """
    report, tensors = data
    reads = dict(zip(tensors, map(TYPES.__getitem__, arguments(report)), strict=True))
    found = [
        (name, reads[name]) for name, tensor in tensors.items() if _type_of(tensor) != reads[name]
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} tensors do not fit the kernel, not one")
    return found[0]


def _type_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def misread_problem(answer: Any, data: Call) -> str | None:
    """What is wrong with a name and a type; None if both are right."""
    report, tensors = data
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return 'A pair is asked, such as ("picked", "float32").'
    name, dtype = answer[0], str(answer[1]).removeprefix("torch.")
    if name not in tensors:
        return f"{name!r} is none of the tensors: {', '.join(tensors)}."
    right = misread(data)
    if name != right[0]:
        place = [*tensors].index(name)
        return (
            f"`{name}` fits: the kernel reads `{arguments(report)[place]}`, and it is"
            f" {_type_of(tensors[name])}."
        )
    if dtype == _type_of(tensors[name]):
        return f"That is what `{name}` has. What does the kernel take it for? A `long` has 8 bytes."
    return (
        None if dtype == right[1] else f"The tensor is right, but the kernel does not read {dtype}."
    )


def operator_of(trace: Profile, like: str = FAULTING_KERNEL) -> str:
    """The operator that launched a kernel, without `aten::`. Raises ValueError if the trace has no
    such kernel.
    """
    kernels = trace.events[trace.events["kind"] == "kernel"]
    found = kernels.loc[
        kernels["name"].astype(str).str.contains(like, regex=False), "operator"
    ].dropna()
    if found.empty:
        raise ValueError(f"the trace has no kernel with {like!r} in its name")
    return str(found.iloc[0]).removeprefix("aten::")


def settings_problem(answer: Any, theirs: Mapping[str, str]) -> str | None:
    """What is wrong with settings for the hunt; None if nothing is."""
    if not isinstance(answer, Mapping) or not all(
        isinstance(value, str) for value in answer.values()
    ):
        return "A dictionary from variable to text is asked, such as `theirs`."
    tools, options = answer.get("HSA_TOOLS_LIB", ""), answer.get("ROCM_DEBUG_AGENT_OPTIONS", "")
    if AGENT_NAME not in tools:
        return f"HSA_TOOLS_LIB loads no agent: it needs the name or path of {AGENT_NAME}."
    if not tools.endswith(AGENT_NAME) or re.search(r"[\s:]", tools):
        return "HSA_TOOLS_LIB names more than the agent: a profiler beside it takes the same place."
    words = options.split()
    if unknown := [word for word in words if not word.startswith("--")]:
        return (
            f"Options are cut at blanks, so {unknown[0]!r} is an option of its own: no blanks in"
            " the path."
        )
    if "--all" not in words:
        return "All waves are asked: `--all` is missing."
    if not any(word.startswith("--output=hunt/") for word in words):
        return "The report has no file in `hunt`: `--output=` takes one."
    if any(word.startswith("--save-code-objects") for word in words):
        return "No code objects are asked."
    return _waits_and_caches(answer)


def _waits_and_caches(answer: Mapping[str, str]) -> str | None:
    if answer.get("PYTORCH_NO_HIP_MEMORY_CACHING") != "1":
        return "With PyTorch's cache a wrong index finds memory: which variable switches it off?"
    if answer.get("HSA_DISABLE_FRAGMENT_ALLOCATOR") != "1":
        return (
            "HSA_DISABLE_FRAGMENT_ALLOCATOR was right: without it the runtime cuts large pieces as"
            " well."
        )
    if answer.get("AMD_SERIALIZE_KERNEL") != "3" and answer.get("HIP_LAUNCH_BLOCKING") != "1":
        return "Nobody waits for the kernels: the host runs ahead, and the place is lost."
    return None


def mended(theirs: Mapping[str, str], **changed: str) -> dict[str, str]:
    """`theirs` as it should be, but for what is changed."""
    right = {
        "HSA_TOOLS_LIB": AGENT_NAME,
        "ROCM_DEBUG_AGENT_OPTIONS": "--all --output=hunt/agent.txt",
        "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
        "AMD_SERIALIZE_KERNEL": "3",
    }
    return {**theirs, **right, **changed}


EXERCISES = (
    Exercise(
        id="09.1",
        answer=Property(kinds_problem, kinds),
        mistakes=(
            Mistake(
                lambda ends: kinds(ends) | {"b": ADDRESS},
                "b is not 'wrong address': an instruction",
            ),
            Mistake(
                lambda ends: kinds(ends) | {"d": GPU_MEMORY}, "d is not 'GPU memory': Slurm counts"
            ),
            Mistake(
                lambda ends: kinds(ends) | {"e": ADDRESS},
                "e is not 'wrong address': a library on the processor",
            ),
            Mistake(lambda ends: kinds(ends) | {"c": HOST}, "c is not 'host': PyTorch's allocator"),
            Mistake(
                lambda ends: {**kinds(ends), "f": CHECK},
                "f is not 'failed check': Python names the error",
            ),
            Mistake(lambda ends: {"a": ADDRESS}, "No kind for b, c, d, e, f yet."),
            Mistake(lambda ends: [*kinds(ends).values()], "A dictionary from letter"),
        ),
        hints=(
            "The table at the beginning says who prints what. Who wrote each of these lines?",
            (
                "One names an address, one only an exception in a kernel. Two speak of memory, of"
                " two memories."
            ),
            (
                "`oom_kill` is the node's memory, and a segmentation fault is a crash on the"
                " processor: both are the host."
            ),
        ),
        insight="The last line says whom to ask. The agent answers for two of the six.",
    ),
    Exercise(
        id="09.2",
        answer=Property(misread_problem, misread),
        mistakes=(
            Mistake(lambda data: ("labels", "int32"), "That is what `labels` has."),
            Mistake(
                lambda data: ("logits", "float32"), "`logits` fits: the kernel reads `float const*`"
            ),
            Mistake(lambda data: ("labels", "float32"), "the kernel does not read float32"),
            Mistake(lambda data: "labels", "A pair is asked"),
        ),
        hints=(
            "The name of the kernel in the report ends with the types of its arguments, in order.",
            (
                "`float*` is float32, and a `long` has 8 bytes. Compare with the types that the"
                " cell prints."
            ),
            "The third argument is `long const*`, and the labels have 4 bytes each.",
        ),
        insight=(
            "Two labels are read as one, so nearly every index is far too large. PyTorch's own"
            " operators refuse such labels by their type; a kernel that gets a bare pointer can't."
        ),
    ),
    Exercise(
        id="09.3",
        answer=Text(lambda trace: (f"aten::{operator_of(trace)}", operator_of(trace))),
        mistakes=(
            Mistake(
                lambda trace: f"aten::{operator_of(trace, 'softmax_warp_forward')}",
                "That operator runs just before. It reads all logits of an image, and needs no"
                " label.",
            ),
            Mistake(
                lambda trace: FAULTING_KERNEL,
                "That is the kernel. The column `operator` has what launched it.",
            ),
        ),
        hints=(
            (
                "The table above was made by keeping the kernels with a word in their `name`: keep"
                " others."
            ),
            f'`kernels["name"].str.contains("{FAULTING_KERNEL}")` keeps the rows of this kernel.',
            'Look at `["operator"].unique()` of these rows.',
        ),
        insight=(
            "It belongs to `cross_entropy`, and its only index is the label. So look at the labels"
            " first."
        ),
    ),
    Exercise(
        id="09.4",
        answer=Property(settings_problem, mended),
        mistakes=(
            Mistake(lambda theirs: theirs, "HSA_TOOLS_LIB names more than the agent"),
            Mistake(
                lambda theirs: mended(theirs, HSA_TOOLS_LIB="rocprofv3"),
                "HSA_TOOLS_LIB loads no agent",
            ),
            Mistake(
                lambda theirs: mended(
                    theirs, ROCM_DEBUG_AGENT_OPTIONS=theirs["ROCM_DEBUG_AGENT_OPTIONS"]
                ),
                "Options are cut at blanks",
            ),
            Mistake(
                lambda theirs: mended(theirs, ROCM_DEBUG_AGENT_OPTIONS="--output=hunt/agent.txt"),
                "`--all` is missing",
            ),
            Mistake(
                lambda theirs: mended(theirs, ROCM_DEBUG_AGENT_OPTIONS="--all"),
                "The report has no file",
            ),
            Mistake(
                lambda theirs: mended(theirs, AMD_SERIALIZE_KERNEL="0"),
                "Nobody waits for the kernels",
            ),
            Mistake(
                lambda theirs: mended(theirs, PYTORCH_NO_HIP_MEMORY_CACHING=""),
                "With PyTorch's cache",
            ),
        ),
        hints=(
            (
                "Go through the table of settings, row by row: is each one there, and does its"
                " value keep to the remark?"
            ),
            (
                "One variable loads two tools, one has a blank in a path, and two that the hunt"
                " needs are not there."
            ),
            "`AMD_SERIALIZE_KERNEL` and `PYTORCH_NO_HIP_MEMORY_CACHING` are missing.",
        ),
        insight="Each of these settings costs time, so take them off again when the hunt is over.",
    ),
)

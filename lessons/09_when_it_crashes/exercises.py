"""Exercises of lesson 09: which kernel killed my job? Their data is last lines, a report, a trace
and settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Property, Text

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FAULTING_KERNEL = "nll_loss_forward_reduce_cuda_kernel_2d"
"""The kernel of exercise 09.3, which picks each image's logit by its label."""

ADDRESS, CHECK, GPU_MEMORY, HOST, PYTHON = KINDS = (
    "wrong address",
    "failed check",
    "GPU memory",
    "host",
    "Python",
)

WORDS = {
    "Memory access fault": (ADDRESS, "ROCr reports that the GPU accessed a missing page"),
    "HSA_STATUS_ERROR_EXCEPTION": (
        CHECK,
        "an instruction in the kernel stopped the kernel, and the line contains no address",
    ),
    "OutOfMemoryError": (GPU_MEMORY, "PyTorch's allocator found no free memory on the GPU"),
    "oom_kill": (HOST, "Slurm counts the memory of the node, not the memory of the GPU"),
    "Segmentation fault": (HOST, "a library crashed on the CPU, and GPU faults have other names"),
    "IndexError": (PYTHON, "Python reports the error and its line, so no kernel ran"),
}
"""Words of a last line -> what ended the job, and the reason."""

AGENT_NAME = "librocm-debug-agent.so.2"

Call = tuple[str, Mapping[str, Any]]
"""A report, and the tensors of the call to its kernel, in the order of its arguments."""

TYPES = {"float*": "float32", "float const*": "float32", "long const*": "int64", "long": "int64"}
"""A type in a kernel's name -> its name in PyTorch."""

NO_PAIR = 'Answer with a pair, such as ("picked", "float32").'
OWN_TYPE = (
    "You named the type of the tensor. Name the type that the kernel reads (a `long` has 8 bytes)."
)
OTHER_TYPE = "Your tensor is correct, but your type isn't. Find the type in the kernel's name."
OUTER_OPERATOR = (
    "Your operator only calls the operator that launched the kernel. Read the `operator` column."
)
KERNEL_NAME = (
    "You named the kernel itself. Name the operator that launched the kernel, which is in the"
    " `operator` column."
)
EARLIER_OPERATOR = (
    "Your operator launches the earlier softmax kernel. Filter `kernels` by the name of the"
    " stopped kernel."
)

NO_AGENT = f"`HSA_TOOLS_LIB` doesn't name the agent. Set it to the name or path of {AGENT_NAME}."
TWO_TOOLS = "Your `HSA_TOOLS_LIB` names a second tool. Keep only the agent."
SPACE = "Your path contains a space, which starts a new option. Use a path without spaces."
NO_ALL = "With your settings, the agent prints only the stopped waves. Add `--all`."
NO_OUTPUT = "Your settings don't write the report to a file in `hunt`. Add `--output=hunt/...`."
SAVES_CODE = "Your settings also save code objects. Remove `--save-code-objects`."
CACHED = (
    "PyTorch's cache is still on, so a wrong index can hit valid memory. Set"
    " `PYTORCH_NO_HIP_MEMORY_CACHING` to 1."
)
FRAGMENTS = (
    "The runtime still splits large pieces of memory. Keep `HSA_DISABLE_FRAGMENT_ALLOCATOR` at 1."
)
NO_WAIT = (
    "Your settings don't make the host wait before and after each kernel, so you can't be sure which"
    " launch failed. Set `AMD_SERIALIZE_KERNEL` to 3."
)


def ended_by(text: str) -> tuple[str, str]:
    """Return what ended a job by its last line, and the reason.

    Raises ValueError for a line without known words.
    """
    for words, found in WORDS.items():
        if words in text:
            return found
    raise ValueError(f"no known words in {text!r}")


def kinds(ends: Mapping[str, str]) -> dict[str, str]:
    """Return what ended each job, by letter."""
    return {name: ended_by(text)[0] for name, text in ends.items()}


def kinds_problem(answer: Any, ends: Mapping[str, str]) -> str | None:
    """Return what is wrong with a dictionary from letter to kind, or None."""
    if not isinstance(answer, Mapping):
        return (
            f"Answer with a dictionary that maps each letter to one of these: {', '.join(KINDS)}."
        )
    if missing := [name for name in ends if name not in answer]:
        return f"Your dictionary lacks some letters. Add {', '.join(missing)}."
    for name, text in ends.items():
        kind, why = ended_by(text)
        if answer[name] not in KINDS:
            return f"{name}: use one of these: {', '.join(KINDS)}."
        if answer[name] != kind:
            return f"{name} isn't {answer[name]!r}: {why}. Choose another kind."
    return None


def arguments(report: str) -> list[str]:
    """Return the argument types of the kernel in a report; raises ValueError without a kernel."""
    found = re.search(r"^Disassembly for function \w+\((.*)\):$", report, re.MULTILINE)
    if not found:
        raise ValueError("the report names no kernel: does it come from the Debug Agent?")
    return found[1].split(", ")


def misread(data: Call) -> tuple[str, str]:
    """Return the one tensor that doesn't match its kernel, and the type that the kernel reads.

    Raises ValueError unless there is exactly one.
    """
    report, tensors = data
    reads = dict(zip(tensors, map(TYPES.__getitem__, arguments(report)), strict=True))
    found = [one for one in reads.items() if _type_of(tensors[one[0]]) != one[1]]
    if len(found) != 1:
        raise ValueError(f"{len(found)} tensors don't match the kernel, not one")
    return found[0]


def _type_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def misread_problem(answer: Any, data: Call) -> str | None:
    """Return what is wrong with a name and a type, or None."""
    report, tensors = data
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return NO_PAIR
    name, dtype = answer[0], str(answer[1]).removeprefix("torch.")
    dtype = TYPES.get(dtype, dtype)
    if name not in tensors:
        return f"There is no tensor {name!r}. Choose one of these: {', '.join(tensors)}."
    right = misread(data)
    if name != right[0]:
        reads = arguments(report)[[*tensors].index(name)]
        return (
            f"`{name}` matches the kernel, which reads `{reads}`, because the tensor is"
            f" {_type_of(tensors[name])}. Compare the other tensors."
        )
    if dtype == right[1]:
        return None
    return OWN_TYPE if dtype == _type_of(tensors[name]) else OTHER_TYPE


def operator_of(trace: Profile, like: str = FAULTING_KERNEL) -> str:
    """Return the operator that launched a kernel; raises ValueError for an unknown kernel."""
    kernels = trace.events[trace.events["kind"] == "kernel"]
    named = kernels["name"].astype(str).str.contains(like, regex=False)
    if not named.any():
        raise ValueError(f"the trace has no kernel with {like!r} in its name")
    return str(kernels.loc[named, "operator"].iloc[0])


def settings_problem(answer: Any, theirs: Mapping[str, str]) -> str | None:
    """Return what is wrong with settings for the agent, or None."""
    if not isinstance(answer, Mapping) or not all(isinstance(one, str) for one in answer.values()):
        return "Answer with a dictionary that maps each variable to a string, such as `theirs`."
    tools, options = answer.get("HSA_TOOLS_LIB", ""), answer.get("ROCM_DEBUG_AGENT_OPTIONS", "")
    words = options.split()
    rules = {
        NO_AGENT: AGENT_NAME in tools,
        TWO_TOOLS: tools.endswith(AGENT_NAME) and not re.search(r"[\s:]", tools),
        SPACE: all(word.startswith("--") for word in words),
        NO_ALL: "--all" in words,
        NO_OUTPUT: any(word.startswith("--output=hunt/") for word in words),
        SAVES_CODE: "--save-code-objects" not in options,
        CACHED: answer.get("PYTORCH_NO_HIP_MEMORY_CACHING") == "1",
        FRAGMENTS: answer.get("HSA_DISABLE_FRAGMENT_ALLOCATOR") == "1",
        NO_WAIT: answer.get("AMD_SERIALIZE_KERNEL") == "3"
        or answer.get("HIP_LAUNCH_BLOCKING") == "1",
    }
    return next((reply for reply, holds in rules.items() if not holds), None)


def corrected(theirs: Mapping[str, str], **changed: str) -> dict[str, str]:
    """Return `theirs` with all corrections, except what is changed."""
    right = {
        "HSA_TOOLS_LIB": AGENT_NAME,
        "ROCM_DEBUG_AGENT_OPTIONS": "--all --output=hunt/agent.txt",
        "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
        "AMD_SERIALIZE_KERNEL": "3",
    }
    return {**theirs, **right, **changed}


def _ends_with(letter: str, kind: str) -> Mistake:
    return Mistake(lambda ends: kinds(ends) | {letter: kind}, f"{letter} isn't {kind!r}")


def _settings_with(reply: str, **changed: str) -> Mistake:
    return Mistake(lambda theirs: corrected(theirs, **changed), reply)


EXERCISES = (
    Exercise(
        id="09.1",
        answer=Property(kinds_problem, kinds),
        mistakes=(
            _ends_with("b", ADDRESS),
            _ends_with("d", GPU_MEMORY),
            _ends_with("e", ADDRESS),
            Mistake(lambda ends: {"a": ADDRESS}, "Add b, c, d, e, f."),
        ),
        hints=(
            "Use the first table in the lesson to find out which program wrote each line.",
            "Look for a line with an address, a line about an exception in a kernel, and two lines"
            " about two different kinds of memory.",
            "Count `oom_kill` (the node's memory) and a segmentation fault (a crash on the CPU) as"
            " the host.",
        ),
        insight=(
            "The last line shows which program ended the job. The agent helps with only two of these"
            " six jobs."
        ),
    ),
    Exercise(
        id="09.2",
        answer=Property(misread_problem, misread),
        mistakes=(
            Mistake(lambda data: ("labels", "int32"), OWN_TYPE),
            Mistake(lambda data: ("logits", "float32"), "`logits` matches"),
            Mistake(lambda data: ("labels", "float32"), OTHER_TYPE),
            Mistake(lambda data: "labels", NO_PAIR),
        ),
        hints=(
            "Find the argument types, in order, at the end of the kernel's name.",
            "Compare them with the types that the cell prints. `float*` is float32, and a `long`"
            " has 8 bytes.",
            "Look at the third argument, `long const*`. Each label in the tensor has only 4 bytes.",
        ),
        insight=(
            "The kernel reads two labels as one, so nearly every index is far too large. PyTorch"
            " operators reject such labels, but a kernel that receives a raw pointer can't."
        ),
    ),
    Exercise(
        id="09.3",
        answer=Text(lambda trace: (operator_of(trace), operator_of(trace).removeprefix("aten::"))),
        mistakes=(
            Mistake(lambda trace: operator_of(trace, "softmax_warp_forward"), EARLIER_OPERATOR),
            Mistake(lambda trace: FAULTING_KERNEL, KERNEL_NAME),
            Mistake(lambda trace: "aten::nll_loss", OUTER_OPERATOR),
            Mistake(lambda trace: "aten::cross_entropy_loss", OUTER_OPERATOR),
        ),
        hints=(
            "Filter `kernels` by the name of this kernel, as the cell above does for softmax.",
            f'Keep the rows of `kernels["name"].str.contains("{FAULTING_KERNEL}")`.',
            'Print `["operator"].unique()` of these rows.',
        ),
        insight=(
            "This operator belongs to `cross_entropy`. Its only index is the label, so check the"
            " labels first."
        ),
    ),
    Exercise(
        id="09.4",
        answer=Property(settings_problem, corrected),
        mistakes=(
            Mistake(lambda theirs: theirs, TWO_TOOLS),
            _settings_with(NO_AGENT, HSA_TOOLS_LIB="rocprofv3"),
            _settings_with(SPACE, ROCM_DEBUG_AGENT_OPTIONS="--all --output=hunt/first try/a.txt"),
            _settings_with(NO_ALL, ROCM_DEBUG_AGENT_OPTIONS="--output=hunt/agent.txt"),
            _settings_with(NO_OUTPUT, ROCM_DEBUG_AGENT_OPTIONS="--all"),
            _settings_with(NO_WAIT, AMD_SERIALIZE_KERNEL="0"),
            _settings_with(CACHED, PYTORCH_NO_HIP_MEMORY_CACHING=""),
        ),
        hints=(
            "Go through the settings table, and check whether `theirs` contains the correct value of"
            " each setting.",
            "Correct the variable that loads two tools and the path that contains a space. Then add"
            " two variables.",
            "Add `AMD_SERIALIZE_KERNEL` and `PYTORCH_NO_HIP_MEMORY_CACHING`.",
        ),
        insight="Each of these settings adds overhead, so remove them after you have found the fault.",
    ),
)

"""The constructed report of lesson 09, and what its checks know of last lines, tensors and
settings.
"""

from __future__ import annotations

import pytest
import torch

from proflab.exercises import Outcome, exercises_of, find
from proflab.lessons import lessons

lesson = exercises_of("09")
FOLDER = lessons()["09"].folder

ENDS = {
    "a": "Memory access fault by GPU node-4 on address 0x7f2e4c000000.",
    "b": "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.",
    "c": "torch.OutOfMemoryError: HIP out of memory.",
    "d": "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.",
    "e": "Fatal Python error: Segmentation fault",
    "f": "IndexError: Target 100 is out of bounds.",
}
THEIRS = {
    "HSA_TOOLS_LIB": "librocm-debug-agent.so.2 librocprofiler64.so",
    "ROCM_DEBUG_AGENT_OPTIONS": "--all --output=hunt/first try/agent.txt",
    "HSA_DISABLE_FRAGMENT_ALLOCATOR": "1",
}


def call(**changed: torch.dtype) -> tuple[str, dict[str, torch.Tensor]]:
    """The constructed report, and tensors that fit its kernel but for what is changed."""
    types = {"picked": torch.float32, "logits": torch.float32, "labels": torch.int64} | changed
    report = (FOLDER / "constructed_fault.txt").read_text()
    return report, {name: torch.zeros(4, dtype=dtype) for name, dtype in types.items()}


@pytest.mark.parametrize(
    ("changed", "misread"),
    [
        ({"labels": torch.int32}, ("labels", "int64")),
        ({"logits": torch.float16}, ("logits", "float32")),
        ({"picked": torch.float64}, ("picked", "float32")),
    ],
)
def test_the_tensor_that_does_not_fit_is_found(changed: dict, misread: tuple[str, str]) -> None:
    assert lesson.misread(call(**changed)) == misread
    right = find("09.2").on(call(**changed)).evaluate((misread[0], f"torch.{misread[1]}"))
    assert right.outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("letter", "kind", "words"),
    [
        ("a", "failed check", "a is not 'failed check': the GPU touched a page"),
        ("b", "wrong address", "b is not 'wrong address': an instruction of the kernel stopped it"),
        ("d", "GPU memory", "d is not 'GPU memory': Slurm counts the memory of the node"),
        ("e", "Python", "e is not 'Python': a library on the processor crashed"),
        ("f", "GPU", "f: 'GPU' is none of wrong address"),
    ],
)
def test_each_wrong_kind_gets_its_reason(letter: str, kind: str, words: str) -> None:
    result = find("09.1").on(ENDS).evaluate(lesson.kinds(ENDS) | {letter: kind})
    assert result.outcome is Outcome.WRONG
    assert words in result.message


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"HSA_TOOLS_LIB": THEIRS["HSA_TOOLS_LIB"]}, "names more than the agent"),
        ({"HSA_TOOLS_LIB": THEIRS["HSA_TOOLS_LIB"].replace(" ", ":")}, "names more than the agent"),
        (
            {"ROCM_DEBUG_AGENT_OPTIONS": THEIRS["ROCM_DEBUG_AGENT_OPTIONS"]},
            "'try/agent.txt' is an option of its own",
        ),
        ({"ROCM_DEBUG_AGENT_OPTIONS": "--all --output=agent.txt"}, "no file in `hunt`"),
        ({"PYTORCH_NO_HIP_MEMORY_CACHING": "0"}, "With PyTorch's cache"),
        ({"HSA_DISABLE_FRAGMENT_ALLOCATOR": "0"}, "was right"),
        ({"AMD_SERIALIZE_KERNEL": "1"}, "Nobody waits"),
    ],
)
def test_settings_are_told_what_they_miss(changed: dict[str, str], words: str) -> None:
    result = find("09.4").on(THEIRS).evaluate(lesson.mended(THEIRS, **changed))
    assert result.outcome is Outcome.WRONG
    assert words in result.message

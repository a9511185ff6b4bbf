"""Lesson 09: its constructed report, and replies about last lines, tensors and settings."""

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
    """The constructed report, and tensors that match its kernel except for what is changed."""
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
def test_the_tensor_that_does_not_match_is_found(changed: dict, misread: tuple[str, str]) -> None:
    assert lesson.misread(call(**changed)) == misread
    right = find("09.2").on(call(**changed)).evaluate((misread[0], f"torch.{misread[1]}"))
    assert right.outcome is Outcome.PASSED


@pytest.mark.parametrize("name", ["long", "long const*", torch.int64])
def test_the_kernels_own_name_of_a_type_is_right(name: object) -> None:
    result = find("09.2").on(call(labels=torch.int32)).evaluate(("labels", name))
    assert result.outcome is Outcome.PASSED


def test_either_variable_makes_the_host_wait() -> None:
    settings = lesson.corrected(THEIRS, AMD_SERIALIZE_KERNEL="", HIP_LAUNCH_BLOCKING="1")
    assert find("09.4").on(THEIRS).evaluate(settings).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("letter", "kind", "words"),
    [
        ("a", "failed check", "missing page"),
        ("b", "wrong address", "an instruction"),
        ("d", "GPU memory", "the node"),
        ("e", "Python", "on the CPU"),
        ("f", "GPU", "use one of these"),
    ],
)
def test_each_wrong_kind_gets_its_reason(letter: str, kind: str, words: str) -> None:
    result = find("09.1").on(ENDS).evaluate(lesson.kinds(ENDS) | {letter: kind})
    assert result.outcome is Outcome.WRONG
    assert words in result.message


@pytest.mark.parametrize(
    ("changed", "reply"),
    [
        ({"HSA_TOOLS_LIB": THEIRS["HSA_TOOLS_LIB"]}, lesson.TWO_TOOLS),
        ({"HSA_TOOLS_LIB": THEIRS["HSA_TOOLS_LIB"].replace(" ", ":")}, lesson.TWO_TOOLS),
        ({"ROCM_DEBUG_AGENT_OPTIONS": THEIRS["ROCM_DEBUG_AGENT_OPTIONS"]}, lesson.SPACE),
        ({"ROCM_DEBUG_AGENT_OPTIONS": "--all --output=agent.txt"}, lesson.NO_OUTPUT),
        (
            {"ROCM_DEBUG_AGENT_OPTIONS": "--all --output=hunt/a.txt --save-code-objects=hunt"},
            lesson.SAVES_CODE,
        ),
        ({"PYTORCH_NO_HIP_MEMORY_CACHING": "0"}, lesson.CACHED),
        ({"HSA_DISABLE_FRAGMENT_ALLOCATOR": "0"}, lesson.FRAGMENTS),
        ({"AMD_SERIALIZE_KERNEL": "1"}, lesson.NO_WAIT),
    ],
)
def test_wrong_settings_get_their_reply(changed: dict[str, str], reply: str) -> None:
    result = find("09.4").on(THEIRS).evaluate(lesson.corrected(THEIRS, **changed))
    assert result.outcome is Outcome.WRONG
    assert reply in result.message

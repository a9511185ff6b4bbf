"""Small files that once led to a wrong verdict, each with what is right about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tidyprof_tests.triage.traces import blamed, check_laws, diagnosed, facts, verdict

CASES = Path(__file__).with_name("cases")


@dataclass(frozen=True)
class Truth:
    """The verdicts that are right, a cause that must not be blamed, facts that must be known, and
    words that the verdict or a note must contain because the reader needs them.
    """

    right: set[tuple[str, bool]]
    not_blamed: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    words: str = ""


OPEN = ("inconclusive", False)
TRUTHS = {
    "compiled-and-silent": Truth({("outside-torch", True)}, "recompilation"),
    "compiled-and-waits": Truth(
        {("outside-torch", False), ("outside-torch", True)},
        "recompilation",
        {"outside_part": "between steps"},
    ),
    "compute-stream-lost": Truth({OPEN}, words="450 of 465"),
    "cpu-activities-of-gpu-run": Truth({OPEN}, "no-bottleneck", words="MI300X"),
    "ddp-gloo-straggler": Truth(
        {("straggler", False), OPEN}, facts={"straggler": 1}, words="rank 1"
    ),
    "device-clock-behind": Truth({OPEN}, words="20.9 ms"),
    "graph-replays-with-few-kernels": Truth({OPEN}, words="DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING=0"),
    "launches-without-kernels-at-start": Truth({OPEN}, "launch-bound", words="380 of 665"),
    "share-above-100": Truth({("startup", False), ("startup", True), OPEN}),
    "starved-and-called-healthy": Truth({OPEN}, "no-bottleneck", words="81%"),
    "starved-convnet-in-operators": Truth({OPEN}, "no-bottleneck", words="backward"),
    "starved-lstm-in-operators": Truth({OPEN}, "no-bottleneck", words="backward"),
    "zero-percent-taken": Truth({OPEN}, words="75%"),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_file_that_misled_is_judged_right(name: str) -> None:
    files, truth = [*(CASES / name).iterdir()], TRUTHS[name]
    found = diagnosed(files[0] if len(files) == 1 else CASES / name)
    assert verdict(found) in truth.right
    assert truth.not_blamed not in blamed(found)
    assert truth.facts.items() <= facts(found).items()
    assert truth.words in " ".join((*found.doubts, found.why, found.next_step, *found.notes))
    check_laws(found)


def test_every_case_has_a_truth() -> None:
    assert {folder.name for folder in CASES.iterdir()} == {*TRUTHS}

"""The numbers that triage finds in each stored trace, against `facts.json`, and these against truth.

A person looked through the file when it was written. If you change a rule on purpose, write the
file again and review what moved:

    WRITE_FACTS=1 pytest packages/tidyprof/tests/tidyprof_tests/triage/test_facts.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof_tests.conftest import REPOSITORY, STRANGERS
from tidyprof_tests.triage.facts import (
    EXPECTED,
    PROGRAMS,
    PUBLIC,
    SCRIPTS,
    TRUTHS,
    facts_of,
    read_facts,
    write_facts,
)
from tidyprof_tests.triage.gpu_programs import FORMS, HOST_LIMITED, TRUTH, is_right, triaged

FOUND = read_facts()
MISSED = {
    "torch-mi300-ddp-4ranks-fused/merged_all_events.json.gz",  # docs/triage.md has the reasons
    "paired_views",  # other programs had half of the processor at its recording
    "surgery_clips/cured/given",  # its processes load unevenly, and the recorded steps were quicker
    "mixture_accumulate/sick/alone",  # 384 waits a step, and launches between them as slow
}
"""Where triage says something else than the truth, and is not sure."""


def found_in(path: Path) -> tidyprof.Diagnosis:
    return tidyprof.triage(tidyprof.read(path, python_functions=True))


def is_same(expected: Any, found: Any) -> bool:
    if isinstance(expected, str | None) or isinstance(found, str | None):
        return expected == found
    return found == pytest.approx(expected, rel=1e-4)


def check(name: str, found: tidyprof.Diagnosis) -> None:
    facts = facts_of(found)
    if "WRITE_FACTS" in os.environ:
        write_facts(FOUND | {name: facts})
        FOUND[name] = facts
    moved = {
        key: (FOUND[name].get(key), facts.get(key))
        for key in FOUND[name].keys() | facts.keys()
        if not is_same(FOUND[name].get(key), facts.get(key))
    }
    assert not moved
    shares = found.signs.shares
    assert all(0 <= share <= 1 + 1e-9 for share in (found.share, *shares.values()))
    assert not found.signs.step_ns or sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_recording_has_its_numbers(name: str, recordings: Path) -> None:
    check(name, found_in(recordings / name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_a_third_party_has_its_numbers(name: str) -> None:
    check(name, found_in(STRANGERS / "traces" / name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_a_gpu_has_its_numbers(name: str) -> None:
    check(name, triaged(*name.split("/")))


@pytest.mark.parametrize("name", sorted({*EXPECTED} - {*PUBLIC}))
def test_a_file_that_can_not_be_judged_is_refused(name: str, recordings: Path) -> None:
    with pytest.raises(tidyprof.ProfileReadError):
        tidyprof.read(recordings / name)


def test_the_numbers_are_right_by_their_truths() -> None:
    """At least half of what is right is sure, and nothing that is wrong."""
    wrong = {name for name in PROGRAMS if not is_right(*name.split("/")[:2], FOUND[name])}
    for truths in TRUTHS.values():
        for name in truths.keys() & FOUND.keys():
            right = {truths[name]["cause"], *truths[name].get("also", ())}
            wrong |= {name} if FOUND[name]["cause"] not in right else set()
    assert wrong == MISSED
    assert not any(FOUND[name]["confident"] for name in wrong)
    assert sum(FOUND[name]["confident"] for name in FOUND) > len(FOUND) / 2


def test_the_untraced_step_lies_in_the_estimate_of_most_that_the_host_limits() -> None:
    inside = 0
    for name, form in HOST_LIMITED:
        facts = FOUND[f"{name}/{form}/alone"]
        low, high = (facts[f"signs.observer.estimated_ns.{end}"] for end in ("low", "high"))
        assert high <= 1.6 * low
        inside += low <= 1e6 * TRUTH[name]["untraced_ms"][form] <= high
    assert len(HOST_LIMITED) >= 15
    assert inside >= 0.8 * len(HOST_LIMITED)


def test_the_page_has_these_verdicts() -> None:
    page = (REPOSITORY / "docs/triage-files.md").read_text(encoding="utf-8")
    for name, form in FORMS:
        (row,) = re.findall(rf"^\| {name} \| {form} \|.*\| (.+) \| (.+) \|$", page, re.MULTILINE)
        for how, told in zip(("given", "alone"), row, strict=True):
            facts = FOUND[f"{name}/{form}/{how}"]
            assert told.replace("*", "").split(",")[0] == facts["cause"]
            assert ("," not in told) == facts["confident"]

"""The numbers that triage finds in each stored trace, against `facts.json`, and these against truth.

A person looked through the file when it was written. If you change a rule on purpose, write the
file again and review what moved:

    WRITE_FACTS=1 pytest -n 0 packages/tidyprof/tests/tidyprof_tests/triage/test_facts.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tidyprof
from benchmarks.triage_files import QUIET, as_csv, rates, table
from tidyprof_tests.conftest import THIRD_PARTY, of_the_course
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
from tidyprof_tests.triage.gpu_programs import (
    OTHER_RECORDINGS,
    TRUTH,
    is_right,
    triaged,
    variants_of,
)
from tidyprof_tests.triage.traces import check_laws, diagnosed

FOUND = read_facts()
MISSED = {
    "torch-mi300-ddp-4ranks-fused/merged_all_events.json.gz",  # docs/contributors/validation.md has the reasons
    "paired_views",  # other programs had half of the CPU
    "two_rank_cells",  # likewise, so the ranks wait for each other in turn
    "mixture_accumulate/sick/alone",  # 384 waits per step between slow launches
}
"""Verdicts that differ from the truth. None of them is confident."""


def check(name: str, found: tidyprof.Diagnosis) -> None:
    facts = facts_of(found)
    if "WRITE_FACTS" in os.environ:
        FOUND[name] = facts
        write_facts(FOUND)
    assert facts == FOUND[name]
    check_laws(found)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_recording_has_its_numbers(name: str, recordings: Path) -> None:
    check(name, diagnosed(recordings / name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_a_third_party_has_its_numbers(name: str) -> None:
    check(name, diagnosed(THIRD_PARTY / "traces" / name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_a_gpu_has_its_numbers(name: str) -> None:
    check(name, triaged(*name.split("/")))


@pytest.mark.parametrize("name", sorted({*EXPECTED} - {*PUBLIC}))
def test_a_file_that_can_not_be_judged_is_refused(name: str, recordings: Path) -> None:
    with pytest.raises(tidyprof.ProfileReadError):
        tidyprof.read(recordings / name)


def test_the_verdicts_are_right_by_their_truths() -> None:
    """More than half of all verdicts are confident, and none that is wrong."""
    wrong = {name for name in PROGRAMS if not is_right(*name.split("/")[:2], FOUND[name])}
    for truths in TRUTHS.values():
        for name in truths.keys() & FOUND.keys():
            right = {truths[name]["cause"], *truths[name].get("also", ())}
            wrong |= {name} if FOUND[name]["cause"] not in right else set()
    assert wrong == MISSED
    assert not any(FOUND[name]["confident"] for name in wrong)
    assert sum(FOUND[name]["confident"] for name in FOUND) > len(FOUND) / 2


def test_no_verdict_on_a_running_program_is_wrong_and_confident() -> None:
    """Whether the machine was quiet or busy, and most are right where it was quiet."""
    rows = [row for row in table() if row.collection == "unmodified programs"]
    assert not [row for row in rows if row.right == "no" and row.confident == "yes"]
    quiet = [row.right == "yes" for row in rows if row.conditions == QUIET]
    assert sum(quiet) > 0.75 * len(quiet)


def test_the_estimate_contains_the_unprofiled_step_of_most_variants() -> None:
    inside = []
    for (name, variant), truth in TRUTH.items():
        facts = FOUND[f"{name}/{variant}/alone"]
        inside.append(facts["estimated low"] <= truth["untraced_ms"] <= facts["estimated high"])
    others = variants_of(OTHER_RECORDINGS) if OTHER_RECORDINGS.is_dir() else {}
    for variant, truth in others.items():
        estimated = triaged(*variant, "alone", OTHER_RECORDINGS).overhead.estimated
        inside.append(estimated.low <= 1e6 * truth["untraced_ms"] <= estimated.high)
    assert sum(inside) >= 0.8 * len(inside)


def test_the_files_for_readers_have_these_verdicts() -> None:
    """Otherwise write them again: python -m benchmarks.bench_triage."""
    folder, rows = of_the_course("docs/contributors"), table()
    assert (folder / "triage-files.csv").read_text(encoding="utf-8") == as_csv(rows)
    assert rates(rows) in (folder / "validation.md").read_text(encoding="utf-8")

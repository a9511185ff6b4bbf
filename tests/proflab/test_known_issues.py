"""docs/known-issues.md: complete entries, and one for whatever the doctor points to."""

from __future__ import annotations

import re

import pytest

from proflab.doctor import Issue
from proflab.doctor.faults import Fault, all_faults
from proflab.doctor.report import DOCUMENT
from proflab.doctor.rows import TITLES
from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")
PARTS = ("Symptom", "Check", "Cure", "Versions", "Source")
REPORTED = (
    "pytorch/kineto/pull/1338",
    "pytorch/pytorch/issues/182373",
    "ROCm/legacy-rocm-build/issues/6102",
    "lightseekorg/tokenspeed/pull/1287",
    "pytorch/pytorch/issues/113760",
    "pytorch/kineto/pull/1081",
    "pytorch/pytorch/issues/91682",
    "sgl-project/sglang-omni/pull/2248",
    "pytorch/pytorch/issues/174555",
    "pytorch/kineto/issues/595",
    "ROCm/legacy-rocm-build/issues/3767",
    "ROCm/omnitrace/issues/196",
    "ROCm/rocprofiler-sdk/issues/66",
    "ROCm/rocm-systems/pull/10418",
    "ROCm/TheRock/issues/7003",
    "ROCm/rocm-systems/pull/3315",
    "ACEsuit/mace/issues/435",
    "pytorch/vision/issues/9536",
    "ROCm/MIOpen/issues/2214",
    "pytorch/benchmark/pull/2684",
    "pytorch/pytorch/issues/189110",
    "Comfy-Org/comfy-cli/pull/379",
)
"""Reports that the course, its trainer or the doctor answer to."""


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def entries() -> dict[str, dict[str, str]]:
    """Anchor -> part -> text, in the document's order."""
    found: dict[str, dict[str, str]] = {}
    for heading, body in re.findall(r"^### (.+)\n\n((?:(?!#).+\n?|\n(?!#))*)", TEXT, re.MULTILINE):
        assert slug(heading) not in found, heading
        found[slug(heading)] = dict(re.findall(r"^- \*\*(\w+):\*\* (.+)$", body, re.MULTILINE))
    return found


ENTRIES = entries()


def test_all_headings_are_found() -> None:
    assert len(ENTRIES) == TEXT.count("\n### ") >= 40


@pytest.mark.parametrize("anchor", ENTRIES)
def test_entry_has_its_five_parts(anchor: str) -> None:
    entry = ENTRIES[anchor]
    assert tuple(entry) == PARTS
    for name in PARTS[:-1]:
        assert entry[name].endswith((".", ".`")), f"{name} is no sentence: {entry[name]}"
    addresses = entry["Source"].split()
    assert addresses
    assert all(re.fullmatch(r"<https://[^\s<>]+>", address) for address in addresses)


@pytest.mark.parametrize("issue", Issue)
def test_whatever_the_doctor_points_to_is_there(issue: Issue) -> None:
    assert issue.value in ENTRIES


def rows_named(check: str) -> list[str]:
    """Keys of the doctor's rows that a check names."""
    phrases = re.findall(r"doctor's rows? (`[^`]+`(?:(?:,| and) `[^`]+`)*)", check)
    return [key for phrase in phrases for key in re.findall(r"`([^`]+)`", phrase)]


@pytest.mark.parametrize("fault", all_faults(), ids=lambda fault: fault.issue.value)
def test_fault_rule_and_its_entry_agree(fault: Fault) -> None:
    entry = ENTRIES[fault.issue.value]
    assert fault.tool in rows_named(entry["Check"])
    assert fault.source in entry["Source"]
    for bound in filter(None, (fault.last, fault.fixed_in)):
        assert bound in entry["Versions"] or fault.first in entry["Versions"], bound


@pytest.mark.parametrize("anchor", ENTRIES)
def test_rows_that_an_entry_names_exist(anchor: str) -> None:
    check = ENTRIES[anchor]["Check"]
    assert set(rows_named(check)) <= set(TITLES)
    assert bool(rows_named(check)) == ("the doctor's" in check)


@pytest.mark.parametrize("report", REPORTED)
def test_known_reports_have_an_entry(report: str) -> None:
    assert any(f"<https://github.com/{report}>" in entry["Source"] for entry in ENTRIES.values())

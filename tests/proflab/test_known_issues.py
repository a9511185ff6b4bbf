"""The table of known issues: complete entries, lately looked at, and all that points to one finds
it.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path

import pytest

from proflab.doctor import Issue, findings
from proflab.doctor.findings import LONGEST, KnownIssue, Rule, Versions, all_issues
from proflab.doctor.report import TITLES
from proflab.releases import releases
from tests.conftest import REPOSITORY
from tools.issue_page import PAGE, page, versions

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
    "sgl-project/sglang/pull/35390",
    "ROCm/rocm-systems/issues/10143",
    "ROCm/rocm-systems/pull/11390",
    "ROCm/rocm-systems/pull/10115",
    "ROCm/rocm-systems/issues/1327",
    "lumi-ai-factory/laifs-container-recipes/issues/18",
    "ROCm/rocm-systems/pull/7976",
    "AMD-AGI/Hyperloom/pull/1292",
    "unslothai/unsloth/pull/8821",
    "ROCm/aiter/issues/2407",
    "triton-lang/triton/pull/11249",
    "NVIDIA/nccl/issues/864",
    "pytorch/pytorch/issues/180500",
    "ROCm/rocm-systems/pull/4201",
    "ROCm/rocm-systems/pull/6339",
    "ROCm/rocm-systems/pull/9466",
)
"""Reports that the course, its trainer or the doctor answer to."""

ISSUES = all_issues()


def rows_named(check: str) -> list[str]:
    """Keys of the doctor's rows that a check names."""
    phrases = re.findall(r"doctor's rows? (`[^`]+`(?:(?:,| and) `[^`]+`)*)", check)
    return [key for phrase in phrases for key in re.findall(r"`([^`]+)`", phrase)]


def test_the_page_is_what_the_table_gives() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert text == page()
    assert text.count("\n### ") == len(ISSUES) >= 75
    assert "### The start of a profiler hangs\n\n- **Symptom:** the program stands still" in text


@pytest.mark.parametrize("issue", ISSUES.values(), ids=ISSUES)
def test_entry_is_complete(issue: KnownIssue) -> None:
    for text in (issue.symptom, issue.check, issue.cure):
        assert text.endswith((".", ".`")), f"no sentence: {text}"
    for text in (issue.brief, issue.todo):
        assert len(text) + len("10.0.0: ") < LONGEST
        assert not text.endswith("."), text
        assert not re.match("[A-Z][a-z]+ ", text) or text.split()[0] in (
            "Perfetto",
            "TensorBoard",
        ), text
        assert "|" not in text, text
    assert issue.sources
    assert all(re.fullmatch(r"https://[^\s<>]+", source) for source in issue.sources)
    assert set(rows_named(issue.check)) <= set(TITLES)
    assert bool(rows_named(issue.check)) == ("the doctor's" in issue.check)


def test_every_entry_was_looked_at_within_a_year() -> None:
    """A year of the project's own: the clock of whoever runs this has no say in it."""
    months = (one.date for one in releases() if re.fullmatch(r"[A-Z][a-z]+ 20\d\d", one.date))
    released = [datetime.strptime(month, "%B %Y").date() for month in months]
    assert released
    newest = max(*(issue.looked for issue in ISSUES.values()), *released)
    assert [anchor for anchor, issue in ISSUES.items() if (newest - issue.looked).days > 365] == []


@pytest.mark.parametrize("issue", Issue)
def test_whatever_the_doctor_points_to_is_there(issue: Issue) -> None:
    assert issue in ISSUES


def test_every_rule_belongs_to_a_row_of_the_doctor() -> None:
    rules = [issue for issue in ISSUES.values() if issue.doctor]
    assert len(rules) >= 20
    assert {issue.versions.tool for issue in rules} <= set(TITLES)


@pytest.mark.parametrize("report", REPORTED)
def test_known_reports_have_an_entry(report: str) -> None:
    assert any(f"https://github.com/{report}" in issue.sources for issue in ISSUES.values())


def test_no_cure_is_one_that_is_known_to_fail() -> None:
    """ROCm 7.2.2 mends the system's ROCTracer, and not the copy in a wheel of torch."""
    system, wheel = (
        ISSUES["roctracer-loses-kernels-on-rocm-721"],
        "a-torch-wheel-keeps-the-roctracer-of-its-own-rocm",
    )
    assert "A wheel from pip brings its own" in system.cure
    assert "no wheel" in system.todo
    assert "2.12" in ISSUES[wheel].todo
    assert "LD_PRELOAD" not in ISSUES[wheel].todo + ISSUES[wheel].cure


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Versions("rocm", since="7.2.1", until="7.2.2"), "ROCm from 7.2.1, repaired in 7.2.2"),
        (Versions("rocm", since="6.4.0", last="6.4.0"), "ROCm 6.4.0"),
        (
            Versions("rocm", since="7.2", last="7.2.4", note="seen with 7.2.3"),
            "ROCm 7.2 to 7.2.4; seen with 7.2.3",
        ),
        (Versions("Triton", since="3.7"), "Triton 3.7 and newer"),
        (Versions("rocprof-compute", until="3.7.0"), "rocprof-compute before 3.7.0"),
        (Versions("omnitrace", last="1.7"), "omnitrace up to 1.7"),
        (Versions("torch"), "torch: not stated"),
        (Versions("torch", note="all"), "all"),
    ],
)
def test_versions_in_words(found: Versions, text: str) -> None:
    assert versions(found) == text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"doctor": Rule(serious=True)}, "never end"),
        ({"brief": ""}, "belong together"),
        ({"brief": "", "todo": "", "doctor": Rule(serious=False)}, "belong together"),
    ],
)
def test_entry_that_contradicts_itself_is_refused(changed: dict[str, object], message: str) -> None:
    texts = dict.fromkeys(("section", "heading", "symptom", "check", "cure", "brief", "todo"), "x")
    entry = {
        **texts,
        "versions": Versions("rocm", since="1.0"),
        "sources": [],
        "looked": date(2026, 11, 24),
    }
    KnownIssue(**entry, doctor=Rule(serious=False))
    with pytest.raises(ValueError, match=message):
        KnownIssue(**{**entry, **changed})
    with pytest.raises(ValueError, match="no version number"):
        Versions("rocm", since="some")
    with pytest.raises(ValueError, match="not with both"):
        Versions("rocm", last="1.0", until="1.1")


def test_two_headings_with_one_anchor_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "known_issues.toml"
    table.write_text(
        findings.TABLE.read_text(encoding="utf-8").replace(
            '."Slices that did not end"]', '."No CSV where there used to be one!"]'
        )
    )
    monkeypatch.setattr(findings, "TABLE", table)
    with pytest.raises(ValueError, match="same anchor"):
        all_issues.__wrapped__()

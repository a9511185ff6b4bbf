"""Every verdict of triage has a section in docs/triage.md with a fix, and the lesson that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidyprof.triage.confidence import INCONCLUSIVE, NO_BOTTLENECK
from tidyprof.triage.rules import RULES

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/triage.md"
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", PAGE.read_text("utf-8"), re.M | re.S))


def test_the_page_has_the_verdicts_and_no_others() -> None:
    assert {*SECTIONS} == {*(rule.cause for rule in RULES), NO_BOTTLENECK, INCONCLUSIVE}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.cause)
def test_a_cause_links_to_its_lesson_and_has_a_command_or_code(rule) -> None:
    section = SECTIONS[rule.cause]
    links = [PAGE.parent / link for link in re.findall(r"\]\((\.\./notebooks/.*?)\)", section)]
    assert all(link.is_file() for link in links)
    assert rule.lesson in {link.name[:2] for link in links}
    assert "```" in section or re.search(r"`[a-z-]+ .*--.*`", section)

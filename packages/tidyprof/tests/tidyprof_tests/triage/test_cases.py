"""Small files that once led to a wrong verdict: `cases.toml` has what is right about each."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tidyprof_tests.triage.traces import blamed, check_laws, diagnosed, facts

CASES = Path(__file__).with_name("cases")
TRUTHS = tomllib.loads(CASES.with_suffix(".toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TRUTHS)
def test_a_file_that_misled_is_judged_right(name: str) -> None:
    files, truth = [*(CASES / name).iterdir()], TRUTHS[name]
    found = diagnosed(files[0] if len(files) == 1 else CASES / name)
    assert found.cause + ", confident" * found.confident in truth["right"]
    assert truth.get("not_blamed") not in blamed(found)
    assert truth.get("facts", {}).items() <= facts(found).items()
    shown = " ".join((*found.doubts, found.why, found.next_step, *found.notes))
    assert truth.get("words", "") in shown
    check_laws(found)


def test_every_case_has_a_truth() -> None:
    assert {folder.name for folder in CASES.iterdir()} == {*TRUTHS}

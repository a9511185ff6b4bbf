"""Every number and every denial in triage's sentences, against the raw file by code that tidyprof has no part in."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import tidyprof
from tests.conftest import REPOSITORY
from tests.tidyprof.triage import raw_files
from tests.tidyprof.triage.raw import Truth
from tests.tidyprof.triage.sentences import bare, wrong_advice, wrong_in
from tidyprof.diagnosis.reports import facts, headline

EXPECTED = tomllib.loads((Path(__file__).parent / "expected.toml").read_text())
STRANGERS = REPOSITORY / "tests" / "strangers"
NAMES = [
    *(name for name in EXPECTED if EXPECTED[name]["cause"] != "refused"),
    *sorted(str(path.relative_to(REPOSITORY)) for path in STRANGERS.glob("traces*/*")),
]


def place_of(name: str, recordings: Path) -> Path:
    return (REPOSITORY if name.startswith("tests/") else recordings) / name


@cache
def lines_of(path: Path) -> list[tuple[str, str]]:
    """Label and sentence of each line; a line without a label has the one above it."""
    diagnosis = tidyprof.triage(tidyprof.read(path))
    lines, label = [("headline", headline(diagnosis))], ""
    for own, text in facts(diagnosis):
        label = own or label
        lines.append((label, text))
    return lines


@cache
def truth_of(path: Path) -> Truth:
    return Truth(raw_files.read(path))


def problems(truth: Truth, lines: list[tuple[str, str]]) -> list[str]:
    """What is wrong in the lines of one output."""
    found = []
    for label, text in lines:
        if label in ("next", "not in the files"):
            found += wrong_advice(truth, text)
        if label not in ("next", "origin"):
            found += wrong_in(truth, stated(label, text))
    return found


def stated(label: str, text: str) -> str:
    """The claim of a line: without a command, and without the name of the cause or the word for the verdict."""
    if label in ("takes time, too", "ruled out"):
        return text.partition(": ")[2]
    if label == "headline" and re.match(r"(healthy|can't tell)", text):
        return text.partition(": ")[2]
    return bare(label, text)


@pytest.mark.parametrize("name", NAMES)
def test_every_sentence_is_true_of_the_raw_file(name: str, recordings: Path):
    path = place_of(name, recordings)
    found = problems(truth_of(path), lines_of(path))
    assert not found, "\n".join(found)

"""The constructed reports of lesson 09, what its checks compute from them, and its picture."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import numpy as np
import pytest

from proflab.exercises import Outcome, exercises_of, find
from proflab.lessons import lessons
from proflab.parts.fault_charts import lanes_figure
from tests.conftest import REPOSITORY

lesson = exercises_of("09")
FOLDER = lessons()["09"].folder


@pytest.fixture(scope="module")
def construct() -> ModuleType:
    """scripts/dev/construct_fault.py as a module."""
    spec = importlib.util.spec_from_file_location("construct_fault", REPOSITORY / "scripts/dev/construct_fault.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shipped_files_are_what_the_script_writes(construct: ModuleType) -> None:
    assert {name: (FOLDER / name).read_text(encoding="utf-8") for name in construct.files()} == construct.files()


def test_machine_code_has_the_length_of_its_words(construct: ModuleType) -> None:
    # 19 instructions of 31 words in all: LLVM gave the function a size of 124 bytes.
    places = construct.instruction_addresses()
    assert (len(places), places[0], places[-1] + 4 - places[0]) == (19, 0x1900, 124)


def test_reports_lead_back_to_their_labels(construct: ModuleType) -> None:
    for labels in (construct.misread_labels(), construct.unlabelled()):
        report = construct.report(labels)
        assert lesson.labels_used(report) == labels
        image = lesson.reported_image(report)
        assert construct.addresses(labels)[image] // 4096 * 4096 == construct.faulting_page(labels)


@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        ([3, 10**6, 7], lesson.ONE_LABEL),
        ([-100, 3, -1], lesson.NEGATIVE),
        ([3 << 32 | 8, 99 << 32 | 99, 5], lesson.WRONG_TYPE),
        ([3 << 32 | 8, 0x5A1C_11223344, 5], lesson.NEVER_FILLED),
        ([7, -9, 4_000_000], lesson.NEVER_FILLED),
    ],
)
def test_causes_are_told_apart(labels: list[int], cause: str, construct: ModuleType) -> None:
    report = construct.report([*labels, *[0] * (64 - len(labels))])
    assert lesson.labels_used(report)[: len(labels)] == labels
    assert lesson.cause(report) == cause


def test_labels_in_range_have_no_cause() -> None:
    report = (FOLDER / "constructed_fault.txt").read_text()
    harmless = report.replace("4bc02", "4be00")
    for text in (harmless.partition("wave_1")[0], "no report"):
        assert find("09.4").on(text).evaluate(lesson.ONE_LABEL).outcome is Outcome.NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        (lambda labels, classes: lesson.guard([*labels, -5], classes), "It stops good labels"),
        (lambda labels, classes: None, "For the label 100, the first that is out of range, it lets it pass"),
        (lambda labels, classes: lesson.guard(np.maximum(labels, 0), classes), "For a negative label, it lets it pass"),
        (lambda labels: None, "The check can't work with this answer: TypeError"),
    ],
)
def test_a_guard_is_told_what_it_misses(guard, words: str) -> None:
    result = find("09.6").on(None).evaluate(guard)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_the_picture_says_in_words_what_it_shows(construct: ModuleType) -> None:
    labels = construct.misread_labels()
    addresses, page = construct.addresses(labels), construct.faulting_page(labels)
    figure = lanes_figure(addresses, construct.LOGITS_AT, page, "modelled: by hand")
    far = sum(address - construct.LOGITS_AT > 192e9 for address in addresses)
    assert f"128 points, one for each lane, by their distance from the tensor: {far} " in figure.alternative_text
    assert "1 of them looked at the faulting page" in figure.alternative_text

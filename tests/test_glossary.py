"""docs/glossary.md: complete rows in order, and a lesson that really uses the word."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from proflab.lessons import lessons
from proflab.releases import changes
from proflab.tapes.options import TOOLS
from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / "docs/glossary.md").read_text(encoding="utf-8")
LESSONS = {
    number: lesson.source.read_text(encoding="utf-8") for number, lesson in lessons().items()
}
MEANING, LESSON = "what it is", "lesson"
SIDE_BY_SIDE = ("AMD", "NVIDIA", MEANING, "Intel", LESSON)
COLUMNS = {
    "Side by side: hardware": SIDE_BY_SIDE,
    "Side by side: libraries and runtime": SIDE_BY_SIDE,
    "Side by side: tools": SIDE_BY_SIDE,
    "Words that changed": ("old", "today", "since", "what to know"),
    "Profiling": ("word", MEANING, LESSON),
    "Training": ("word", MEANING, LESSON),
    "Words of this course": ("word", MEANING, LESSON),
}
KEY_TERMS = """
arithmetic intensity, collective, compute unit, correctness gate, device, dispatch, \
exposed communication, GCD, HBM,
HIP, hipBLASLt, host, HSA, Infinity Cache, instrumentation, kernel, launch-bound, LDS, ledger, \
measured, MFMA, MFU,
MIOpen, modelled, occupancy, origin, pathology, queue, RCCL, recorded, replay pass, rocm-smi, \
ROCr, ROCTX, roctracer,
rocprofiler-sdk, roofline, runtime call, sampling, SGPR, step budget, straggler, stream, trace, \
VGPR, wavefront,
work-item, workgroup, XCD, xGMI, CUDA graph, CUPTI, compute-sanitizer, cuBLASLt, cuDNN, \
Nsight Compute, Nsight Systems,
nvidia-smi, NCCL, NVLink, NVTX, shared memory, streaming multiprocessor, tensor core, thread, \
block, warp, omnitrace,
omniperf, rocprofv2
"""


@dataclass(frozen=True)
class Row:
    """One row of a table; `cells` by the columns' names."""

    group: str
    cells: dict[str, str]

    @property
    def word(self) -> str:
        return next(iter(self.cells.values()))

    @property
    def names(self) -> list[str]:
        """The row's word and its other forms, without marks: `wavefront, wave`, `compute unit
        (CU)`.
        """
        parts = re.split(r"[,:()]", re.sub(r"[`*\\]", "", self.word))
        return [part.strip(" .") for part in parts if part.strip()]


def tables() -> dict[str, list[Row]]:
    found = {}
    for group, body in re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", TEXT, re.MULTILINE):
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in re.findall(r"^\|.*\|$", body, re.M)
        ]
        columns = lines[0]
        found[group] = [Row(group, dict(zip(columns, line, strict=True))) for line in lines[2:]]
        assert tuple(columns) == COLUMNS[group]
    return found


TABLES = tables()
ROWS = [row for rows in TABLES.values() for row in rows]


def test_all_tables_are_there():
    assert list(TABLES) == list(COLUMNS)
    assert all(len(rows) >= 5 for rows in TABLES.values())


@pytest.mark.parametrize("group", COLUMNS)
def test_rows_are_in_alphabetical_order(group: str):
    words = [re.sub(r"[`*\\]", "", row.word).casefold() for row in TABLES[group]]
    assert words == sorted(words)
    assert len(set(words)) == len(words)


def test_every_meaning_is_a_sentence():
    for row in ROWS:
        if MEANING in row.cells:
            assert re.fullmatch(r"\W?\w.{14,}[.)]", row.cells[MEANING]), row.word


def test_no_cell_but_a_remark_is_empty():
    for row in ROWS:
        empty = {column for column, text in row.cells.items() if not text}
        assert empty <= {"what to know"}, row.word


def test_the_lesson_of_a_word_uses_it():
    for row in ROWS:
        if row.cells.get(LESSON, "–") == "–":
            continue
        number, target = re.fullmatch(
            r"\[(\d\d)\]\(\.\./notebooks/(.+)\.ipynb\)", row.cells[LESSON]
        ).groups()
        assert target.startswith(number)
        assert (REPOSITORY / "notebooks" / f"{target}.ipynb").is_file()
        text = re.sub(r"\s*\n# ", " ", LESSONS[number])
        forms = "|".join(map(re.escape, row.names))
        assert re.search(rf"(?<!\w)(?:{forms})(?:e?s|e?d|ing|ly)?(?!\w)", text, re.IGNORECASE), (
            row.word
        )


OTHER_SENSE = {"partition"}
"""Words that lessons use for something else, too: a group of nodes, a part of a graph."""


def test_a_dash_stands_only_where_no_lesson_has_the_word():
    texts = " ".join(LESSONS.values())
    dashes = [row for row in ROWS if row.cells.get(LESSON) == "–"]
    used = {name for row in dashes for name in row.names if re.search(rf"\b{name}\b", texts)}
    assert used <= OTHER_SENSE


def test_every_stand_in_is_marked_as_one():
    marked = set(re.findall(r"`([\w.-]+)`\\\*", TEXT))
    assert marked == set(TOOLS)


@pytest.mark.parametrize("term", [term.strip() for term in KEY_TERMS.split(",")])
def test_key_terms_are_explained(term: str):
    assert any(term.casefold() in " ".join(row.cells.values()).casefold() for row in ROWS), term


def test_a_tool_that_is_gone_is_said_to_be():
    gone = {
        name: one.until
        for one in changes()
        for name in one.option.split(", ")
        if one.until and name == one.tool
    }
    assert {"rocm-smi", "rocprof"} <= {*gone}
    for row in TABLES["Words that changed"]:
        for name in {*row.names} & {*gone}:
            assert f"gone in ROCm {gone[name].removesuffix('.0')}" in " ".join(
                row.cells.values()
            ), name

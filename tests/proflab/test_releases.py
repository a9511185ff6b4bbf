"""The table of releases: complete, in order, and answered from as the releases are numbered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proflab.errors import CourseError
from proflab.releases import (
    change,
    changes,
    filled,
    followed,
    has,
    installed,
    newest,
    number,
    release,
    releases,
    shown,
    sources,
)
from tests.conftest import REPOSITORY
from tools.release_page import PAGE, named, page, span


def test_the_table_is_in_order_and_has_its_sources() -> None:
    numbers = [number(one.rocm) for one in releases()]
    assert numbers == sorted(set(numbers))
    assert len({tuple(one.versions) for one in releases()}) == 1
    for one in changes():
        assert one.source in sources(), one
        assert one.since or one.until or len(one.default) > 1, one
    assert len({(one.tool, one.option) for one in changes()}) == len(changes())


def test_the_page_is_what_the_table_gives() -> None:
    assert (REPOSITORY / PAGE).read_text(encoding="utf-8") == page()
    spans = [
        span(change("rocprof-compute", name))
        for name in ("--hip-trace", "--format-rocprof-output rocpd")
    ]
    assert spans == ["up to 7.12", "7.1 to 10.0"]
    assert named("in *_A.csv. `a_b` of -c, e_1") == "in `*_A.csv`. `a_b` of `-c`, `e_1`"


def test_texts_take_the_newest_release_from_the_table() -> None:
    last = releases()[-1]
    text = filled("{newest\nrocm}, {newest rocprof-compute}, {snippet 3.py}")
    versions = f"{newest().rocm}, {newest().versions['rocprof-compute']}"
    assert text == f"{versions}, {{snippet 3.py}}"
    assert shown()[-1] == last.rocm
    with pytest.raises(CourseError):
        filled("up to {newest cuda}")
    typed = re.compile(rf"\bto ({re.escape(newest().rocm)}|{re.escape(last.rocm)})\b")
    for path in (REPOSITORY / "lessons").glob("*/lesson.py"):
        assert not typed.search(path.read_text()), path


@pytest.mark.parametrize(
    ("tool", "option", "has_it", "lacks_it"),
    [
        ("rocprofv3", "--hip-graph-trace", "10.0", "7.14"),
        ("rocprof-compute", "--set", "7.1", "7.0"),
        ("amd-smi", "--append", "7.12", "7.2"),
        ("rocprof-compute", "--format-rocprof-output", "10.0", "10.1"),
    ],
)
def test_options_come_and_go(tool: str, option: str, has_it: str, lacks_it: str) -> None:
    assert has(tool, option, has_it)
    assert not has(tool, option, lacks_it)
    assert has(tool, "--an-option-that-never-changed", lacks_it)


def test_the_release_that_is_followed(tmp_path: Path) -> None:
    (tmp_path / ".info").mkdir()
    assert installed({"ROCM_PATH": str(tmp_path)}) == ""
    (tmp_path / ".info" / "version").write_text("7.2.1-43\n")
    assert followed({}, found=installed({"ROCM_PATH": str(tmp_path)})).rocm == "7.2"
    assert followed({}).rocm == newest().rocm
    assert followed({}, found="7.15").rocm == "7.14"
    assert followed({}, found="6.1").rocm == newest().rocm
    assert followed({"PROFLAB_ROCM": "6.4"}, found="7.2").rocm == "6.4"
    for unknown in ("7.3", "", "new"):
        with pytest.raises(CourseError):
            release(unknown)

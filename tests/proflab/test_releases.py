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


def test_releases_stand_in_their_order_and_name_the_same_tools() -> None:
    numbers = [number(one.rocm) for one in releases()]
    assert numbers == sorted(set(numbers))
    assert len({tuple(one.versions) for one in releases()}) == 1
    assert {"6.4", "7.0", "7.2", "7.14", "10.0", "10.1", "10.2"} <= {one.rocm for one in releases()}


def test_every_change_has_a_source_and_says_what_changed() -> None:
    seen = set()
    for one in changes():
        assert one.source in sources(), one
        assert one.since or one.until or len(one.default) > 1, one
        ordered = [number(rocm) for rocm in one.default]
        assert ordered == sorted(set(ordered)), one
        assert (one.tool, one.option) not in seen
        seen.add((one.tool, one.option))


def test_the_page_is_what_the_table_gives() -> None:
    assert (REPOSITORY / PAGE).read_text(encoding="utf-8") == page()
    row = next(line for line in page().splitlines() if line.startswith("| `--output-format` |"))
    assert row.split(" | ")[2:] == ["all; changed in 7.0", "V3 |"]
    assert [
        span(change("rocprof-compute", name))
        for name in ("--hip-trace", "--format-rocprof-output rocpd")
    ] == [
        "up to 7.12",
        "7.1 to 10.0",
    ]


def test_no_name_on_the_page_turns_into_marks() -> None:
    assert (
        named("in *_A.csv. `a_b` of -c, --d=no, e_1 - _")
        == "in `*_A.csv`. `a_b` of `-c`, `--d=no`, `e_1` - `_`"
    )
    rows = [line for line in page().splitlines() if line.startswith("|")]
    words = [re.sub(r"(`+).*?\1", "", row).replace("**On all:**", "") for row in rows]
    assert [word for word in words if "*" in word or "_" in word] == []


def test_texts_take_the_newest_release_from_the_table() -> None:
    assert (
        filled("from 7.0 to {newest rocm} or {released rocm}, {newest rocprof-compute}")
        == f"from 7.0 to {shown()[-1]} or {newest().rocm},"
        f" {releases()[-1].versions['rocprof-compute']}"
    )
    assert {one.rocm for one in releases() if not one.preview} <= {*shown()}
    assert shown()[-1] == releases()[-1].rocm
    assert filled("up to {released\nrocm}") == f"up to {newest().rocm}", "where a line was folded"
    assert filled("{snippet 03.py} {newest}") == "{snippet 03.py} {newest}"
    with pytest.raises(
        CourseError, match=r"\{newest cuda\}: the table of releases states no 'cuda'"
    ):
        filled("up to {newest cuda}")


def test_no_lesson_types_the_newest_release() -> None:
    typed = re.compile(
        rf"\bto ({'|'.join(map(re.escape, (newest().rocm, releases()[-1].rocm)))})\b"
    )
    found = {
        path: typed.findall(path.read_text())
        for path in (REPOSITORY / "lessons").glob("*/lesson.py")
    }
    assert found
    assert {path.parent.name for path, words in found.items() if words} == set()


def test_a_later_release_has_a_larger_number() -> None:
    assert number("7.2.1") < number("7.14") < number("10.0")
    assert newest().rocm == "10.1"


@pytest.mark.parametrize(
    ("tool", "option", "before", "after"),
    [
        ("rocprofv3", "--hip-graph-trace", "7.14", "10.0"),
        ("rocprof-compute", "--set", "7.0", "7.1"),
        ("amd-smi", "--append", "7.2", "7.12"),
    ],
)
def test_an_option_comes_with_a_release(tool: str, option: str, before: str, after: str) -> None:
    assert not has(tool, option, before)
    assert has(tool, option, after)


def test_an_option_goes_with_a_release_and_others_stay() -> None:
    assert has("rocprof-compute", "--format-rocprof-output", "10.0")
    assert not has("rocprof-compute", "--format-rocprof-output", "10.1")
    assert has("rocprofv3", "--kernel-trace", "6.4")


def test_defaults_hold_from_their_release_on() -> None:
    formats = change("rocprofv3", "--output-format")
    assert [formats.default_in(rocm) for rocm in ("6.4", "7.0", "10.2")] == [
        "csv",
        "rocpd",
        "rocpd",
    ]
    rocpd = change("rocprof-sys", "ROCPROFSYS_USE_ROCPD")
    assert [rocpd.default_in(rocm) for rocm in ("6.4", "7.2", "10.1")] == [None, "false", "true"]
    assert change("rocprofv3", "--runtime-trace").default_in("7.14") == "KFD events too"


def test_the_release_of_this_machine_is_in_its_version_file(tmp_path: Path) -> None:
    assert installed({"ROCM_PATH": str(tmp_path)}) == ""
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info" / "version").write_text("7.2.1-43\n")
    assert followed({}, found=installed({"ROCM_PATH": str(tmp_path)})).rocm == "7.2"


def test_the_release_that_is_followed() -> None:
    assert followed({}).rocm == "10.1"
    assert followed({}, found="7.2.3").rocm == "7.2"
    assert followed({}, found="7.15").rocm == "7.14"
    assert followed({}, found="6.1").rocm == "10.1"
    assert followed({"PROFLAB_ROCM": "6.4"}, found="7.2").rocm == "6.4"
    with pytest.raises(CourseError, match=r"no ROCm '7\.3' in the course's table"):
        followed({"PROFLAB_ROCM": "7.3"})
    for nonsense in ("", "new"):
        with pytest.raises(CourseError, match="no ROCm"):
            release(nonsense)

"""The script that damages thousands of files: every input is counted, also one at which its process
ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import bench_attacks, page, reliability

pytestmark = pytest.mark.long


def test_every_input_is_counted():
    found = reliability.run_group("system", 12)
    counts = Counter(found["counts"])
    assert counts["read"] + counts["refused"] == 12
    assert not counts["other"] + counts["ended"] + counts["analyses other"]
    assert counts["analyses"] == reliability.ANALYSES_EACH * counts["read"]
    assert found["peak"] > 2**20


def test_dumps_of_the_flight_recorder_are_asked_who_is_missing():
    found = reliability.run_group(reliability.RECORDER, 40)
    assert found["counts"]["read"] + found["counts"]["refused"] == 40
    assert found["counts"]["analyses"] == found["counts"]["read"] > 0
    assert found["faults"] == []


def test_attacks_with_archives_and_pickles_do_nothing():
    assert bench_attacks.main(["--only", "archives"]) == 0


def test_the_next_goes_on_where_a_process_ended(monkeypatch, tmp_path):
    """In place of Python a program that ends at input 2, and does nothing about any other."""
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nfirst, last, log = int(sys.argv[-3]),"
        " int(sys.argv[-2]), sys.argv[-1]\nfor number in range(first, last + 1):\n    result ="
        " {'next': number, 'counts': {'refused': number - first}, 'faults': [], 'longest': 1,"
        " 'peak': 1}\n    open(log, 'w').write(json.dumps(result))\n    if number == 2:"
        f" os.kill(os.getpid(), {signal.SIGKILL.value})\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(program))
    found = reliability.run_group("system", 5)
    assert found["counts"] == {"refused": 4, "ended": 1}
    assert found["faults"] == ["2: the process ended with -9"]


def test_a_process_that_cannot_start_is_no_input_that_ends_it(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="could not start"):
        reliability.run_group("system", 5)


@pytest.mark.parametrize("group", reliability.GROUPS)
def test_a_number_makes_the_same_input_again(group, tmp_path):
    sounds = reliability.inputs_of(group, tmp_path)
    for number in range(30):
        first, second = (
            content(reliability.write_input(group, number, sounds, tmp_path)) for _ in range(2)
        )
        assert first == second


def content(path: Path) -> dict[str, bytes]:
    """What is in a file, or in those of a folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name: file.read_bytes() if file.is_file() else b"" for file in files}


@pytest.mark.parametrize("group", ["rocprofv3", "rpd"])
def test_damage_to_whole_rows_is_of_every_kind(group, tmp_path, monkeypatch):
    """Each kind alone leaves another file, and one that is no bug to read."""
    sounds = reliability.inputs_of(group, tmp_path)
    monkeypatch.setattr(reliability, "WHOLE_ROWS", 1)
    kinds = "TEXT_DAMAGE" if sounds[0].is_text else "TABLE_DAMAGE"
    for kind in getattr(reliability, kinds):
        monkeypatch.setattr(reliability, kinds, (kind,))
        counts, faults, changed = Counter(), [], 0
        for number in range(40):
            path = reliability.write_input(group, number, sounds, tmp_path)
            changed += path.read_bytes() not in [sound.content for sound in sounds]
            reliability.tried(path, number, counts, faults)
        assert counts["read"] + counts["refused"] == 40
        assert faults == []
        assert changed


@pytest.mark.parametrize("part", ["inputs", "large files", "learners", "kills", "attacks"])
def test_the_page_has_room_for_the_figures(part, tmp_path):
    text = page.RELIABILITY.read_text(encoding="utf-8")
    assert [text.count(mark) for mark in page.marks(part)] == [1, 1]
    copy = tmp_path / "page.md"
    copy.write_text(text, encoding="utf-8")
    page.write_part(copy, part, "new figures")
    begin, end = page.marks(part)
    before, after = text.partition(begin)[0], text.partition(end)[2]
    assert copy.read_text(encoding="utf-8") == f"{before}{begin}new figures\n{end}{after}"

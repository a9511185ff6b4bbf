"""A rehearsal runs what the learners will run, names what fails, and leaves nothing where it was
started.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat import v4, write

from proflab import __main__, rehearsal
from proflab.lessons import Lesson

FINE, BROKEN = (
    ("print('fine')", "import os; open('left', 'w'); print(os.environ['HOME'])"),
    ("1 / 0",),
)


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of two lessons, of which the second fails."""
    (tmp_path / "notebooks").mkdir()
    for name, sources in {"00_fine": FINE, "01_broken": BROKEN}.items():
        cells = [v4.new_code_cell(source) for source in sources]
        write(v4.new_notebook(cells=cells), tmp_path / "notebooks" / f"{name}.ipynb")
    known = {
        name[:2]: Lesson(tmp_path / "lessons" / name, "Why?", "", 5, ("amd-smi", "srun-of-nobody"))
        for name in ("00_fine", "01_broken")
    }
    monkeypatch.setattr(rehearsal, "lessons_folder", lambda: tmp_path / "lessons")
    monkeypatch.setattr(rehearsal, "lessons", lambda: known)
    monkeypatch.setattr(rehearsal, "lesson", known.__getitem__)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_rehearsal_says_what_failed_and_which_tools_are_real(
    course: Path, capsys: pytest.CaptureFixture[str]
):
    assert __main__.main(["rehearse"]) == 1
    printed = capsys.readouterr().out
    assert "lesson 00: fine" in printed
    assert "ZeroDivisionError: division by zero" in printed
    assert "1 of 2 lessons failed." in printed
    assert "srun-of-nobody: missing" in printed
    assert not (course / "left").exists()
    assert __main__.main(["rehearse", "00", "--keep", "kept"]) == 0
    assert (course / "kept/00_fine/left").exists()


def test_without_notebooks_there_is_one_line(course: Path, capsys: pytest.CaptureFixture[str]):
    (course / "notebooks/00_fine.ipynb").unlink()
    assert __main__.main(["rehearse", "00"]) == 2
    assert "no such notebook; rehearse in a clone" in capsys.readouterr().err

"""A rehearsal runs what the learners will run, names what fails, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat import v4, write

from proflab import __main__, rehearsal
from proflab.lessons import Lesson


def test_a_rehearsal_finds_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "notebooks").mkdir()
    known = {}
    for name, source in {"00_fine": "open('left', 'w')", "01_broken": "1 / 0"}.items():
        notebook = v4.new_notebook(cells=[v4.new_code_cell(source)])
        write(notebook, tmp_path / "notebooks" / f"{name}.ipynb")
        known[name[:2]] = Lesson(tmp_path / "lessons" / name, "Why?", 5, ("srun-of-nobody",))
    monkeypatch.setattr(rehearsal, "lessons_folder", lambda: tmp_path / "lessons")
    monkeypatch.setattr(rehearsal, "lessons", lambda: known)
    monkeypatch.setattr(rehearsal, "lesson", known.__getitem__)
    monkeypatch.chdir(tmp_path)
    assert __main__.main(["rehearse"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("ZeroDivisionError: division by zero") == 2
    assert printed.count("srun-of-nobody: missing") == 2
    assert not (tmp_path / "left").exists()
    assert __main__.main(["rehearse", "00"]) == 0

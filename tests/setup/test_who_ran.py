"""An archive of gpu-check becomes a row of the page, and README's line follows."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.setup.test_gpu_check import FAKE, part, run
from tools import who_ran
from tools.gpu_check.parts import DiffersError


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data and the pages, in a separate folder, where the command runs."""
    (tmp_path / "docs").mkdir()
    for path in (who_ran.DATA, who_ran.PAGE, who_ran.README):
        shutil.copy(REPOSITORY / path, tmp_path / path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_archive_becomes_one_row_and_readmes_line_follows(
    copy: Path, monkeypatch: pytest.MonkeyPatch
):
    assert who_ran.main(["--check"]) == 0
    odd = part("odd", "pass", DiffersError("2 of 12 | <img src=x> [a](http://b)"))
    run(copy, monkeypatch, part("fine", "pass"), odd)
    sent = str(copy / "gpu_check.tar.gz")
    assert who_ran.main([sent, "--name", "Eve Sample"]) == 0
    page = who_ran.PAGE.read_text()
    (row,) = [line for line in page.splitlines() if "Eve Sample" in line]
    assert f"1 x {FAKE.name}" in row
    assert row.count(" | ") == 4
    assert "`2 of 12" in row
    assert f"run on {FAKE.name}" in who_ran.README.read_text()
    assert who_ran.main(["--check"]) == 0
    assert who_ran.main([sent]) == 2
    assert who_ran.PAGE.read_text() == page


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("gpu_check/report.md", b"# GPU check"),
        ("gpu_check/summary.json", b"{}"),
        ("gpu_check/summary.json", b"\x80"),
        ("gpu_check/summary.json", bytes(who_ran.LARGEST_BYTES + 1)),
        ("", b""),
    ],
)
def test_what_is_no_archive_of_the_check_is_refused(copy: Path, name: str, content: bytes):
    path = copy / "sent.tar.gz"
    if name:
        with tarfile.open(path, "w:gz") as target:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))
    assert who_ran.main([str(path)]) == 2
    assert who_ran.DATA.read_text() == (REPOSITORY / who_ran.DATA).read_text()

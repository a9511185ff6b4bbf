"""Who ran the course on what: the page and README say what the data says, and an archive that was
sent becomes a row.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.setup.test_gpu_check import part
from tools import who_ran
from tools.gpu_check import __main__ as check
from tools.gpu_check.parts import DiffersError, Gpus

RUNS = json.loads((REPOSITORY / who_ran.DATA).read_text())
AMD = [run for run in RUNS if run["maker"] == "AMD"]
README = (REPOSITORY / who_ran.README).read_text()


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data and the pages, in a folder of their own, which is where the command runs."""
    (tmp_path / "docs").mkdir()
    for path in (who_ran.DATA, who_ran.PAGE, who_ran.README):
        shutil.copy(REPOSITORY / path, tmp_path / path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def archive(folder: Path, monkeypatch: pytest.MonkeyPatch, gpus: Gpus, *texts: str) -> Path:
    """What `make gpu-check` packs of two parts, one of which differs and says the texts."""
    monkeypatch.setattr(check, "find_gpus", lambda: gpus)
    several = (part("fine", "pass"), part("odd", "pass", DiffersError(" ".join(texts))))
    monkeypatch.setattr(check, "PARTS", several)
    check.main(["--folder", str(folder / "gpu_check")])
    return folder / "gpu_check.tar.gz"


def test_the_page_and_readme_are_what_the_data_gives(copy: Path):
    assert who_ran.main(["--check"]) == 0


def test_an_archive_becomes_a_row_and_readmes_line_follows(
    copy: Path, monkeypatch: pytest.MonkeyPatch
):
    gpus = Gpus("AMD", "AMD Instinct MI300X", 8, "2.14.0+rocm7.2", "HIP 7.2.1")
    sent = archive(copy, monkeypatch, gpus, "2 steps of 12 | <img src=x> [a](http://b)")
    assert who_ran.main([str(sent), "--name", "Ada Example"]) == 0
    head, _, first, *_ = (copy / who_ran.PAGE).read_text().partition("| when")[2].splitlines()
    assert "from whom" in head
    assert "| 8 x AMD Instinct MI300X, `torch 2.14.0+rocm7.2, HIP 7.2.1, Python " in first
    assert "| the part fine | the part odd: **differed**, `2 steps of 12 ¦ <img src=x>" in first
    assert f"| Ada Example; {check.LICENCE} |" in first
    assert "No AMD GPU" not in (copy / who_ran.PAGE).read_text()
    day = who_ran.when(who_ran.sent(sent, "", []))
    assert (
        f"| AMD GPUs | **run on AMD Instinct MI300X ({day}).** We" in Path("README.md").read_text()
    )
    assert who_ran.main(["--check"]) == 0


def test_a_run_has_one_row(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sent = archive(copy, monkeypatch, Gpus("NVIDIA", "Fake 9000", 1, "2.15.0+cu132"))
    assert who_ran.main([str(sent)]) == 0
    pages = [(copy / path).read_bytes() for path in (who_ran.DATA, who_ran.PAGE)]
    assert who_ran.main([str(sent), "--name", "Ada Example"]) == 2
    assert "has its row in docs/who-ran-this.md already" in capsys.readouterr().err
    assert pages == [(copy / path).read_bytes() for path in (who_ran.DATA, who_ran.PAGE)]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("gpu_check/report.md", b"# GPU check", "no summary.json is in it"),
        ("gpu_check/summary.json", b"{}", "is not what gpu-check writes"),
        ("gpu_check/summary.json", b"\x80", "is not what gpu-check writes"),
        ("gpu_check/summary.json", bytes(who_ran.LARGEST_BYTES + 1), "no summary.json is in it"),
        ("", b"", "cannot be unpacked"),
    ],
)
def test_what_is_no_archive_of_the_check_is_refused_in_one_line(
    copy: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, reason: str
):
    path = copy / "sent.tar.gz"
    if name:
        with tarfile.open(path, "w:gz") as target:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))
    assert who_ran.main([str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert reason in said
    assert (copy / who_ran.DATA).read_text() == (REPOSITORY / who_ran.DATA).read_text()

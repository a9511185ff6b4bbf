"""`triage` on many files: each is reduced where it is read, in processes if asked, and nothing is
looked for twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof.triage.printers import as_json
from tidyprof_tests.chrome_writer import HEADER, kernel, write_trace
from tidyprof_tests.conftest import of_the_course


def four() -> Path:
    """A modeled run on four ranks, of which one is late."""
    return of_the_course("recordings/modeled-rank-skew/torch")


def rank_file(path: Path, rank: int | None, begin: int = 1_000_000, length: int = 5_000) -> Path:
    """A trace of one rank of four: a kernel and an all-reduce."""
    path.parent.mkdir(exist_ok=True)
    stated = (
        {}
        if rank is None
        else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}}
    )
    events = [
        kernel("gemm", begin, length, 1),
        kernel("ncclDevKernel", begin + 10_000, 2_000, 2, stream=4),
    ]
    return write_trace(path, events, header=HEADER | stated)


def diagnosed(
    arguments: list[str], target: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str, str]:
    """What `triage` shows, what it complains about, and what it writes as JSON."""
    assert main(["triage", *arguments, "--json", str(target)]) == 0
    shown = capsys.readouterr()
    return shown.out, shown.err, target.read_text()


def test_a_folder_and_its_files_give_one_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    files, target = sorted(map(str, four().glob("*.json.gz"))), tmp_path / "diagnosis.json"
    expected = diagnosed([str(four())], target, capsys)
    assert expected[2] == as_json(tidyprof.diagnose(tidyprof.read(four())))
    assert diagnosed([*files], target, capsys) == expected


@pytest.mark.parametrize(
    ("other", "rank"), [("second_rank/0.json", 0), ("b.json", None)], ids=["twice", "unknown"]
)
def test_mistakes_in_a_folder_are_one_line(
    other: str,
    rank: int | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rank_file(tmp_path / "a_rank0.json", 0)
    rank_file(tmp_path / other, rank)
    assert main(["triage", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert other in error
    assert error.count("\n") == 1


def test_a_folder_of_files_is_what_it_is_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Ranks in the names of folders, a rank of two files one after the other, and what only all
    files tell.
    """
    folder, target = tmp_path / "run", tmp_path / "diagnosis.json"
    folder.mkdir()
    rank_file(folder / "rank10" / "trace.json", None, length=0)
    rank_file(folder / "rank2" / "trace.json", None, begin=1_001_000)
    for later in ((), (folder / "rank2" / "later.json",)):
        for path in later:
            rank_file(path, None, begin=9_000_000)
        whole = tidyprof.read(folder)
        shown, complaints, written = diagnosed([str(folder)], target, capsys)
        assert written == as_json(tidyprof.diagnose(whole))
        assert complaints == "".join(f"warning: {warning}\n" for warning in whole.meta["warnings"])
        assert "kernels last 0 ns" in complaints
        assert shown


BREAKING = {
    "cut": lambda data: data[:-40],
    "empty": lambda data: b"",
    "other": lambda data: b"\x1f\x8b" + data[:60],
    "end": lambda data: data[:300],
    "zeros": lambda data: bytes(5000),
    "page": lambda data: b"<!DOCTYPE html><html>403 Forbidden</html>",
    "start": lambda data: b'{"traceEvents": [{',
}
"""What becomes of a rank's file."""


def four_ranks(folder: Path, broken: dict[int, str]) -> list[Path]:
    """Those of the model's run in which rank 3 is late; files of these ranks are broken so."""
    files = []
    for rank in range(4):
        data = (four() / f"trace_rank{rank}_of_4.json.gz").read_bytes()
        files.append(folder / f"trace_rank{rank}_of_4.json.gz")
        files[-1].write_bytes(BREAKING[broken[rank]](data) if rank in broken else data)
    return files


@pytest.mark.parametrize(
    ("how", "named", "page"),
    [
        *((how, named, False) for how in BREAKING for named in (False, True)),
        ("empty", False, True),
        ("other", True, True),
    ],
)
def test_a_broken_rank_is_left_out_and_the_verdict_says_so(
    how: str, named: bool, page: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "ranks"
    folder.mkdir()
    files = four_ranks(folder, {1: how})
    given = [*map(str, files if named else [folder])]
    options = ["--html", str(tmp_path / "page.html")] if page else []
    shown, complaints, written = diagnosed([*given, *options], tmp_path / "found.json", capsys)
    found = json.loads(written)
    assert found["missing_ranks"] == ["rank 1"]
    assert "rank 1" in " ".join(shown.partition("Why")[0].split())
    assert complaints.count("rank 1") == complaints.count(str(files[1])) == 1
    others = tidyprof.diagnose([tidyprof.read(one) for one in files if one != files[1]])
    assert found["cause"] == others.cause


def test_no_rank_that_can_be_read_is_an_error(tmp_path: Path, capsys):
    files = four_ranks(tmp_path, dict.fromkeys(range(4), "cut"))
    for given in ([str(tmp_path)], [*map(str, files)]):
        assert main(["triage", *given]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1


def test_a_file_that_is_not_there_is_an_error_among_ranks(tmp_path: Path, capsys):
    files = four_ranks(tmp_path, {})
    assert main(["triage", *map(str, files[:2]), str(tmp_path / "trace_rank7.json")]) == 2
    assert "no such file" in capsys.readouterr().err

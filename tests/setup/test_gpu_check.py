"""The check of a machine with a GPU, on one without: parts of a fake, and the real ones on the
processor.
"""

from __future__ import annotations

import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cifar_train.report import device_name
from tidyprof_tests.chrome_writer import small_step, write_trace
from tools.gpu_check import __main__ as check
from tools.gpu_check import parts
from tools.gpu_check.parts import DiffersError, Gpus, NotHereError, Part

FAKE = Gpus("NVIDIA", "Fake 9000", 1, "2.15.0+cu132")


def part(name: str, script: str = "", outcome: str | Exception = "all is well") -> Part:
    def told(gpus: Gpus, folder: Path) -> str:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def commands(gpus: Gpus, folder: Path) -> parts.Commands:
        if not script:
            raise NotHereError("no such tool")
        return {"only": [sys.executable, "-c", script]}

    return Part(name, f"the part {name}", 20, commands, told)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results go; torch sees a made-up GPU."""
    monkeypatch.setattr(check, "find_gpus", lambda: FAKE)
    return tmp_path / "gpu_check"


def run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *several: Part,
    again: tuple[str, ...] = (),
    minutes: int = 30,
) -> int:
    monkeypatch.setattr(check, "PARTS", several)
    options = ["--minutes", str(minutes), *(["--again", *again] if again else [])]
    return check.main(["--folder", str(folder), *options])


def test_without_a_gpu_it_says_so_in_one_line(
    warm: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(check, "PYTHON", warm)
    assert check.main([]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "torch sees no GPU here" in said.err


def test_each_part_stands_alone_and_the_page_says_how_it_went(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    several = (
        part("fine", "print('done')"),
        part("broken", "import sys; sys.exit('no memory')"),
        part("odd", "pass", DiffersError("2 steps of 12")),
        part("bug", "pass", ValueError("a bug")),
        part("elsewhere"),
    )
    assert run(folder, monkeypatch, *several) == 1
    page = (folder / "report.md").read_text()
    assert page in capsys.readouterr().out
    for text in (
        "| the part fine | **passed** |",
        "only: exit code 1",
        "| **differed** | seconds | 2 steps of 12 |",
        "ValueError: a bug",
        "| **could not run** | seconds | no such tool |",
    ):
        assert text in re.sub(r"\| \d+ \|", "| seconds |", page)
    assert (folder / "broken/only.errors").read_text() == "no memory\n"
    assert run(folder, monkeypatch, part("fine", "print('done')"), part("elsewhere")) == 0


def test_what_passed_is_not_done_again_unless_asked(folder: Path, monkeypatch: pytest.MonkeyPatch):
    count = folder.parent / "count"
    counts = part("counts", f"open({str(count)!r}, 'a').write('x')")
    for _ in range(2):
        assert run(folder, monkeypatch, counts) == 0
    assert count.read_text() == "x"
    assert run(folder, monkeypatch, counts, again=("counts",)) == 0
    assert count.read_text() == "xx"
    failing = part("failing", f"open({str(count)!r}, 'a').write('y'); raise SystemExit(3)")
    for _ in range(2):
        assert run(folder, monkeypatch, failing) == 1
    assert count.read_text() == "xxyy"


def test_a_command_without_end_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch):
    endless = replace(part("endless", "import time; time.sleep(10**6)"), minutes=0.01)
    assert run(folder, monkeypatch, endless) == 1
    assert "was ended after 1 s" in (folder / "report.md").read_text()


def test_without_time_left_parts_wait_for_the_next_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    assert run(folder, monkeypatch, part("fine", "print('done')"), minutes=0) == 0
    assert "could not run" in (folder / "report.md").read_text()


def test_the_archive_hides_secrets_and_holds_everything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_SITE_TOKEN", "abcdefghij0123456789")
    assert (
        run(folder, monkeypatch, part("fine", "import os; print(os.environ['MY_SITE_TOKEN'])")) == 0
    )
    with tarfile.open(folder.with_name("gpu_check.tar.gz")) as archive:
        names = archive.getnames()
        log = (
            archive.extractfile(next(name for name in names if name.endswith("only.log")))
            .read()
            .decode()
        )
    assert {Path(name).name for name in names} == {
        "report.md",
        "summary.json",
        "result.json",
        "only.log",
        "only.errors",
    }
    assert "abcdefghij" not in log


def test_the_archive_holds_the_folder_and_nothing_from_elsewhere(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "id").write_text("planted outside")
    links = (
        f"import os; os.symlink({str(elsewhere / 'id')!r}, 'LINK'); os.symlink({str(elsewhere)!r},"
        " 'FOLDER')"
    )
    packed = "open('FOLDER.zip', 'wb').write(b'PK\\x03\\x04 planted inside')"
    place = str(folder / "fine" / "x")
    assert (
        run(
            folder,
            monkeypatch,
            part(
                "fine", f"{links}; {packed}".replace("LINK", place).replace("FOLDER", f"{place}d")
            ),
        )
        == 0
    )
    said = capsys.readouterr().out
    with tarfile.open(folder.with_name("gpu_check.tar.gz")) as archive:
        contents = {entry.name: archive.extractfile(entry).read() for entry in archive}
    assert {Path(name).name for name in contents} == {
        "report.md",
        "summary.json",
        "result.json",
        "only.log",
        "only.errors",
    }
    assert not any(b"planted" in content for content in contents.values())
    assert f"not packed: {place} is a link" in said
    assert f"not packed: {place}d.zip is packed in a way" in said


def test_real_parts_run_and_are_judged_here_on_the_processor(
    tmp_path: Path, warm: str, monkeypatch: pytest.MonkeyPatch
):
    for name, value in {
        "DEVICE": "cpu",
        "MODELS": ("resnet",),
        "PRECISIONS": ("float32",),
        "STEPS": 6,
        "BATCH": 2,
        "PYTHON": warm,
    }.items():
        monkeypatch.setattr(parts, name, value)
    here = replace(FAKE, name=device_name(torch.device("cpu")))
    for name in ("training", "ranks"):
        place = tmp_path / name
        place.mkdir()
        tried = next(one for one in parts.PARTS if one.name == name)
        for log, command in tried.commands(here, place).items():
            assert check.run(command, place / f"{log}.log", 1200) == "", (
                place / f"{log}.errors"
            ).read_text()
        assert tried.check(here, place).startswith("images/s: ")
    with pytest.raises(DiffersError, match="steps of 6 on"):
        tried.check(FAKE, place)
    monkeypatch.setattr(parts, "STEPS", 7)
    with pytest.raises(DiffersError, match="6 steps of 7"):
        tried.check(here, place)


def test_amds_tools_are_not_asked_for_on_another_gpu(tmp_path: Path):
    for name in ("lessons", "jobs", "model"):
        tried = next(one for one in parts.PARTS if one.name == name)
        with pytest.raises(NotHereError):
            tried.commands(FAKE, tmp_path)


def test_the_model_is_compared_with_the_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    amd = Gpus("AMD", "AMD Instinct MI300X", 8, "2.14.0+rocm7.2")
    tried = model_part(monkeypatch)
    (command,) = tried.commands(amd, tmp_path / "model").values()
    for folder in ("model", "traces"):
        again = [
            str(tmp_path / folder / "resnet") if word.endswith("model/resnet") else word
            for word in command
        ]
        log = tmp_path / f"{folder}.log"
        assert check.run(again, log, 1200) == "", log.with_suffix(".errors").read_text()
    assert tried.check(amd, tmp_path / "model").endswith("(+0%)")


def test_a_trace_without_kernels_is_nothing_to_compare_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
):
    on_host = [event for event in small_step() if event.category != "kernel"]
    for name, events in (("model", small_step()), ("traces", on_host)):
        (tmp_path / name / "resnet").mkdir(parents=True)
        write_trace(tmp_path / name / "resnet" / "trace_rank0_of_1.json", events)
    with pytest.raises(DiffersError, match="resnet: 0 kernels"):
        model_part(monkeypatch).check(FAKE, tmp_path / "model")
    assert not recwarn.list


def test_without_traces_the_model_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(NotHereError, match="no trace to compare"):
        model_part(monkeypatch).check(FAKE, tmp_path / "model")


def model_part(monkeypatch: pytest.MonkeyPatch) -> Part:
    monkeypatch.setattr(parts, "MODELS", ("resnet",))
    return next(one for one in parts.PARTS if one.name == "model")

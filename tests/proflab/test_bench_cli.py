"""The command line, and what importing the packages may not load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from proflab import journal
from proflab.__main__ import main
from proflab.recordings import load_manifest

HEAVY = ("torch", "torchvision", "transformers", "pandas", "pyarrow", "matplotlib", "rich")
LIGHT = (
    "import proflab, tidyprof",
    "import proflab.exercises, proflab.predictions, proflab.recordings, proflab.session",
    "import proflab.doctor, proflab.perfetto_button",
    "from proflab.__main__ import build_parser; build_parser().format_help()",
    "proflab.predict('02.a', 1.0)",
)
"""What a learner should not wait for."""


def heavy_after(lines: Sequence[str]) -> list[str]:
    """The heavy packages that a fresh Python has loaded after the lines."""
    watch = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    program = "\n".join([*lines, watch])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1].replace("'", '"'))


def test_light_parts_load_nothing_heavy() -> None:
    assert heavy_after(LIGHT) == []


def test_start_does_not_import_torch() -> None:
    assert "torch" not in heavy_after(["import proflab; proflab.start('02')"])


def test_recordings_lists_all_with_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recordings"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    found = {row[0]: row[-1] for row in rows}
    for name, entry in load_manifest().items():
        assert found[name] == ("cut" if entry.cut else "here" if entry.has_address else "shipped")


def test_recordings_names_a_damaged_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = load_manifest()["torch-mi250-minitoy"].files[0].path
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(b"cut off")
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(tmp_path))
    assert main(["recordings"]) == 0
    assert f"mirror: {file}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["fetch", "torch-mi250-minitoy", "rpd-mi200-matmul"], 2),
        (["fetch", "no-such-thing"], 1),
        (["progress", "--runs", "nowhere"], 1),
        (["progress", "--page", "page.html"], 1),
        (["progress", "--lesson", "97", "--runs", "runs"], 1),
        (["findings", "--html", "none/x.html"], 1),
    ],
)
def test_a_users_mistake_is_one_line_each(
    bench: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    lines: int,
) -> None:
    monkeypatch.chdir(bench.parent)
    if "--runs" in arguments:
        journal.append("progress.jsonl", {"exercise": "99.1", "event": "hint"})
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("error: ") == lines


def learner(path: Path, *records: tuple[str, str, str]) -> None:
    """Write a progress file of these exercises, events and outcomes."""
    path.parent.mkdir(exist_ok=True)
    for id, event, outcome in records:
        record = {"exercise": id, "event": event, "outcome": outcome}
        if outcome == "wrong":
            record |= {"mistake": 0, "said": "That is the sum."}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")


WRONG, PASSED, HINT = (
    ("99.1", "check", "wrong"),
    ("99.1", "check", "passed"),
    ("99.1", "hint", ""),
)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith("99")]


def test_progress_of_one_learner_and_of_a_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    room = tmp_path / "room"
    learner(room / "anna.jsonl", WRONG, WRONG, HINT, HINT, PASSED)
    learner(room / "ben.jsonl", WRONG, ("99.2", "check", "not attempted"), ("99.1", "solution", ""))
    learner(room / "cara.jsonl", ("99.2", "check", "passed"))
    (room / "dora.jsonl").write_text(json.dumps({"exercise": "99.1"}) + "\n{")
    (room / "eve.jsonl").write_bytes(b"\x80\x00 no progress file\n")
    assert main(["progress", "--runs", str(room)]) == 0
    assert rows(capsys.readouterr().out) == [["99", "2", "1", "5", "1", "1", "1"]]
    assert main(["progress", "--runs", str(room), "--lesson", "99"]) == 0
    out = capsys.readouterr().out
    assert rows(out) == [
        ["99.1", "1", "1", "2", "2", "1", "1"],
        ["99.2", "1", "0", "3", "1", "0", "0"],
    ]
    assert ": 2. That is the sum." in out
    assert ("dora.jsonl" in out, "eve.jsonl" in out, "anna" in out) == (True, True, False)
    several = [str(room / f"{name}.jsonl") for name in ("anna", "ben", "anna")]
    assert main(["progress", "--lesson", "99", "--runs", *several]) == 0
    assert rows(capsys.readouterr().out)[0] == ["99.1", "1", "1", "0", "2", "1", "1"]


def test_progress_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learner(tmp_path / "runs" / "<b>.jsonl", PASSED)
    (tmp_path / "runs" / "<c>.jsonl").write_text("[")
    assert main(["progress", "--runs", "runs", "--page", "page.html"]) == 0
    text = Path("page.html").read_text()
    assert "&lt;c&gt;.jsonl" in text
    assert not {"src=", "href=", "url(", "@import"} & set(text.split())


def test_reader_that_stops_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "proflab", "recordings"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("program", "word"),
    [("tidyprof", "sumary"), ("proflab", "docter"), ("cifar-train", "--max-step=3")],
)
def test_each_program_starts_and_refuses_a_wrong_word(program: str, word: str) -> None:
    command = [str(Path(sys.executable).with_name(program))]
    assert subprocess.run([*command, "--version"], capture_output=True).returncode == 0
    done = subprocess.run([*command, word], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)

"""The command line, and what importing the packages may not load."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from proflab import journal
from proflab.__main__ import EXAMPLES, main
from proflab.doctor.findings import Finding, Status
from proflab.doctor.report import COLOURS, Report
from proflab.lessons import lessons
from proflab.recordings import load_manifest
from tests.public_recordings import Mirror
from tidyprof.cli.output import QUIET
from tidyprof.plots.style import MINIMUM_CONTRAST, contrast

HEAVY = ("torch", "torchvision", "transformers", "pandas", "pyarrow", "matplotlib", "rich")

LIGHT = (
    "import proflab, tidyprof",
    (
        "import proflab.exercises, proflab.predictions, proflab.recordings, proflab.session,"
        " proflab.progress"
    ),
    "import proflab.doctor.checkup, proflab.perfetto_button",
    "from proflab.__main__ import build_parser; build_parser().format_help()",
    "import tools.notebooks, tools.notebook_lint",
    "proflab.predict('02.a', 1.0); proflab.reveal('02.a', 2.0)",
    "proflab.try_recording('torch-mi210-gpu-only')",
)
"""What a learner should not wait for, one after the other; the last two print, which takes rich."""


def heavy_after(lines: Sequence[str]) -> dict[str, list[str]]:
    """The heavy packages that a fresh Python has loaded after each of the lines, where there are
    some.
    """
    watch = f"""import json, sys
found = {{}}
for line in {lines!r}:
    exec(line)
    found[line] = [name for name in {HEAVY!r} if name in sys.modules]
sys.stderr.write(json.dumps({{line: names for line, names in found.items() if names}}))"""
    done = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, check=True)
    return json.loads(done.stderr)


def test_light_parts_load_nothing_heavy() -> None:
    assert heavy_after(LIGHT) == {line: ["rich"] for line in LIGHT[-2:]}


def test_start_does_not_import_torch() -> None:
    begin = "import proflab; proflab.start('02')"
    assert "torch" not in heavy_after([begin]).get(begin, [])


def test_unknown_attribute_is_an_attribute_error() -> None:
    import proflab

    assert "recording" in dir(proflab)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = proflab.nothing


def test_recordings_lists_all_with_their_place(
    recordings: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    assert main(["recordings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in load_manifest():
        (row,) = [line for line in lines if line.startswith(f"{name} ")]
        assert row.endswith(("mirror", "shipped"))


def test_recordings_says_which_are_cut_and_what_gets_the_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["recordings"]) == 0
    out = capsys.readouterr().out
    found = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.strip()}
    assert {name for name in load_manifest() if found[name] == "cut"} == {
        name for name, entry in load_manifest().items() if entry.cut
    }
    assert "`proflab fetch NAME` gets the whole file" in out


@pytest.mark.parametrize("command", ["recordings", "case"])
def test_no_word_is_broken_on_a_narrow_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for width in (80, 400):
        monkeypatch.setattr("proflab.display.terminal_width", lambda width=width: width)
        assert main([command]) == 0
        shown[width] = capsys.readouterr().out
    assert max(map(len, shown[80].splitlines())) <= 80
    words = set(re.findall(r"[\w-]+", shown[400]))
    assert not set(re.findall(r"[\w-]+", shown[80])) - words


def test_recordings_names_a_damaged_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = load_manifest()["torch-mi250-minitoy"]
    (tmp_path / "mirror" / entry.name).mkdir(parents=True)
    (tmp_path / "mirror" / entry.files[0].path).write_bytes(b"cut off")
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(tmp_path / "mirror"))
    assert main(["recordings"]) == 0
    out = capsys.readouterr().out
    assert f"mirror: {entry.files[0].path} is damaged or changed" in out
    assert next(line for line in out.splitlines() if line.startswith(entry.name)).endswith(
        "not here"
    )


def test_fetch_says_where_and_under_which_licence(
    recordings: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    assert main(["fetch", "torch-mi210-gpu-only"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("torch-mi210-gpu-only: mirror, ")
    assert "(MIT, Copyright" in out


def test_fetch_without_network_is_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "torch-mi210-gpu-only", "rpd-mi200-matmul"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "error: recording torch-mi210-gpu-only",
        "error: recording rpd-mi200-matmul",
    ]


def test_fetch_of_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "no-such-thing"]) == 2
    assert capsys.readouterr().err.startswith("error: there is no recording 'no-such-thing'")


def test_an_error_on_a_terminal_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "no-such-thing"]) == 2
    line = capsys.readouterr().err
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["fetch", "no-such-thing"]) == 2
    shown = sys.stderr.getvalue().splitlines()
    assert max(map(len, shown)) <= 40 < len(line)
    assert " ".join(map(str.strip, shown)) + "\n" == line


def test_progress_table(
    bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(
        bench.parent
    )  # away from what was worked on beside the course's own notebooks
    assert main(["progress", "--page", "page.html"]) == 2
    assert "there is no progress yet" in capsys.readouterr().err
    assert main(["progress"]) == 0
    assert capsys.readouterr().out.startswith("no exercise answered yet; ")
    for outcome in ("wrong", "passed", "wrong"):
        journal.append("progress.jsonl", {"exercise": "99.1", "event": "check", "outcome": outcome})
    journal.append("progress.jsonl", {"exercise": "99.1", "event": "hint", "number": 1})
    journal.append(
        "progress.jsonl", {"exercise": "99.10", "event": "check", "outcome": "not attempted"}
    )
    journal.append("progress.jsonl", {"exercise": "99.2", "event": "check", "outcome": "wrong"})
    assert main(["progress", "--lesson", "99"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    ours = [row for row in rows if row and row[0].startswith("99.")]
    assert ours == [
        ["99.1", "passed", "3", "hint"],
        ["99.2", "wrong", "1"],
        ["99.10", "not", "attempted", "1"],
    ]
    assert main(["progress", "--runs", str(bench)]) == 0


def test_progress_is_a_line_for_each_lesson_and_the_exercises_of_those_named(
    bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for lesson, place, said in (("98", 0, "once"), ("99", 0, "once"), ("99", 1, "twice " * 20)):
        for _ in range(place + 1):
            record = {"exercise": f"{lesson}.1", "event": "check", "outcome": "wrong"}
            journal.append("progress.jsonl", record | {"mistake": place, "said": said})
    journal.append("progress.jsonl", {"exercise": "99.2", "event": "solution"})
    monkeypatch.setattr("proflab.display.terminal_width", lambda *_: 80)
    assert main(["progress", "--runs", str(bench)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if re.match(r"\d\d ", line)]) == len(lessons()) + 2
    (row,) = (line.split() for line in lines if line.startswith("99 "))
    assert row[:6] == ["99", "0", "1", "1", "1", "99.1:"]
    assert row[6:] == ["twice", "twice", "twice", "twice", "…"]
    assert main(["progress", "--runs", str(bench), "--lesson", "98"]) == 0
    out = capsys.readouterr().out
    assert "98.1" in out
    assert "99" not in out
    assert main(["progress", "--runs", str(bench), "--lesson", "97"]) == 2
    assert "--lesson 97: there is no exercise of such a lesson; did you mean" in (
        capsys.readouterr().err
    )


def learner(path: Path, *records: tuple[str, str, str]) -> Path:
    """A progress file of these exercises, events and outcomes."""
    path.parent.mkdir(exist_ok=True)
    lines = [{"exercise": id, "event": event, "outcome": outcome} for id, event, outcome in records]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_progress_of_a_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    room = tmp_path / "room"
    wrong, passed, hint = (
        ("99.1", "check", "wrong"),
        ("99.1", "check", "passed"),
        ("99.1", "hint", ""),
    )
    learner(room / "anna.jsonl", wrong, wrong, hint, hint, passed)
    learner(room / "ben.jsonl", wrong, ("99.2", "check", "not attempted"), ("99.1", "solution", ""))
    learner(room / "cara.jsonl", ("99.2", "check", "passed"))
    cut = learner(room / "dora.jsonl", passed, passed)
    cut.write_text(cut.read_text()[:-20])
    (room / "eve.jsonl").write_bytes(b"\x80\x00 no progress file\n" + b"[" * 100_000)
    assert main(["progress", "--runs", str(room)]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("99 "))
    assert row.split() == ["99", "3", "1", "4", "2"]
    assert main(["progress", "--runs", str(room), "--lesson", "99"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Progress of 4 participants"
    ours = [line.split() for line in out if line.startswith("99.")]
    assert ours == [["99.1", "2", "1", "1", "1", "1", "1"], ["99.2", "1", "0", "3", "1", "0", "0"]]
    assert out[-2:] == [
        "dora.jsonl: 1 damaged line, the others count",
        "eve.jsonl: 2 damaged lines, nothing is left of it, not counted",
    ]
    assert max(map(len, out)) <= 80
    assert (
        main(
            [
                "progress",
                "--runs",
                *(str(room / f"{name}.jsonl") for name in ("anna", "ben", "anna")),
                "--lesson",
                "99",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("Progress of 2 participants\n")
    assert ["99.1", "1", "1", "0", "2", "1", "1"] in [line.split() for line in out.splitlines()]


def test_a_room_is_told_the_mistakes_that_most_people_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {"anna": [0, 0, 1], "ben": [1], "cara": [1], "dora": [None]}
    for name, places in made.items():
        lines = [
            {"exercise": "99.1", "mistake": place, "said": f"{name} took it for {place}."}
            for place in places
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text)
    assert main(["progress", "--runs", str(tmp_path)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Mistake")]
    assert told == [
        "Mistake in 99.1, made by 3 participants: cara took it for 1.",
        "Mistake in 99.1, made by 1 participant: anna took it for 0.",
    ]


def test_progress_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    room, page = tmp_path / "room", tmp_path / "progress.html"
    one = learner(room / "anna.jsonl", ("99.1", "check", "passed"), ("99.1", "hint", ""))
    assert main(["progress", "--lesson", "99", "--runs", str(one), "--page", str(page)]) == 0
    own = page.read_text()
    assert all(f">{text}</td>" in own for text in ("99.1", "passed", "hint"))
    learner(room / "<b>.jsonl", ("99.1", "check", "wrong")).write_text("[")
    assert main(["progress", "--runs", str(room), "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "Progress of 1 participant<" in text
    assert "&lt;b&gt;.jsonl: 1 damaged line" in text
    assert "anna" not in text
    assert not re.search(r"(?:src|href)=|url\(|@import", text)  # it needs nothing else
    assert "@media screen" in text  # paper is white
    assert capsys.readouterr().out == ""
    assert main(["progress", "--runs", str(room), "--page", str(tmp_path / "none/x.html")]) == 2
    assert "none/x.html: can't be written (No such file or directory)" in capsys.readouterr().err


def test_progress_of_several_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        learner(folder / "progress.jsonl", ("99.1", "check", "passed"))
    assert main(["progress", "--runs", *map(str, folders)]) == 0
    assert "Progress of 2 participants" in capsys.readouterr().out
    assert main(["progress", "--runs", str(folders[0]), str(tmp_path / "nobody")]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: {tmp_path / 'nobody'}: there is no progress yet"
    )


def test_progress_is_found_beside_the_notebooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PROFLAB_RUNS")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    journal.append("progress.jsonl", {"exercise": "99.1", "event": "check", "outcome": "passed"})
    monkeypatch.chdir(tmp_path)
    assert main(["progress"]) == 0
    assert "\n99 " in capsys.readouterr().out


def test_without_a_command_all_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    line = capsys.readouterr().err
    assert set(re.split(", |; ", line.partition("choose one of ")[2])) > set(EXAMPLES)
    assert line.count("\n") == 1


def test_help_and_usage_errors() -> None:
    for arguments, code in (
        (["--help"], 0),
        (["fetch", "--help"], 0),
        ([], 2),
        (["fetch"], 2),
        (["nonsense"], 2),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == code


def test_reader_that_stops_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "proflab", "recordings"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


PROGRAMS = {
    "tidyprof": ("sumary", "did you mean summary?"),
    "proflab": ("docter", "did you mean doctor?"),
    "cifar-train": ("--max-step=3", "did you mean --max-steps?"),
}
"""Program -> a mistyped word, and what is said about it."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("as_module", [False, True])
def test_each_program_names_itself_as_it_was_typed_and_helps_with_a_wrong_word(
    name: str, as_module: bool
) -> None:
    module = name.replace("-", "_")
    start = (
        [sys.executable, "-m", module] if as_module else [str(Path(sys.executable).with_name(name))]
    )
    typed = f"python -m {module}" if as_module else name

    def run(word: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*start, word], capture_output=True, text=True)

    assert run("--help").stdout.startswith(f"usage: {typed} ")
    word, meant = PROGRAMS[name]
    wrong = run(word)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    (line,) = wrong.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(f"; {meant}; see {typed} --help")
    brought_by = "tidyprof" if module == "tidyprof" else "rocm-profiling-course"
    for option in ("-V", "--version"):
        assert run(option).stdout == f"{module if as_module else name} {version(brought_by)}\n"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tidyprof tri", "triage"),
        ("tidyprof kernels --per", "--per-device"),
        ("proflab reh", "rehearse"),
        ("cifar-train --model swin", "swinv2"),
    ],
)
def test_a_shell_completes_each_program(line: str, offered: str, tmp_path: Path) -> None:
    """What argcomplete's function in a shell asks, with the answer in a file instead of descriptor
    8.
    """
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    target = tmp_path / "offered"
    command = [str(Path(sys.executable).with_name(line.split()[0]))]
    environment = os.environ | asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(target)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert target.read_text().split() == [offered]


class Terminal(io.StringIO):
    """What is written to it counts as shown on a terminal."""

    def isatty(self) -> bool:
        return True


def rgb(code: int) -> str:
    """A colour of the 6 x 6 x 6 cube, or a grey, of xterm's 256."""
    levels = (0, 95, 135, 175, 215, 255)
    cube = [levels[(code - 16) // step % 6] for step in (36, 6, 1)]
    return "#{:02x}{:02x}{:02x}".format(*(cube if code < 232 else 3 * [8 + 10 * (code - 232)]))


@pytest.mark.parametrize("looks", [*COLOURS.values(), QUIET])
def test_colours_of_a_terminal_can_be_read_on_black_and_on_white(looks: str) -> None:
    (code,) = re.findall(r"38;5;(\d+)m|color\((\d+)\)", looks)
    colour = rgb(int("".join(code)))
    assert min(contrast(colour, ground) for ground in ("#000000", "#ffffff")) >= MINIMUM_CONTRAST


def test_no_color_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report.of(
        [Finding("python", Status.OK, "3.11"), Finding("rocm", Status.NOTE, "not here")], 1.0
    )
    for variable, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", variable)
        terminal = Terminal()
        report.print(terminal, 80)
        assert ("\x1b" in terminal.getvalue()) == coloured

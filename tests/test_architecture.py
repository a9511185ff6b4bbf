"""docs/architecture.md: its picture and its tables are what the code imports and does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.test_rooms import PACKAGES, SOURCES, modules, modules_of_all, needs
from tidyprof_tests.rocpd_writer import small_database

PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE = (REPOSITORY / "docs" / "architecture.svg").read_text(encoding="utf-8")
TRACE = "torch-mi250-minitoy/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
MOST_FILES, MOST_ROOMS = 8, 4


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose head begins with this word."""
    table = re.search(rf"^\| {heading} \|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def stated(heading: str) -> dict[str, set[str]]:
    return {names(row[0]).pop(): names(row[-1]) for row in rows(heading)}


def packages() -> dict[str, set[str]]:
    """Which packages each one imports."""
    known = modules_of_all()
    found: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for name in known:
        package = name.split(".")[0]
        found[package] |= {needed.split(".")[0] for needed in needs(name, known)} - {package}
    return found


def rooms(package: str) -> dict[str, set[str]]:
    """Which of a package's folders each one imports; modules beside the folders are in none."""
    known = modules(package)
    folders = {name.split(".")[1] for name in known if name.count(".") > 1}
    room_of = {
        name: next((part for part in name.split(".")[1:2] if part in folders), "") for name in known
    }
    found: dict[str, set[str]] = {room: set() for room in folders}
    for name, room in room_of.items():
        if room:
            found[room] |= {room_of[needed] for needed in needs(name, known)} - {room, ""}
    return found


def test_packages_know_each_other_as_the_page_says():
    assert stated("Package") == packages()


def test_the_rooms_of_tidyprof_import_each_other_as_the_page_says():
    assert stated("Room") == rooms("tidyprof")


@pytest.mark.parametrize(
    "graph", [packages, lambda: rooms("tidyprof")], ids=["packages", "rooms of tidyprof"]
)
def test_there_is_no_circle(graph):
    left = graph()
    while done := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in done}
    assert left == {}


def test_the_arrows_of_the_picture_are_the_imports():
    arrows = set(re.findall(r"<title>(\w+) imports (\w+)</title>", PICTURE))
    known = packages() | rooms("tidyprof")
    assert arrows == {(one, other) for one, needed in known.items() for other in needed}
    assert [name for name in known if f">{name}</text>" not in PICTURE] == []


WATCHED = """
import sys
import tidyprof
seen = []
def note(frame, event, argument):
    if event == "call" and "tidyprof" in frame.f_code.co_filename:
        place = frame.f_code.co_filename.replace("\\\\", "/").rpartition("/tidyprof/")[2]
        seen.append(f"{place} {frame.f_code.co_qualname}")
sys.setprofile(note)
tidyprof.read(sys.argv[1])
sys.setprofile(None)
print("\\n".join(dict.fromkeys(seen)))
"""


def test_a_trace_goes_the_way_that_the_page_describes(recordings):
    way = [f"{names(row[0]).pop()} {names(row[1]).pop()}" for row in rows("File")]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(recordings / TRACE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [place for place in done.stdout.splitlines() if place in way] == way
    assert len(way) <= MOST_FILES
    assert len({place.split("/")[0] for place in way}) <= MOST_ROOMS


ENTERED = """
import os, sys
from importlib import import_module
sources, module, function, *arguments = sys.argv[1:]
sources = tuple(sources.split(os.pathsep))
entered = {}
def is_importing(frame):
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(sources)
def note(frame, event, argument):
    file = frame.f_code.co_filename
    is_new = event == "call" and file.startswith(sources) and file not in entered
    if is_new and not is_importing(frame):
        entered[file] = frame.f_code.co_name
module = import_module(module)
sys.setprofile(note)
module.read(*arguments) if function == "read" else module.main(arguments)
sys.setprofile(None)
print(len(entered))
"""


def small_rocpd(recordings: Path, folder: Path) -> str:
    return str(small_database(folder / "4242_results.db"))


def recorded(name: str) -> Callable[[Path, Path], str]:
    return lambda recordings, folder: str(recordings / name)


READ, TRIAGE = ("tidyprof", "read"), ("tidyprof.cli.main", "main", "triage")
WORKLOAD = ("python", "-m", "cifar_train", "--max-steps", "4")
STAND_IN = (
    "proflab.tapes.__main__",
    "main",
    "rocprofv3",
    "--kernel-trace",
    "--",
    *WORKLOAD,
    "--run-dir",
)
WAYS = {
    "a torch trace": (READ, recorded(TRACE), 20),
    "a folder of rocprofv3": (READ, recorded("rocprofv3-csv-gfx1151-llamacpp-decode"), 25),
    "an rpd file": (READ, recorded("rpd-mi200-matmul/matmul_result.rpd"), 20),
    "a rocpd database": (READ, small_rocpd, 20),
    "a Perfetto trace": (READ, recorded("rocprofv3-lumi-taylor/results.pftrace"), 32),
    "triage of a torch trace": (TRIAGE, recorded(TRACE), 46),
    "a stand-in, `rocprofv3 --kernel-trace`": (
        STAND_IN,
        lambda recordings, folder: str(folder / "run"),
        48,
    ),
}
"""What is done -> module, function and first arguments, the last argument, and the most files that
it may enter.
"""


def files_entered(folder: Path, *call: str) -> int:
    """Files of the packages in which a function ran, other than while a module was imported."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (*SOURCES, REPOSITORY))),
    }
    command = [sys.executable, "-c", ENTERED, os.pathsep.join(map(str, SOURCES)), *call]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env=environment
    )
    return int(done.stdout.splitlines()[-1])


def stated_way(way: str) -> tuple[int, int]:
    """How many files the page says are entered, and how many may be."""
    return next((int(row[1]), int(row[2])) for row in rows("Way") if row[0] == way)


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_of_the_code_opens_as_many_files_as_the_page_says(way, recordings, tmp_path):
    call, last, most = WAYS[way]
    entered = files_entered(tmp_path, *call, last(recordings, tmp_path))
    assert stated_way(way) == (entered, most)
    assert entered <= most


def test_the_packages_have_no_more_files_than_the_page_allows():
    most = int(re.search(r"at most (\d+) files of Python", PAGE)[1])
    assert len(modules_of_all()) <= most

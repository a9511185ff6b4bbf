"""Replay of tapes: find the tape of a command, write its files, and print its text."""

from __future__ import annotations

import json
import platform
import re
import shlex
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from proflab.recordings import shipped_folder
from proflab.tapes import release
from proflab.tapes.names import Process, expand
from proflab.tapes.options import ToolError, table_of
from proflab.tapes.requests import Request, understand
from tidyprof.atomic_write import whole_file
from tidyprof.errors import UserError
from tidyprof.standard_streams import PAGE_COLUMNS, as_shown

FILE, ARCHIVE = "tape.json", "files.tar.xz"
OWN_FOLDER = "@tape@"
"""Placeholder in a tape's arguments that represents the tape's folder.

The folder contains the command's input files.
"""

_PLACE = re.compile(r"@([\w]+?)(\.stem)?@")


class NoTapeError(UserError):
    """Error for a command that no tape contains. `commands` lists the commands on the tool's
    tapes.
    """

    def __init__(self, tool: str, commands: Sequence[str]) -> None:
        self.commands = commands
        listed = "Run one of these commands" if commands else "Record a tape of it"
        super().__init__(
            f"{tool} isn't installed, and the course doesn't have a tape of this command. {listed}"
        )


@dataclass(frozen=True)
class Tape:
    """One command of one tool, with its arguments, release, exit code, text, files and origin.

    Each file has a name that depends on the command's options, a process number, and a stored
    name in the archive.
    """

    folder: Path
    tool: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    rocm: str
    exit_code: int
    origin: Mapping[str, str]
    printed: str
    messages: str
    processes: Sequence[Mapping[str, str]]
    files: Sequence[Mapping[str, Any]]

    @property
    def command(self) -> str:
        """Command line in readable form."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, self.tool, shlex.join(self.arguments)])

    @cached_property
    def request(self) -> Request | None:
        """Request in the command for the selected release, or None if that release rejects the
        command.
        """
        words = [word.replace(OWN_FOLDER, str(self.folder)) for word in self.arguments]
        try:
            return understand(self.tool, words, self.environment)
        except ToolError:
            return None

    @cached_property
    def contents(self) -> Mapping[str, bytes]:
        """Contents of the command's output files by their stored names."""
        if not self.files:
            return {}
        with tarfile.open(self.folder / ARCHIVE) as archive:
            return {one.name: archive.extractfile(one).read() for one in archive}


def tapes_folder() -> Path:
    """Return the folder that contains the course's tapes."""
    return shipped_folder() / "tapes"


def tapes(folder: Path | None = None) -> Iterator[Tape]:
    """Yield all tapes in a folder, sorted by name."""
    for path in sorted((folder or tapes_folder()).glob(f"*/{FILE}")):
        yield Tape(path.parent, **json.loads(path.read_text(encoding="utf-8")))


def find(request: Request, folder: Path | None = None) -> Tape:
    """Return the tape of a command.

    All options must match except options that set the output location. Recorded tapes take
    precedence over modeled tapes, and tapes from the selected release take precedence over other
    releases. Raises NoTapeError if no tape matches.
    """
    own = [tape for tape in tapes(folder) if tape.tool == request.tool]
    found = [tape for tape in own if tape.request and tape.request.key == request.key]
    if not found:
        raise NoTapeError(request.tool, [tape.command for tape in own])
    rocm = release.rocm()
    return max(found, key=lambda tape: (tape.origin["kind"] == "recorded", tape.rocm == rocm))


def play(
    tool: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> int:
    """Replay a command and return its exit code.

    Raises ToolError if the tool rejects the command, and NoTapeError if no tape contains it.
    """
    request = understand(tool, arguments, environment)
    asked = vars(request.options)
    if asked.get("version") or asked.get("command") == "version":
        table = table_of(tool)
        version = release.version_of(table.get("version_of", tool))
        print(table["version"].format(tool=tool, version=version, rocm=release.rocm()))
        return 0
    tape = find(request, folder)
    origin = ", ".join(part for part in (tape.origin["detail"], f"tape {tape.folder.name}") if part)
    announce = f"{tool}: replay, nothing was measured: {tape.origin['kind']} {origin}"
    print(as_shown(announce, sys.stderr, PAGE_COLUMNS), file=sys.stderr, flush=True)
    written = _write_files(tape, request, environment)
    # If there are several processes, only rank 0 prints text.
    if not request.program.rank:
        print(_filled(tape.printed, request.places, written), end="")
        print(_filled(tape.messages, request.places, written), end="", file=sys.stderr)
    return tape.exit_code


def _write_files(tape: Tape, request: Request, environment: Mapping[str, str]) -> dict[str, str]:
    """Write the files of this process, or of all processes if the command starts them itself.

    Return the path of each written file by its file number.
    """
    program, written = request.program, {}
    for number, file in enumerate(tape.files):
        if program.rank is not None and file["process"] != program.rank:
            continue
        known = tape.processes[file["process"]]
        process = Process(
            known.get("hostname", platform.node()),
            int(known.get("pid", 1)),
            program.words,
            {**environment, **program.environment_of(file["process"])},
        )
        places = {name: expand(text, process) for name, text in request.places.items()}
        target = Path(_filled(file["name"], places, {}))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(target) as partial:
                partial.write_bytes(tape.contents[file["stored"]])
        except OSError as error:
            raise UserError(
                f"{target} can't be written ({error.strerror}). Pass another output folder."
            ) from error
        written[str(number)] = str(target)
    return written


def _filled(text: str, places: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Return text with its placeholders replaced.

    - `@NAME@` becomes a location.
    - `@NAME.stem@` becomes a location without its suffix.
    - `@NUMBER@` becomes the path of a file.
    """

    def value(found: re.Match[str]) -> str:
        name, stem = found[1], found[2]
        if name in files:
            return files[name]
        place = places.get(name)
        if place is None:
            return found[0]
        return str(Path(place).with_suffix("")) if stem else place

    return _PLACE.sub(value, text)

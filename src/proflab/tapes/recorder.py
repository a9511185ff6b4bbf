"""Recording of tapes: run a command of a real tool, and store its text, exit code and files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from proflab.errors import CourseError
from proflab.tapes import release
from proflab.tapes.names import PLACEHOLDER
from proflab.tapes.options import TOOLS, table_of
from proflab.tapes.path import LAUNCHERS
from proflab.tapes.player import ARCHIVE, FILE, OWN_FOLDER, tapes_folder
from proflab.tapes.requests import SHA, Request, digest, understand

SHORTEST = 4
"""Minimum length of option values that the recorder replaces with placeholders in printed text."""

_NAME = re.compile(r"@(\w+)@")
_ROCM = re.compile(r"rocm(?:[ _]version)?: *v?(\d+\.\d+)", re.IGNORECASE)

Patterns = list[tuple[str, Path, re.Pattern[str]]]
"""Name, folder to search and path pattern of each output location."""


def record(
    words: Sequence[str], name: str, origin: Mapping[str, str], into: Path | None = None
) -> Path:
    """Run a tool's command line and return the folder of its new tape.

    Raises CourseError in these cases:

    - The course has no options table for the tool.
    - The tool isn't installed.
    - The tape already exists.

    Raises ToolError if the tool rejects the command.
    """
    tool, found = words[0], shutil.which(words[0])
    if tool not in TOOLS or found is None or Path(found).resolve().parent == LAUNCHERS:
        raise CourseError(
            f"{tool} isn't installed, so its commands can't be recorded. These tools can be"
            f" recorded: {', '.join(TOOLS)}"
        )
    folder = (into or tapes_folder()) / name
    if folder.exists():
        raise CourseError(f"{folder} already exists. Pass another --name or remove that tape.")
    request = understand(tool, words[1:], os.environ)
    patterns = list(_patterns(request))
    folder.mkdir(parents=True)
    arguments = [_portable(word, request, folder) for word in words[1:]]
    before = _seen(patterns)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    paths = sorted(path for path, state in _seen(patterns).items() if before.get(path) != state)
    processes, files = _store(paths, patterns, folder)
    read = table_of(tool).get("reads", "\0")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    stated = _ROCM.search(version.stdout)
    tape = {
        "tool": tool,
        "arguments": arguments,
        "environment": {name: os.environ[name] for name in os.environ if name.startswith(read)},
        "rocm": stated[1] if stated else release.rocm(),
        "exit_code": done.returncode,
        "origin": dict(origin),
        "printed": _with_names(done.stdout, paths, request),
        "messages": _with_names(done.stderr, paths, request),
        "processes": processes,
        "files": files,
    }
    text = json.dumps(tape, indent=1, ensure_ascii=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")
    return folder


def _patterns(request: Request) -> Iterator[tuple[str, Path, re.Pattern[str]]]:
    for stem in (*table_of(request.tool).get("files", ()), "@run_dir@/"):
        if {*_NAME.findall(stem)} <= request.places.keys():
            place = _NAME.sub(lambda found: request.places[found[1]], stem)
            parts = PLACEHOLDER.sub("\0", os.path.abspath(place) + "/" * place.endswith("/"))
            start, *rest = map(re.escape, parts.split("\0"))
            pattern = re.compile(r"(\d+|[^/]*?)".join([start, *rest]) + "(.*)")
            yield stem, Path(parts.split("\0")[0].rpartition("/")[0]), pattern


def _seen(patterns: Patterns) -> dict[str, int]:
    """Return the files that match a pattern, and their modification times."""
    return {
        str(path): path.stat().st_mtime_ns
        for _, folder, pattern in patterns
        for path in folder.rglob("*")
        if path.is_file() and pattern.fullmatch(str(path))
    }


def _store(
    paths: Sequence[str], patterns: Patterns, folder: Path
) -> tuple[list[dict[str, str]], list[dict[str, str | int]]]:
    """Pack files into the tape. Return the processes that wrote the files, and the table of files.

    The tool replaced placeholders with different numbers for each process, such as a rank and a
    process id. The largest number is the process id.
    """
    matched = []
    for path in paths:
        found = ((stem, pattern.fullmatch(path)) for stem, _, pattern in patterns)
        stem, match = next((stem, match) for stem, match in found if match)
        *values, rest = match.groups()
        matched.append((stem + rest, tuple(int(one) for one in values if one.isdecimal())))
    numbered = sorted({numbers for _, numbers in matched if numbers}) or [()]
    files: list[dict[str, str | int]] = []
    for number, (path, (name, numbers)) in enumerate(zip(paths, matched, strict=True)):
        process = numbered.index(numbers) if numbers else 0
        stored = f"{number:02}_{PurePath(path).name}"
        files.append({"name": name, "process": process, "stored": stored})
    if files:
        with tarfile.open(folder / ARCHIVE, "x:xz", preset=9) as archive:
            for file, path in zip(files, paths, strict=True):
                archive.add(path, str(file["stored"]), filter=_anonymous)
    return [{"pid": str(max(numbers))} if numbers else {} for numbers in numbered], files


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the time and the owner, so that the same files give the same archive."""
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _portable(word: str, request: Request, folder: Path) -> str:
    """Replace each input file in an argument with a digest, and return the argument. Settings files
    move into the tape.
    """
    if word in getattr(request.options, "config", []):
        return f"{OWN_FOLDER}/{PurePath(shutil.copy(word, folder)).name}"
    sha = digest(Path(word))
    read = [one for values in request.key.values() if isinstance(values, list) for one in values]
    return sha if sha.startswith(SHA) and sha in read else word


def _with_names(text: str, paths: Sequence[str], request: Request) -> str:
    """Return printed text with `@NUMBER@` instead of file names and `@NAME@` instead of option
    values.
    """
    for path in sorted(paths, key=len, reverse=True):
        number = f"@{paths.index(path)}@"
        text = text.replace(path, number).replace(os.path.relpath(path), number)
    for name, value in request.places.items():
        text = text.replace(value, f"@{name}@") if len(value) >= SHORTEST else text
    return text

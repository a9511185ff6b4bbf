"""Records a tape: runs a command of a real tool, and stores its text, exit code and files."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from proflab.errors import CourseError
from proflab.tapes import release
from proflab.tapes.names import PLACEHOLDER
from proflab.tapes.options import TOOLS, table_of
from proflab.tapes.path import LAUNCHERS
from proflab.tapes.player import ARCHIVE, FILE, OWN_FOLDER, tapes_folder
from proflab.tapes.requests import SHA, WORKLOAD, Request, digest, understand

SHORTEST = 4
"""Length from which on the value of an option is recognized in printed text."""

_NAME = re.compile(r"@(\w+)@")
_ROCM = re.compile(r"rocm(?:[ _]version)?: *v?(\d+\.\d+)", re.IGNORECASE)
_GROUPS = {"pid": r"\d+", "rank": r"\d+", "hostname": "[^/]+"}
_GROUP_OF = {"p": "pid", "pid": "pid", "h": "hostname", "hostname": "hostname", "r": "rank"}


def record(
    words: Sequence[str], name: str, origin: Mapping[str, str], into: Path | None = None
) -> Path:
    """Run a tool's command line and return the folder of its new tape.

    Raises CourseError if the tool has no table of options, isn't installed, or the tape exists;
    ToolError if the tool refuses the command.
    """
    tool, *arguments = words
    found = shutil.which(tool)
    if tool not in TOOLS or found is None or Path(found).resolve().parent == LAUNCHERS:
        raise CourseError(
            f"{tool} is not installed here, so there is nothing to record; the tools that can be"
            f" recorded are: {', '.join(TOOLS)}"
        )
    folder = (into or tapes_folder()) / name
    if folder.exists():
        raise CourseError(f"{folder} exists; give another --name, or remove that tape")
    request = understand(tool, arguments, os.environ)
    patterns = list(_patterns(request))
    folder.mkdir(parents=True)
    arguments, before = _arguments(request, arguments, folder), _seen(patterns)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    written = [path for path, state in _seen(patterns).items() if before.get(path) != state]
    processes, files = _store(sorted(written), patterns, folder)
    spelled = {file.pop("path"): f"@{number}@" for number, file in enumerate(files)}
    tape = {
        "tool": tool,
        "arguments": arguments,
        "environment": _environment(tool),
        "rocm": _release(tool),
        "exit_code": done.returncode,
        "origin": dict(origin),
        "printed": _with_names(done.stdout, spelled, request),
        "messages": _with_names(done.stderr, spelled, request),
        "processes": processes,
        "files": files,
    }
    text = json.dumps(tape, indent=1, ensure_ascii=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")
    return folder


def _patterns(request: Request) -> Iterator[tuple[str, Path, re.Pattern[str]]]:
    """Return for each place of output its name, the folder to look in, and the pattern of paths."""
    stems = list(table_of(request.tool).get("files", ()))
    for stem in [*stems, *(["@run_dir@/"] if request.program.run_folder else [])]:
        names = [name for name in _NAME.findall(stem) if name in request.places]
        if len(names) < stem.count("@") // 2:
            continue
        place = _NAME.sub(lambda found: request.places[found[1]], stem)
        text = os.path.abspath(place) + ("/" if place.endswith("/") else "")
        start = text[: found.start()] if (found := PLACEHOLDER.search(text)) else text
        yield stem, Path(start.rpartition("/")[0]), re.compile(f"{_regex(text)}(?P<rest>.*)")


def _regex(text: str) -> str:
    """Return a pattern in which placeholders are groups: pid, rank, hostname or nameless."""
    found, end, known = "", 0, set()
    for match in PLACEHOLDER.finditer(text):
        name = _GROUP_OF.get(match[4] or "", "rank" if "RANK" in match[0].upper() else "")
        found += re.escape(text[end : match.start()])
        if name in known:
            found += f"(?P={name})"
        else:
            found += f"(?P<{name}>{_GROUPS[name]})" if name else "[^/]*?"
        known |= {name} - {""}
        end = match.end()
    return found + re.escape(text[end:])


def _seen(patterns: Sequence[tuple[str, Path, re.Pattern[str]]]) -> dict[str, tuple[int, int]]:
    """Return the files that match a pattern, with time of change and size."""
    found = {}
    for _, folder, pattern in patterns:
        for path in folder.rglob("*"):
            if path.is_file() and pattern.fullmatch(str(path)):
                found[str(path)] = (path.stat().st_mtime_ns, path.stat().st_size)
    return found


def _store(
    paths: Sequence[str], patterns: Sequence[tuple[str, Path, re.Pattern[str]]], folder: Path
) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """Compress files into the tape. Return the processes that wrote them, in order of rank, and the
    table of files.
    """
    matched = []
    for path in paths:
        stem, match = next(
            (stem, match) for stem, _, pattern in patterns if (match := pattern.fullmatch(path))
        )
        groups = match.groupdict()
        own = {name: groups[name] for name in _GROUPS if groups.get(name)}
        matched.append((path, stem + groups["rest"], own))
    numbered = sorted(
        {tuple(own.items()) for *_, own in matched if own},
        key=lambda own: [int(value) for name, value in reversed(own) if name != "hostname"],
    )
    files = []
    for number, (path, name, own) in enumerate(matched):
        process = numbered.index(tuple(own.items())) if own else 0
        stored = f"{number:02}_{PurePath(path).name}"
        files.append({"name": name, "process": process, "stored": stored, "path": path})
    if files:
        with tarfile.open(folder / ARCHIVE, "x:xz", preset=9) as archive:
            for file in files:
                content = Path(file["path"]).read_bytes()
                entry = tarfile.TarInfo(file["stored"])
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return [dict(own) for own in numbered] or [{}], files


def _arguments(request: Request, arguments: Sequence[str], folder: Path) -> list[str]:
    """Return the arguments with digests for input files; files of settings move into the tape."""
    settings = getattr(request.options, "config", [])
    for name in settings:
        shutil.copy(name, folder)
    read = {word for values in request.key.values() if isinstance(values, list) for word in values}
    found = []
    for word in arguments:
        if word in settings:
            word = f"{OWN_FOLDER}/{PurePath(word).name}"
        elif (sha := digest(Path(word))).startswith(SHA) and sha in read:
            word = sha
        found.append(word)
    return found


def _environment(tool: str) -> dict[str, str]:
    """Return the variables that the tool reads."""
    table = table_of(tool)
    names = [WORKLOAD] if tool in table.get("workload", ()) else []
    if "settings" in table:
        names += [name for name in os.environ if name.startswith("ROCPROFSYS_")]
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def _release(tool: str) -> str:
    """Return the release that the tool states, or the one that is installed."""
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    found = _ROCM.search(done.stdout)
    return found[1] if found else release.rocm()


def _with_names(text: str, paths: Mapping[str, str], request: Request) -> str:
    """Return printed text with `@NUMBER@` for files, and `@NAME@` for the values of options."""
    for path in sorted(paths, key=len, reverse=True):
        for spelled in (path, os.path.relpath(path)):
            text = text.replace(spelled, paths[path])
    for name, value in request.places.items():
        text = text.replace(value, f"@{name}@") if len(value) >= SHORTEST else text
    return text

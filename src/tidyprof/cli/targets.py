"""The files that a command is to write: refused before it does anything, above all where a recording would be lost."""

from __future__ import annotations

import os
from argparse import Namespace
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

from tidyprof.cli.main import EXPORTS, UsageError
from tidyprof.io.errors import one_line
from tidyprof.readers.registry import read
from tidyprof.tables.contract import Profile


def targets(options: Namespace) -> dict[str, str]:
    """Option -> file to write, of those that were given: `--csv`, `--json`, `--parquet` or, to convert, `OUT`."""
    known = {**{f"--{kind}": getattr(options, kind, None) for kind in EXPORTS}, "OUT": getattr(options, "target", None)}
    return {option: path for option, path in known.items() if path is not None}


def check_targets(options: Namespace) -> None:
    """Raise UsageError before any work is done if a file could not be written, or would replace what is read."""
    wanted = targets(options)
    if "--parquet" in wanted and find_spec("pyarrow") is None:
        raise UsageError("--parquet needs pyarrow, which is not installed: pip install pyarrow, or use --csv")
    for option, path in wanted.items():
        _refuse_no_file(option, path)
        for source in options.files:
            if _belongs_to(path, Path(source)):
                raise _would_replace(option, path)
    for (first, path), (second, other) in combinations(wanted.items(), 2):
        if _is_same(path, other):
            found = f"both {first} and {second} would write it"
            raise UsageError(one_line(path, found, "one name was given twice", f"give {second} another file"))


def read_to_write(path: str, options: Namespace) -> Profile:
    """Read a recording. Raises UsageError if a file that is to be written is among those that were read."""
    profile = read(path)
    for option, target in targets(options).items():
        if any(_is_same(target, file) for file in profile.meta.get("files", ())):
            raise _would_replace(option, target)
    return profile


def cannot_write(option: str, path: str, error: OSError) -> UsageError:
    """What to tell the user if writing failed after all."""
    found, cause = str(error.strerror or error), "the disk is full, or the folder may not be written to"
    return UsageError(one_line(path, found, cause, f"give {option} another file"))


def _refuse_no_file(option: str, path: str) -> None:
    """Raise UsageError for a name under which no file can be."""
    folder = os.path.dirname(path)
    if path in ("", "-"):
        shown, found, cause = option, f"{path!r} is no file name", "the name is missing, or standard output was meant"
        cure = f"give {option} a file; what is shown can go through a pipe"
    elif os.path.isdir(path):
        shown, found, cause, cure = path, "it is a folder", "the file's name is missing", "add a file name"
    elif folder and not os.path.isdir(folder):
        shown, found, cause = path, f"there is no folder {folder}", "it is misspelt, or was not made yet"
        cure = f"make it, or give {option} another file"
    else:
        return
    raise UsageError(one_line(shown, found, cause, cure))


def _belongs_to(target: str, source: Path) -> bool:
    """Whether an existing file is the one that is read, lies in the folder that is read, or has its start of names."""
    if not os.path.exists(target):
        return False
    if source.is_dir():
        return source.resolve() in Path(target).resolve().parents
    if source.exists():
        return os.path.samefile(target, source)
    resolved = Path(target).resolve()
    return resolved.parent == source.parent.resolve() and resolved.name.startswith(source.name)


def _is_same(first: str, second: str) -> bool:
    if os.path.exists(first) and os.path.exists(second):
        return os.path.samefile(first, second)
    return os.path.realpath(first) == os.path.realpath(second)


def _would_replace(option: str, path: str) -> UsageError:
    found = "it is among what is read, and would be lost"
    cause = "what is read and what is written have one name or folder"
    return UsageError(one_line(path, found, cause, f"give {option} another file"))

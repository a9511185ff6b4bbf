"""The command `run`: takes a program, and reports what limits it.

Until the program has ended, nothing large is imported, which would take memory from it: many of
these commands may run side by side.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tidyprof.errors import UserError, one_line
from tidyprof.running.inside.files import RANKS, launched
from tidyprof.running.launch import NOT_FOUND, NOT_RUN, Asked, end_as, launch
from tidyprof.standard_streams import tell

ABOUT = "run.json"
"""The file that the command writes into the folder of a run. Two commands can't both create it."""


def run(options: Namespace) -> int:
    """Run the program, and report what limits it. Returns the program's exit code."""
    rank = launched(RANKS)
    folder = _folder(options, rank)
    asked = Asked(
        str(folder.resolve()),
        options.skip_steps,
        0 if options.no_trace else options.steps,
        options.with_stack,
        options.record_shapes,
        options.step_marker or "",
        time.time_ns(),
    )
    try:
        tells = not rank and not options.no_trace
        ended = launch(options.program, asked, _watch(folder) if tells else lambda: None)
    except OSError as error:
        _clear(folder)
        tell(
            f"error: {options.program[0]}: {error.strerror}. Next step: check the command behind --"
        )
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
    try:
        if not rank:
            reporting = import_module("tidyprof.cli.run_report")
            reporting.report(options, folder, ended, waits=rank is not None)
    except Exception as error:  # the exit code is the program's in any case
        tell(f"error: the report of tidyprof failed: {type(error).__name__}: {error}")
    _clear(folder)
    return end_as(ended.code)


def _folder(options: Namespace, rank: int | None) -> Path:
    """Create the folder of this run, and check what else the report needs.

    Raises UserError if another run has the folder, or if it can't be written.
    """
    folder = _from_here(Path(options.out)) if options.out else _new_folder(rank)
    # Other ranks may have begun already: a rank looks for its own file only.
    if any(folder.glob("run_rank*.json" if rank is None else f"run_rank{rank}.json")):
        raise _taken(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not rank:
            (folder / ABOUT).open("x").close()
    except FileExistsError:
        if folder.is_dir():
            raise _taken(folder) from None
        raise UserError(
            one_line(str(folder), "no folder", "a file has this name", "give another --out")
        ) from None
    except OSError as error:
        cause = "a folder of another user, or a disk that is full or read-only"
        found = f"can't be written: {error.strerror}"
        raise UserError(one_line(str(folder), found, cause, "give another --out")) from None
    if options.json is not None or options.html is not None:
        check = import_module("tidyprof.cli.output").check_targets
        try:
            check(Namespace(files=[str(folder)], json=options.json, html=options.html))
        except UserError:
            _clear(folder)
            raise
    return folder


def _taken(folder: Path) -> UserError:
    found = "there is a run in it"
    return UserError(one_line(str(folder), found, "an earlier one", "give another --out"))


def _clear(folder: Path) -> None:
    """Remove what a run without any result leaves."""
    about = folder / ABOUT
    try:
        if about.stat().st_size == 0:
            about.unlink()
        folder.rmdir()
    except OSError:  # there is a result, or the program removed the folder
        return


def _from_here(folder: Path) -> Path:
    """Return the folder as a path from the current folder, if it is below that."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _new_folder(rank: int | None) -> Path:
    """Create a new folder for this run. Raises UserError for ranks that were launched together,
    which can't agree on one, and OSError if there can't be one.
    """
    if rank is not None:
        found = f"this is rank {rank} of a launcher, and all ranks need one folder"
        raise UserError(
            one_line("--out", found, "a launcher in front of tidyprof", "give --out DIR")
        )
    number = 1
    while True:
        folder = Path(f"tidyprof-run-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        except OSError:
            return folder  # and the next attempt to create it tells why
        else:
            return folder


def _watch(folder: Path) -> Callable[[], None]:
    """Return a function that reports once that all is recorded: programs may run for days."""
    told: list[bool] = []

    def look() -> None:
        about = folder / "run_rank0.json"
        if told or not about.is_file() or _stage(about) != "done":
            return
        told.append(True)
        tell(f"tidyprof: recorded, and the program continues. Next: tidyprof triage {folder}")

    return look


def _stage(about: Path) -> str | None:
    try:
        return str(json.loads(about.read_text(encoding="utf-8"))["stage"])
    except (OSError, ValueError, KeyError):
        return None


COMMANDS = {"run": run}
"""Command -> its function, as in cli/commands.py."""

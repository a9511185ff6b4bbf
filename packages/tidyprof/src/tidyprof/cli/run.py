"""The command `run`, which runs a program and reports what limits it.

This module doesn't import large modules before the program has ended. Many instances of this
command may run at the same time, and large imports would reduce the memory that is left for the
programs.
"""

from __future__ import annotations

import time
from argparse import Namespace
from importlib import import_module
from pathlib import Path

from tidyprof.errors import UserError, one_line
from tidyprof.running.inside.files import RANKS, launched
from tidyprof.running.launch import NOT_FOUND, NOT_RUN, Asked, end_as, launch
from tidyprof.standard_streams import tell

ABOUT = "run.json"
"""The file that the command writes to a run's folder. If several commands use the same folder, only
one command can create this file.
"""


def run(options: Namespace) -> int:
    """Run the program, report its bottleneck, and return its exit code."""
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
        ended = launch(options.program, asked)
    except OSError as error:
        _clear(folder)
        tell(
            f"error: {options.program[0]}: {error.strerror}. Next step: check the command after --"
        )
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
    try:
        if not rank:
            reporting = import_module("tidyprof.cli.run_report")
            reporting.report(options, folder, ended, waits=rank is not None)
    except Exception as error:  # return the program's exit code in any case
        tell(f"error: tidyprof couldn't write its report: {type(error).__name__}: {error}")
    _clear(folder)
    return end_as(ended.code)


def _folder(options: Namespace, rank: int | None) -> Path:
    """Create the folder for this run, and check the paths of other output files.

    Raises UserError if another run uses the folder, or if the folder isn't writable.
    """
    folder = Path(options.out) if options.out else _new_folder(rank)
    # Other ranks may have started already, so each rank checks only for its own file.
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
            one_line(str(folder), "not a folder", "a file has this name", "pass another --out")
        ) from None
    except OSError as error:
        cause = "another user owns the folder, or the disk is full or read-only"
        found = f"can't be written: {error.strerror}"
        raise UserError(one_line(str(folder), found, cause, "pass another --out")) from None
    if options.json is not None or options.html is not None:
        check = import_module("tidyprof.cli.output").check_targets
        try:
            check(Namespace(files=[str(folder)], json=options.json, html=options.html))
        except UserError:
            _clear(folder)
            raise
    return folder


def _taken(folder: Path) -> UserError:
    found = "the folder already contains a run"
    return UserError(one_line(str(folder), found, "an earlier run", "pass another --out"))


def _clear(folder: Path) -> None:
    """Delete the folder of a run that has no results."""
    about = folder / ABOUT
    try:
        if about.stat().st_size == 0:
            about.unlink()
        folder.rmdir()
    except OSError:  # the run has results, or the program removed the folder
        return


def _new_folder(rank: int | None) -> Path:
    """Create and return a new folder for this run.

    Raises UserError if a launcher started several ranks, because they can't agree on a folder.
    """
    if rank is not None:
        found = f"a launcher started rank {rank}, and all ranks must use the same folder"
        raise UserError(
            one_line("--out", found, "the launcher comes before tidyprof", "pass --out DIR")
        )
    number = 1
    while True:
        folder = Path(f"tidyprof-run-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        except OSError:
            return folder  # the next attempt to create it reports the reason
        else:
            return folder


COMMANDS = {"run": run}
"""The function for each command, as in cli/commands.py."""

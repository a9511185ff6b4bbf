"""The command `run`: takes a program, and reports what limits it.

Until the program has ended, nothing large is imported, which would take memory from it: many of
these commands may run side by side.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tidyprof.errors import UserError, one_line
from tidyprof.running.inside.files import RANKS, launched
from tidyprof.running.launch import NOT_FOUND, NOT_RUN, Asked, end_as, launch
from tidyprof.standard_streams import tell


def run(options: Namespace) -> int:
    """Run the program, and report what limits it. Returns the program's exit code."""
    rank = launched(RANKS)
    folder = _from_here(Path(options.out)) if options.out else _new_folder(rank)
    if folder.exists() and not folder.is_dir():
        raise UserError(
            one_line(str(folder), "no folder", "a file has this name", "give another --out")
        )
    # Other ranks may have begun already: a rank looks for its own file only.
    if any(folder.glob("run_rank*.json" if rank is None else f"run_rank{rank}.json")):
        raise UserError(
            one_line(str(folder), "there is a run in it", "an earlier one", "give another --out")
        )
    if options.json is not None or options.html is not None:
        check = import_module("tidyprof.cli.output").check_targets
        check(Namespace(files=[str(folder)], json=options.json, html=options.html))
    asked = Asked(
        str(folder.resolve()),
        options.skip_steps,
        0 if options.no_trace else options.steps,
        options.with_stack,
        options.record_shapes,
        options.step_marker or "",
    )
    try:
        tells = not rank and not options.no_trace
        code = launch(options.program, asked, _watch(folder) if tells else lambda: None)
    except OSError as error:
        tell(
            f"error: {options.program[0]}: {error.strerror}. Next step: check the command behind --"
        )
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
    if not rank:
        import_module("tidyprof.cli.run_report").report(
            options, folder, code, waits=rank is not None
        )
    return end_as(code)


def _from_here(folder: Path) -> Path:
    """The folder as a path from the current folder, if it lies below that."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _new_folder(rank: int | None) -> Path:
    """A new folder for this run. Raises UserError for ranks that were launched together, which
    can't agree on one.
    """
    if rank is not None:
        found = f"this is rank {rank} of a launcher, and all ranks need one folder"
        raise UserError(
            one_line("--out", found, "a launcher in front of tidyprof", "give --out DIR")
        )
    number = 1
    while (folder := Path(f"tidyprof-run-{number}")).exists():
        number += 1
    return folder


def _watch(folder: Path) -> Callable[[], None]:
    """A function that tells once that everything is recorded, for programs that go on for days."""
    told: list[bool] = []

    def look() -> None:
        about = folder / "run_rank0.json"
        if told or not about.is_file() or _stage(about) != "done":
            return
        told.append(True)
        tell(f"tidyprof: recorded, and the program goes on; tidyprof triage {folder} judges it now")

    return look


def _stage(about: Path) -> str | None:
    try:
        return str(json.loads(about.read_text(encoding="utf-8"))["stage"])
    except (OSError, ValueError, KeyError):
        return None


COMMANDS = {"run": run}
"""Command -> its function, as in cli/commands.py."""

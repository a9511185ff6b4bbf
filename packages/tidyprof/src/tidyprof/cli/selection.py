"""The options that choose a part of a recording: `--steps`, `--from` and `--to`."""

from __future__ import annotations

from argparse import Namespace

from tidyprof.analyses.selection import select_steps, select_time_range
from tidyprof.cli.output import read_to_write
from tidyprof.errors import UserError
from tidyprof.tables.contract import Profile


def read_selected(path: str, options: Namespace) -> Profile:
    """The part of a recording that the options ask for; the command may lack some of the options.

    Raises UserError for steps that do not exist, for a time that ends before it begins, and as
    `read_to_write` does.
    """
    profile = read_to_write(path, options)
    wanted = vars(options)
    first = int(profile.events["start_ns"].min()) if len(profile.events) else 0
    limits = [
        None if limit is None else first + limit
        for limit in (wanted.get("from_ns"), wanted.get("to_ns"))
    ]
    chosen = wanted.get("steps")
    try:
        if chosen is not None:
            profile = select_steps(profile, *chosen, mark=options.step_marker)
        return profile if limits == [None, None] else select_time_range(profile, *limits)
    except ValueError as error:
        raise UserError(f"{path}: {in_options(error)}") from None


def in_options(error: ValueError) -> str:
    """An analysis's message about its arguments, in terms of the command's options."""
    return str(error).replace('mark="..."', "--step-marker NAME")


def part_of(options: Namespace) -> str:
    """Which part of the recording was asked for; nothing if all of it."""
    wanted = vars(options)
    found = []
    if wanted.get("steps") is not None:
        first, last = wanted["steps"]
        found.append(f"step {first}" if first == last else f"steps {first} to {last}")
    for word in ("from", "to"):
        if wanted.get(f"{word}_ns") is not None:
            found.append(f"{word} {wanted[f'{word}_ns'] / 1e6:,g} ms")
    return ", ".join(found)

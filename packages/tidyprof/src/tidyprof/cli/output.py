"""Write a command's output, such as tables for a terminal or a pipe, and exported files."""

from __future__ import annotations

import io
import os
import platform
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tidyprof.analyses.common import four_digits
from tidyprof.atomic_write import whole_file
from tidyprof.errors import UserError, missing_extra, one_line
from tidyprof.escaping import csv_text, printable
from tidyprof.running.report import Run, machine_of
from tidyprof.standard_streams import discard, joined, parted, tell
from tidyprof.tables.contract import Origin, is_identifier

STDOUT = "-"
"""The --json argument that selects standard output. With this argument, commands print nothing
else.
"""

_UNLIMITED = 100_000
"""The assumed width of a pipe in columns, which is wide enough for any table."""

_MIN_TEXT = 8
"""The minimum width of a text column on a narrow terminal."""

MUTED_STYLE = "color(243)"
"""The style of less important text, which is a gray from xterm's 256 colors. The gray is readable
on black and on white backgrounds. NO_COLOR disables the style.
"""


# Tables and lines


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "ms": lambda nanoseconds: f"{nanoseconds / 1e6:,.3f}",
    "µs": lambda nanoseconds: f"{nanoseconds / 1e3:,.1f}",
    "%": lambda share: f"{share:.1f}",
}
"""For each unit in a heading, the function that formats values. Times in tables are in ns."""


def cells_of(table: pd.DataFrame, headings: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the cells of a table as strings. `headings` maps each heading to a column name.

    If a heading has no unit, format its numbers as counts, unless they are identifiers. <NA>
    becomes an empty string.
    """
    cells = {}
    for heading, name in headings.items():
        is_text = pd.api.types.is_string_dtype(table[name]) or is_identifier(name)
        text = str if is_text else FORMATS.get(heading.split()[-1], _count)
        cells[heading] = ["" if pd.isna(value) else text(value) for value in table[name]]
    return cells


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else four_digits(value)


def on_terminal() -> bool:
    """Return True if standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def _in_words(text: str) -> str:
    """Return a printable string in which no line breaks between a number and its unit."""
    return joined(printable(text))


def say(line: str, style: str = "") -> None:
    """Print a line of text. Only a terminal wraps the line."""
    _print(Text(_in_words(line), style), soft_wrap=not on_terminal())


_NUMBER = re.compile(r"[-+]?[\d.,]*%?")


def show(columns: Mapping[str, Sequence[str]]) -> None:
    """Print a table with these headings and cells. Columns of numbers are aligned on the right.

    On a terminal, long texts and headings wrap. Numbers never wrap, so lines may be wider than the
    terminal.
    """
    wide = not on_terminal()
    table = Table(
        box=None if wide else box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 2, 0, 0) if wide else (0, 0, 0, 1),
        header_style="" if wide else "bold",
    )
    for heading, cells in columns.items():
        is_text = not all(map(_NUMBER.fullmatch, cells))
        table.add_column(
            Text(heading if wide else heading.replace(" ", "\n")),
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=wide or not is_text,
            min_width=min(_MIN_TEXT, max(map(cell_len, cells), default=0)),
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(_in_words(value)) for value in row))
    _print(table)


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print labels, each with a text beside it."""
    for label, text in facts:
        say(f"{label:<12}{text}")


def warn(message: str) -> None:
    """Print a warning to standard error, so the warning doesn't mix with results in a pipe."""
    tell(f"warning: {printable(message)}")


def _print(renderable: RenderableType, soft_wrap: bool = False) -> None:
    """Print an object in the width of the output."""
    text = io.StringIO()
    width = shutil.get_terminal_size().columns if on_terminal() else _UNLIMITED
    console = Console(file=text, highlight=False, width=width, force_terminal=on_terminal())
    console.print(renderable, soft_wrap=soft_wrap)
    lines = (line.rstrip() for line in parted(text.getvalue()).splitlines())
    _write("\n".join(lines).strip("\n") + "\n")


def _write(text: str) -> None:
    """Write text to standard output. If the program that reads it has ended, discard the text.

    Raises UserError if writing fails, for example because the disk is full.
    """
    if sys.stdout is None:
        return
    try:
        # Other streams, such as io.StringIO, accept all characters.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        sys.stdout.write(text)
        sys.stdout.flush()  # buffered text would fail later, outside this handler
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        found, cause = str(error.strerror or error), "the disk is full, or the terminal is gone"
        raise UserError(
            one_line("standard output", found, cause, "redirect it to another place")
        ) from None


def showing(options: Namespace) -> AbstractContextManager[Any]:
    """Return a context for showing results. If JSON goes to standard output, show nothing else."""
    is_json = targets(options).get("--json") == STDOUT
    return redirect_stdout(io.StringIO()) if is_json else nullcontext()


# Output files


def targets(options: Namespace) -> dict[str, str]:
    """Return the output file for each option that was passed.

    The options are `--csv`, `--json` and `--html`.
    """
    known = {f"--{kind}": getattr(options, kind, None) for kind in ("csv", "json", "html")}
    return {option: path for option, path in known.items() if path is not None}


def check_targets(options: Namespace) -> None:
    """Raise UserError if the command can't write an output file, or if an output file would replace
    an input file. This check precedes any work, mainly to protect profiles.
    """
    wanted = targets(options)
    if "--html" in wanted and find_spec("matplotlib") is None:
        raise UserError(one_line("--html", *missing_extra("matplotlib")))
    for option, path in wanted.items():
        if option == "--json" and path == STDOUT:
            continue
        if path in ("", STDOUT) or os.path.isdir(path) or not Path(path).parent.is_dir():
            raise cannot_write(
                option, path or "''", "a file can't have this name, or its folder doesn't exist"
            )
        if os.path.exists(path) and any(_is_input(path, source) for source in options.files):
            raise cannot_write(option, path, "writing it would replace an input file")


def _is_input(target: str, source: str) -> bool:
    """Return True if a file is the input file or is in the input folder. An input may also be the
    common prefix of several file names.
    """
    folder = os.path.join(os.path.realpath(source), "") if os.path.isdir(source) else ""
    return os.path.realpath(target).startswith(folder or os.path.realpath(source))


def origin_of(run: Run) -> Origin:
    """Return the origin of a run, which is `measured` on this machine and `recorded` elsewhere."""
    machine = next(iter(run.ranks.values()))["machine"]
    kind = "measured" if machine["host"] == platform.node() else "recorded"
    return Origin(kind, machine_of(run))


def export(table: pd.DataFrame, options: Namespace) -> None:
    """Write the table to each requested file, with its origin as the last column.

    Raises UserError if a file can't be written.
    """
    table = table.assign(origin=str(table.attrs["origin"]))
    for option, path in targets(options).items():
        if path == STDOUT:
            _write(_as_json(table, None) + "\n")
            continue
        with _file(option, path) as partial:
            (_as_csv if option == "--csv" else _as_json)(table, partial)


def _as_csv(table: pd.DataFrame, path: Path) -> None:
    words = table.select_dtypes(exclude=["number", "bool"])
    escaped = words.map(lambda value: csv_text(value) if isinstance(value, str) else value)
    table.assign(**escaped).to_csv(path, index=False)


def _as_json(table: pd.DataFrame, path: Path | None) -> Any:
    return table.to_json(path, orient="records", double_precision=15, indent=1)


def write_report(option: str, path: str, text: str) -> None:
    """Write a string to the file that an option names, or to standard output.

    Raises UserError if writing fails.
    """
    if path == STDOUT:
        _write(text)
        return
    with _file(option, path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def _file(option: str, path: str) -> Iterator[Path]:
    """Yield a path to write to. Raises UserError if writing fails."""
    try:
        with whole_file(Path(path)) as partial:
            yield partial
    except OSError as error:
        raise cannot_write(option, path, error) from None


def cannot_write(option: str, path: str, finding: str | OSError) -> UserError:
    """Return the error for a file that can't be written."""
    finding = str(finding.strerror or finding) if isinstance(finding, OSError) else finding
    cause = "a typo, a full disk, or a folder without write permission"
    return UserError(one_line(path, finding, cause, f"pass another file to {option}"))

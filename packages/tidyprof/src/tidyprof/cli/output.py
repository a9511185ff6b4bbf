"""Write a command's output, such as tables for a terminal or a pipe, and exported files."""

from __future__ import annotations

import io
import os
import platform
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tidyprof.analyses.common import four_digits, join
from tidyprof.atomic_write import whole_file
from tidyprof.errors import UserError, missing_extra, one_line
from tidyprof.escaping import csv_text, printable, with_minus
from tidyprof.readers.registry import ReadOptions, read
from tidyprof.running.report import Run, machine_of
from tidyprof.standard_streams import discard, joined, parted, tell
from tidyprof.tables.contract import Origin, Profile, is_identifier

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

_WRITERS = {
    "--csv": lambda table, path: _for_spreadsheets(table).to_csv(path, index=False),
    "--json": lambda table, path: table.to_json(
        path, orient="records", double_precision=15, indent=1
    ),
}


# Tables and lines


@dataclass(frozen=True)
class Column:
    """One displayed column, with a heading and a string for each row.

    On a terminal, long strings are shortened in the middle. Numbers are never shortened, so lines
    may be wider than the terminal. A unit at the end of a heading moves to the next line.
    """

    heading: str
    values: Sequence[str]
    is_text: bool = False


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "ms": lambda nanoseconds: f"{nanoseconds / 1e6:,.3f}",
    "µs": lambda nanoseconds: f"{nanoseconds / 1e3:,.1f}",
    "%": lambda share: f"{share:.1f}",
}
"""For each unit in a heading, the function that formats values. Times in tables are in ns."""


def columns_of(table: pd.DataFrame, headings: Mapping[str, str]) -> list[Column]:
    """Return the columns of a table. `headings` maps each heading to a column name.

    If a heading has no unit, format its numbers as counts, unless they are identifiers.
    """
    columns = []
    for heading, name in headings.items():
        is_text = pd.api.types.is_string_dtype(table[name])
        whole = str if is_text or is_identifier(name) else _count
        text = FORMATS.get(heading.split()[-1], whole)
        columns.append(Column(heading, texts(table[name], text), is_text))
    return columns


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else four_digits(value)


def texts(values: Iterable[Any], text: Callable[[Any], str]) -> list[str]:
    """Return the string for each value, or an empty string for <NA>."""
    return ["" if pd.isna(value) else text(value) for value in values]


def on_terminal() -> bool:
    """Return True if standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def _in_words(text: str) -> str:
    """Return a printable string, with minus signs on a terminal and hyphens for programs."""
    shown = joined(printable(text))
    return with_minus(shown) if on_terminal() else shown


def say(line: str, style: str = "") -> None:
    """Print a line of text. Only a terminal wraps the line."""
    _print(Text(_in_words(line), style), soft_wrap=not on_terminal())


def show(columns: Iterable[Column]) -> None:
    """Print a table. The caller must omit empty columns.

    On a terminal, long texts wrap, and units move below their headings. Numbers never wrap.
    """
    wide = not on_terminal()
    table = Table(
        box=None if wide else box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 2, 0, 0) if wide else (0, 0, 0, 1),
        header_style="" if wide else "bold",
    )
    columns = list(columns)
    words = [[column.heading] if wide else column.heading.split() for column in columns]
    depth = max(map(len, words), default=0)
    for column, own in zip(columns, words, strict=True):
        heading = "\n" * (depth - len(own)) + "\n".join(own)
        table.add_column(
            Text(heading),
            justify="left" if column.is_text else "right",
            overflow="fold",
            no_wrap=wide or not column.is_text,
            min_width=min(_MIN_TEXT, max(map(cell_len, column.values), default=0)),
        )
    for row in zip(*(column.values for column in columns), strict=True):
        table.add_row(*(Text(_in_words(value)) for value in row))
    _print(table)


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print labels, each with a text beside it. Only a terminal wraps the text."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    for label, text in facts:
        table.add_row(Text(label), Text(_in_words(text)))
    _print(table)


def warn(message: str) -> None:
    """Print a warning to standard error, so the warning doesn't mix with results in a pipe."""
    tell(f"warning: {printable(message)}")


# Standard output. It may close early because the reading program ends or the disk is full.


def _print(renderable: RenderableType, soft_wrap: bool = False) -> None:
    """Print an object in the width of the output."""
    if sys.stdout is None:
        return
    with _to_standard_output():
        plain = {} if on_terminal() else {"width": _UNLIMITED, "force_terminal": False}
        console = Console(highlight=False, **plain)
        with console.capture() as captured:
            console.print(renderable, soft_wrap=soft_wrap)
    lines = (line.rstrip() for line in parted(captured.get()).splitlines())
    _write("\n".join(lines).strip("\n") + "\n")


def _write(text: str) -> None:
    """Write text to standard output, unless standard output is closed."""
    if sys.stdout is None:
        return
    with _to_standard_output():
        # Other streams, such as io.StringIO, accept all characters.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        sys.stdout.write(text)
        sys.stdout.flush()  # buffered text would fail later, outside this handler


@contextmanager
def _to_standard_output() -> Iterator[None]:
    """Return a context for writing to standard output.

    Raises UserError if writing to standard output fails, and BrokenPipeError if the reading program
    has ended.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout)
        found, cause = str(error.strerror or error), "the disk is full, or the terminal is gone"
        raise UserError(
            one_line("standard output", found, cause, "redirect it to another place")
        ) from None


ANSWERING = {"gate", "isa"}
"""Commands whose exit codes also show their results."""


@contextmanager
def showing(options: Namespace) -> Iterator[None]:
    """Return a context for showing results.

    If the program that reads standard output has ended, a command continues only if it also writes
    files or is one of ANSWERING. If JSON goes to standard output, nothing else is shown.
    """
    try:
        with (
            redirect_stdout(io.StringIO())
            if targets(options).get("--json") == STDOUT
            else nullcontext()
        ):
            yield
    except BrokenPipeError:
        if not targets(options) and options.command not in ANSWERING:
            raise
        discard(sys.stdout)


# Output files. They are checked before any work starts, mainly to protect profiles.


def targets(options: Namespace) -> dict[str, str]:
    """Return the output file for each option that was passed.

    The options are `--csv`, `--json` and `--html`, and `OUT` for `convert`.
    """
    known = {f"--{kind}": getattr(options, kind, None) for kind in ("csv", "json", "html")}
    known["OUT"] = getattr(options, "target", None)
    return {option: path for option, path in known.items() if path is not None}


def check_targets(options: Namespace) -> None:
    """Raise UserError if the command can't write an output file, or if an output file would replace
    an input file.
    """
    wanted = targets(options)
    if "--html" in wanted and find_spec("matplotlib") is None:
        raise UserError(one_line("--html", *missing_extra("matplotlib")))
    if wanted.get("--json") == STDOUT:
        del wanted["--json"]
    for option, path in wanted.items():
        if path in ("", STDOUT) or os.path.isdir(path) or not Path(path).parent.is_dir():
            raise cannot_write(
                option, path or "''", "a file can't have this name, or its folder doesn't exist"
            )
        if any(_belongs_to(path, Path(source)) for source in options.files):
            raise _would_replace(option, path)
    if len({os.path.realpath(path) for path in wanted.values()}) < len(wanted):
        options, paths = " and ".join(wanted), ", ".join(wanted.values())
        raise cannot_write("each of them", paths, f"{options} would write the same file")


def read_to_write(
    path: str | os.PathLike[str], options: Namespace, **reading: Unpack[ReadOptions]
) -> Profile:
    """Read a profile with the given reader options.

    Raises UserError if the profile includes an output file.
    """
    profile = read(path, **reading)
    refuse_targets(options, profile.meta.get("files", ()))
    return profile


def refuse_targets(options: Namespace, files: Iterable[str]) -> None:
    """Raise UserError if an output file is among these input files."""
    for option, target in targets(options).items():
        read_files = filter(os.path.exists, files)
        if os.path.exists(target) and any(os.path.samefile(target, file) for file in read_files):
            raise _would_replace(option, target)


def origin_of(run: Run) -> Origin:
    """Return the origin of a run, which is `measured` on this machine and `recorded` elsewhere."""
    machine = next(iter(run.ranks.values()))["machine"]
    kind = "measured" if machine["host"] == platform.node() else "recorded"
    return Origin(kind, machine_of(run))


def of_file(table: pd.DataFrame, path: str) -> pd.DataFrame:
    """Add the profile's path as the first column of the table, and the profile's origin as the last
    column.
    """
    placed = with_origin(table)
    placed.insert(0, "file", pd.Series(path, index=table.index, dtype="string"))
    return placed


def with_origin(table: pd.DataFrame) -> pd.DataFrame:
    """Add the origin as the last column, so that exported files contain it."""
    return table.assign(
        origin=pd.Series(str(table.attrs["origin"]), index=table.index, dtype="string")
    )


def export(tables: Sequence[pd.DataFrame], options: Namespace) -> None:
    """Combine the tables, and write the result to each requested file.

    Raises UserError if a file can't be written, or if the tables have different columns.
    """
    wanted = targets(options)
    if not wanted:
        return
    try:
        table = join(tables)
    except ValueError:
        found = "the tables of these files have different columns, so they can't be combined"
        cause, next_step = (
            "some runs used a GPU and some didn't",
            "pass files of one kind at a time",
        )
        raise UserError(one_line(", ".join(options.files), found, cause, next_step)) from None
    table.attrs = {}
    for option, path in wanted.items():
        if path == STDOUT:
            write_report(option, path, _WRITERS[option](table, None) + "\n")
            continue
        try:
            with whole_file(Path(path)) as partial:
                _WRITERS[option](table, partial)
        except OSError as error:
            raise cannot_write(option, path, error) from None


def _for_spreadsheets(table: pd.DataFrame) -> pd.DataFrame:
    """Escape strings in the table for spreadsheets and terminals. Numbers don't change."""
    words = table.select_dtypes(exclude=["number", "bool"])
    return table.assign(
        **words.map(lambda value: csv_text(value) if isinstance(value, str) else value)
    )


def write_report(option: str, path: str, text: str) -> None:
    """Write a string to the file that an option names, or to standard output.

    Raises UserError if writing fails. However, a closed pipe doesn't count as an error.
    """
    try:
        if path == STDOUT:
            return _write(text)
        with whole_file(Path(path)) as partial:
            partial.write_text(text, encoding="utf-8")
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        raise cannot_write(option, path, error) from None


def cannot_write(option: str, path: str, finding: str | OSError) -> UserError:
    """Return the error for a file that can't be written."""
    finding = str(finding.strerror or finding) if isinstance(finding, OSError) else finding
    cause = "a typo, a full disk, or a folder without write permission"
    return UserError(one_line(path, finding, cause, f"pass another file to {option}"))


def _belongs_to(target: str, source: Path) -> bool:
    """Return True if an existing output file is also part of the input.

    The output file may be the input file itself, or a file in the input folder. If the input is a
    common prefix of several file names, the output file's name may start with this prefix.
    """
    if not os.path.exists(target):
        return False
    if source.is_file():
        return os.path.samefile(target, source)
    resolved = Path(target).resolve()
    if source.is_dir():
        return source.resolve() in resolved.parents
    return resolved.parent == source.parent.resolve() and resolved.name.startswith(source.name)


def _would_replace(option: str, path: str) -> UserError:
    return cannot_write(option, path, "writing it would replace an input file")

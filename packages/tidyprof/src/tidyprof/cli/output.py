"""A command's output: tables on a terminal or plain ones into a pipe, and the files it writes."""

from __future__ import annotations

import io
import os
import platform
import sys
import textwrap
from argparse import Namespace
from collections import Counter
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

from tidyprof.analyses.common import join
from tidyprof.atomic_write import whole_file
from tidyprof.cli.usage import EXPORTS, STDOUT
from tidyprof.errors import UserError, one_line
from tidyprof.escaping import csv_text, printable, with_minus
from tidyprof.readers.registry import ReadOptions, read
from tidyprof.running.report import Run, machine_of
from tidyprof.standard_streams import discard, joined, parted, tell
from tidyprof.tables.contract import Origin, Profile, is_identifier

_UNLIMITED = 100_000
"""Width of a pipe in columns of text: more than any table needs."""

_MIN_TEXT = 8
"""Columns that a text keeps on a narrow terminal."""

MUTED_STYLE = "color(243)"
"""Style of what matters less: the grey of xterm's 256 colors that can be read both on black and on
white. NO_COLOR takes it away.
"""

_AROUND = 2
"""Columns that each column of a table on a terminal takes beside its texts."""

_HEADS = (1 / 2, 1 / 3, 2 / 3)
"""Shares of a shortened text that its beginning may have; the first that keep most texts apart are
taken.
"""

_WRITERS = {
    "--csv": lambda table, path: _for_spreadsheets(table).to_csv(path, index=False),
    "--json": lambda table, path: table.to_json(
        path, orient="records", double_precision=15, indent=1
    ),
    "--parquet": lambda table, path: table.to_parquet(path, index=False, engine="pyarrow"),
}


# Tables and lines


@dataclass(frozen=True)
class Column:
    """One column as it is shown: its heading and a text for each row.

    On a terminal long texts are shortened in the middle and numbers never: where these do not fit,
    lines are longer than it is wide. A unit at the end of a heading goes below it there.
    """

    heading: str
    values: Sequence[str]
    is_text: bool = False


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "ms": lambda nanoseconds: f"{nanoseconds / 1e6:,.3f}",
    "µs": lambda nanoseconds: f"{nanoseconds / 1e3:,.1f}",
    "%": lambda share: f"{share:.1f}",
}
"""Unit at the end of a heading -> the text of a value; times are in ns in every table."""


def columns_of(table: pd.DataFrame, headings: Mapping[str, str]) -> list[Column]:
    """Columns of a table, from heading -> name; a number whose heading has no unit is a count, but
    for identifiers.
    """
    columns = []
    for heading, name in headings.items():
        is_text = pd.api.types.is_string_dtype(table[name])
        whole = str if is_text or is_identifier(name) else "{:,d}".format
        text = FORMATS.get(heading.split()[-1], whole)
        columns.append(Column(heading, texts(table[name], text), is_text))
    return columns


def texts(values: Iterable[Any], text: Callable[[Any], str]) -> list[str]:
    """The text of each value, empty for <NA>."""
    return ["" if pd.isna(value) else text(value) for value in values]


def on_terminal() -> bool:
    """Whether standard output is a terminal, where a person reads it as it is written."""
    return sys.stdout is not None and sys.stdout.isatty()


def _in_words(text: str) -> str:
    """A text to print; on a terminal with minus signs, where programs read a hyphen."""
    shown = joined(printable(text))
    return with_minus(shown) if on_terminal() else shown


def say(line: str, style: str = "") -> None:
    """Print a line of text; only a terminal breaks it."""
    _print(Text(_in_words(line), style), soft_wrap=not on_terminal())


def show(columns: Iterable[Column]) -> None:
    """Print a table. The caller has left out columns that tell nothing."""
    columns = list(columns)
    if on_terminal():
        _show_in_lines(columns)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for column in columns:
        table.add_column(Text(column.heading), justify="left" if column.is_text else "right")
    for row in zip(*(column.values for column in columns), strict=True):
        table.add_row(*(Text(printable(value)) for value in row))
    _print(table)


def _show_in_lines(columns: Sequence[Column]) -> None:
    """A table on a terminal: a line for each row, but for texts that would look alike shortened."""
    headings = ["\n".join(column.heading.rpartition(" ")[::2]) for column in columns]
    texts = [
        [printable(text) if column.is_text else with_minus(text) for text in column.values]
        for column in columns
    ]
    least = [max(map(cell_len, heading.split("\n"))) for heading in headings]
    widest = [max([width, *map(cell_len, own)]) for width, own in zip(least, texts, strict=True)]
    floors = [
        max(width, min(wide, _MIN_TEXT)) if column.is_text else wide
        for column, width, wide in zip(columns, least, widest, strict=True)
    ]
    widths = _shared(widest, floors, Console().width - _AROUND * len(columns))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), header_style="bold")
    for column, heading, width in zip(columns, headings, widths, strict=True):
        kind = {"overflow": "fold"} if column.is_text else {"justify": "right", "no_wrap": True}
        table.add_column(Text(heading), width=width, **kind)
    shortened = [_shortened(own, width) for own, width in zip(texts, widths, strict=True)]
    for row in zip(*shortened, strict=True):
        table.add_row(*map(Text, row))
    _print(table, least_width=sum(widths) + _AROUND * len(columns))
    if shortened != texts:
        say("…: shortened to this width; a pipe gets the whole names", MUTED_STYLE)


def _shared(widths: Sequence[int], floors: Sequence[int], most: int) -> list[int]:
    """The widths of columns that have `most` together: the widest give first, none below its
    floor.
    """
    found = list(widths)
    while sum(found) > most:
        can_give = [place for place, width in enumerate(found) if width > floors[place]]
        if not can_give:
            break
        found[max(can_give, key=found.__getitem__)] -= 1
    return found


def _shortened(texts: Sequence[str], width: int) -> list[str]:
    """The texts without their middle where they are too long, cut where they differ most; those
    that would still look alike stay whole.
    """
    ways = [{text: _cut(text, width, share) for text in texts} for share in _HEADS]
    ways.sort(key=lambda way: -len({*way.values()}))
    times = Counter(ways[0].values())
    return [ways[0][text] if times[ways[0][text]] == 1 else text for text in texts]


def _cut(text: str, width: int, share: float) -> str:
    if cell_len(text) <= width:
        return text
    head = int((width - 1) * share)
    return f"{text[:head]}…{text[head + 1 - width :]}"


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print lines of a label and a text; a terminal breaks long texts between words, keeps them
    right of the labels, and indents the lines that go on, since a label may have several texts.
    """
    facts = list(facts)
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    beside = max((cell_len(label) for label, _ in facts), default=0) + 2
    for label, text in facts:
        shown = _in_words(text)
        if on_terminal():
            shown = _hanging(shown, Console().width - beside)
        table.add_row(Text(label), Text(shown))
    _print(table)


def _hanging(text: str, width: int) -> str:
    """The text in lines, of which all but the first are indented."""
    broken = textwrap.wrap(
        text, max(width, _MIN_TEXT), subsequent_indent="  ", break_on_hyphens=False
    )
    return "\n".join(broken)


def warn(message: str) -> None:
    """Print a line on stderr, so that it doesn't get into a pipe of results."""
    tell(f"warning: {printable(message)}")


# Standard output, which may end early: its reader has had enough, or its disk is full


def _print(renderable: RenderableType, soft_wrap: bool = False, least_width: int = 0) -> None:
    """Write it as wide as the output is, and at least `least_width` columns wide."""
    if sys.stdout is None:
        return
    with _to_standard_output():
        plain = {} if on_terminal() else {"width": _UNLIMITED, "force_terminal": False}
        console = Console(highlight=False, **plain)
        console.width = max(console.width, least_width)
        with console.capture() as captured:
            console.print(renderable, soft_wrap=soft_wrap)
    lines = (line.rstrip() for line in parted(captured.get()).splitlines())
    _write("\n".join(lines).strip("\n") + "\n")


def _write(text: str) -> None:
    """Text on standard output; a closed one gets nothing."""
    if sys.stdout is None:
        return
    with _to_standard_output():
        # Other streams, such as io.StringIO, take any character.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        sys.stdout.write(text)
        sys.stdout.flush()  # text that is still buffered would fail later, when nobody handles it


@contextmanager
def _to_standard_output() -> Iterator[None]:
    """A context for writing: raises UserError if standard output cannot be written, and
    BrokenPipeError if its reader has had enough.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout)
        found, cause = str(error.strerror or error), "the disk is full, or the terminal is gone"
        raise UserError(
            one_line("standard output", found, cause, "write to another place")
        ) from None


ANSWERING = {"gate", "isa"}
"""Commands that answer by their exit code as well."""


@contextmanager
def showing(options: Namespace) -> Iterator[None]:
    """A context for all that is shown: if the command also writes files, or is one of ANSWERING, it
    goes on when the reader of standard output has had enough.

    If JSON goes to standard output, nothing else does.
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


# Files to write: refused before anything is done, above all where a recording would be lost


def targets(options: Namespace) -> dict[str, str]:
    """Option -> file to write, for the options that were given: `--csv`, `--json`, `--parquet`,
    `--html` or, of `convert`, `OUT`.
    """
    known = {
        **{f"--{kind}": getattr(options, kind, None) for kind in (*EXPORTS, "html")},
        "OUT": getattr(options, "target", None),
    }
    return {option: path for option, path in known.items() if path is not None}


def check_targets(options: Namespace) -> None:
    """Raise UserError, before any work is done, if a file could not be written or would replace a
    recording that is read.
    """
    wanted = targets(options)
    if "--parquet" in wanted and find_spec("pyarrow") is None:
        raise UserError(
            "--parquet needs pyarrow, which is not installed: pip install pyarrow, or use --csv"
        )
    if wanted.get("--json") == STDOUT:
        del wanted["--json"]
    for option, path in wanted.items():
        if path in ("", STDOUT) or os.path.isdir(path) or not Path(path).parent.is_dir():
            raise cannot_write(
                option, path or "''", "no file can have this name, or its folder is not there"
            )
        if any(_belongs_to(path, Path(source)) for source in options.files):
            raise _would_replace(option, path)
    if len({os.path.realpath(path) for path in wanted.values()}) < len(wanted):
        options, paths = " and ".join(wanted), ", ".join(wanted.values())
        raise cannot_write("each of them", paths, f"both {options} would write it")


def read_to_write(
    path: str | os.PathLike[str], options: Namespace, **reading: Unpack[ReadOptions]
) -> Profile:
    """Read a recording, with these options of its reader.

    Raises UserError if a file that is to be written is among those that were read.
    """
    profile = read(path, **reading)
    refuse_targets(options, profile.meta.get("files", ()))
    return profile


def refuse_targets(options: Namespace, files: Iterable[str]) -> None:
    """Raise UserError if a file that is to be written is among these files, which were read."""
    for option, target in targets(options).items():
        read_files = filter(os.path.exists, files)
        if os.path.exists(target) and any(os.path.samefile(target, file) for file in read_files):
            raise _would_replace(option, target)


def origin_of(run: Run) -> Origin:
    """Of what `tidyprof run` left: `measured` on this machine, else `recorded`."""
    machine = next(iter(run.ranks.values()))["machine"]
    kind = "measured" if machine["host"] == platform.node() else "recorded"
    return Origin(kind, machine_of(run))


def of_file(table: pd.DataFrame, path: str) -> pd.DataFrame:
    """The table with the recording's path as first column and its origin as last column."""
    placed = with_origin(table)
    placed.insert(0, "file", pd.Series(path, index=table.index, dtype="string"))
    return placed


def with_origin(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its origin as last column, since its file has no other room for it."""
    return table.assign(
        origin=pd.Series(str(table.attrs["origin"]), index=table.index, dtype="string")
    )


def export(tables: Sequence[pd.DataFrame], options: Namespace) -> None:
    """Write the tables, joined to one, to each file that was asked for.

    Raises UserError if a file cannot be written, and for tables with different columns.
    """
    wanted = targets(options)
    if not wanted:
        return
    try:
        table = join(tables)
    except ValueError:
        found = "the recordings give tables with different columns, which make none together"
        cause, next_step = (
            "some are of a GPU and some of a CPU",
            "give recordings of one kind at a time",
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
    """The table with texts that are harmless in a spreadsheet and on a terminal; numbers stay."""
    words = table.select_dtypes(exclude=["number", "bool"])
    return table.assign(
        **words.map(lambda value: csv_text(value) if isinstance(value, str) else value)
    )


def write_report(option: str, path: str, text: str) -> None:
    """Write a text to the file that an option names, or to standard output, whose reader may have
    had enough.

    Raises UserError if it cannot be written.
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
    """The error about a file that cannot be written."""
    finding = str(finding.strerror or finding) if isinstance(finding, OSError) else finding
    cause = "a typing error, a full disk, or a folder that may not be written to"
    return UserError(one_line(path, finding, cause, f"give {option} another file"))


def _belongs_to(target: str, source: Path) -> bool:
    """Whether an existing file is the source that is read, lies in it if it is a folder, or begins
    with its name if it is the common beginning of several names.
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
    return cannot_write(option, path, "it is among what is read, and would be lost")

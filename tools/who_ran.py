"""The page docs/who-ran-this.md and README's line on AMD GPUs, from docs/who-ran-this.json:
`python -m tools.who_ran [ARCHIVE] [--name NAME] [--check]`.

With an archive of `make gpu-check` that somebody sent, its run becomes a row first.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from tidyprof.errors import UserError
from tools.generated_page import markdown_text, write_or_check
from tools.gpu_check.__main__ import STATES, SUMMARY

DATA, PAGE, README = Path("docs/who-ran-this.json"), Path("docs/who-ran-this.md"), Path("README.md")
COMMAND = "python -m tools.who_ran"

LARGEST_BYTES = 10**6
"""Largest size of a summary in bytes: some hundred times that of gpu-check's."""

NOBODY = "not yet run on one."
README_LINE = re.compile(r"^(\| AMD GPUs \| \*\*).*?(?=\*\*)", re.MULTILINE)
_WORDS = re.compile(r"(?:[^\W_]|[ ,;:'()-]|\.(?= |$))*")
"""Texts in which Markdown finds neither marks nor links."""

HEAD = """\
# Who ran this, on what, when

A row for each machine with GPUs on which the course was run, as far as its authors were told. {amd}

To add yours, run `make gpu-check` on it and send the archive: [help the \
course](slurm.md#help-the-course-run-it-on-a-gpu) says what it tries, and what it packs. Whoever \
has been sent one makes a row of it by `.venv/bin/python -m tools.who_ran gpu_check.tar.gz --name \
"Ada Example"`, with the name where the sender gave one, and looks at the difference before it is \
committed: its texts are somebody else's.

"""
COLUMNS = ("when", "on what", "passed", "did not pass", "from whom, license")


class Part(msgspec.Struct):
    """The state of one part of a run, and its text."""

    state: Literal["passed", "differed", "failed", "could not run"]
    text: str


class Run(msgspec.Struct):
    """A run as gpu-check's summary states it, and who sent it.

    date  -- a day or a month, in ISO 8601.
    parts -- line on what was tried -> its result.
    """

    date: str
    maker: str
    gpu: str
    count: int
    platform: str
    torch: str
    python: str
    license: str
    parts: dict[str, Part]
    name: str = ""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "archive", nargs="?", type=Path, help="of `make gpu-check`; its run becomes a row"
    )
    parser.add_argument("--name", default="", help="who sent it, if that may be told")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a page is stale"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Add a row, if asked, and write or check both pages. Returns 0; 1 for a stale page; 2 for an
    unsound archive.
    """
    options = build_parser().parse_args(arguments)
    runs = msgspec.json.decode(DATA.read_bytes(), type=list[Run])
    if options.archive:
        try:
            runs.append(sent(options.archive, options.name, runs))
        except UserError as error:
            print(f"who_ran: {error}", file=sys.stderr)
            return 2
        DATA.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1) + b"\n")
    check = ["--check"] * options.check
    text = README_LINE.sub(lambda found: found[1] + line(runs), README.read_text(encoding="utf-8"))
    return max(
        write_or_check(PAGE, page(runs), COMMAND, check),
        write_or_check(README, text, COMMAND, check),
    )


def sent(archive: Path, name: str, known: Sequence[Run]) -> Run:
    """The run in an archive. Raises UserError for a file that is no archive of gpu-check, and for a
    run that is known.
    """
    try:
        with tarfile.open(archive) as source:
            # A stranger's archive: nothing is unpacked to a disk, and nothing large is read.
            entry = next((one for one in source if Path(one.name).name == SUMMARY), None)
            if entry is None or not entry.isfile() or entry.size > LARGEST_BYTES:
                raise UserError(
                    f"{archive}: no {SUMMARY} is in it; was it made by today's `make gpu-check`?"
                )
            run = msgspec.json.decode(source.extractfile(entry).read(), type=Run)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise UserError(f"{archive}: cannot be unpacked ({error}); have it sent again") from error
    except msgspec.DecodeError as error:
        raise UserError(
            f"{archive}: its {SUMMARY} is not what gpu-check writes ({error}); have it sent again"
        ) from error
    run.name = name
    if any(msgspec.structs.replace(one, name=name) == run for one in known):
        raise UserError(f"{archive}: this run has its row in {PAGE} already")
    return run


def page(runs: Sequence[Run]) -> str:
    """The whole page, the newest run first."""
    amd = "**No AMD GPU is among them yet.**" if line(runs) == NOBODY else ""
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    rows += map(_row, sorted(runs, key=lambda run: run.date, reverse=True))
    return HEAD.format(amd=amd) + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def line(runs: Iterable[Run]) -> str:
    """README's words on AMD GPUs, which it shows in bold."""
    machines = [f"{_harmless(run.gpu)} ({when(run)})" for run in runs if run.maker == "AMD"]
    return f"run on {', '.join(machines)}." if machines else NOBODY


def when(run: Run) -> str:
    """The day or the month of a run, as text for people."""
    try:
        if len(run.date) == len("2026-11"):
            return f"{date.fromisoformat(f'{run.date}-01'):%B %Y}"
        return f"{date.fromisoformat(run.date):%-d %B %Y}"
    except ValueError:
        return _harmless(run.date)


def _row(run: Run) -> list[str]:
    passed = [_harmless(what) for what, part in run.parts.items() if part.state == STATES[0]]
    others = [
        f"{_harmless(what)}: **{part.state}**, {_harmless(part.text)}"
        for state in STATES[1:]
        for what, part in run.parts.items()
        if part.state == state
    ]
    versions = f"torch {run.torch}, {run.platform}, Python {run.python}"
    return [
        when(run),
        f"{run.count} x {_harmless(run.gpu)}, {_harmless(versions)}",
        "; ".join(passed) or "nothing",
        "; ".join(others) or "nothing",
        "; ".join(_harmless(text) for text in (run.name, run.license) if text),
    ]


def _harmless(text: str) -> str:
    """A text of somebody else in a cell: plain words unchanged, any other text as code."""
    return text if _WORDS.fullmatch(text) else markdown_text(text)


if __name__ == "__main__":
    raise SystemExit(main())

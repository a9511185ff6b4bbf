"""Write the page docs/who-ran-this.md and README's line on AMD GPUs from docs/who-ran-this.json.

Run it with `python -m tools.who_ran [ARCHIVE] [--name NAME] [--check]`. If ARCHIVE is an archive
that someone sent from `make gpu-check`, its run becomes a new row first.
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
"""Maximum size of a summary in bytes, about a hundred times the size of a typical one."""

NOBODY = "not yet run on one."
README_LINE = re.compile(r"^(\| AMD GPUs \| \*\*).*?(?=\*\*)", re.MULTILINE)
_WORDS = re.compile(r"(?:[^\W_]|[ ,;:'()-]|\.(?= |$))*")
"""Text in which Markdown finds neither markup nor links."""

HEAD = """\
# Who ran this, on what, when

Each row is a machine with GPUs on which the course was run, based on what people told the \
authors. {amd}

To add your machine, run `make gpu-check` on it and send the archive. [Help the \
course](slurm.md#help-the-course-run-it-on-a-gpu) describes what it tests and what it packs. \
To add a row for an archive that you received, run `.venv/bin/python -m tools.who_ran \
gpu_check.tar.gz --name "Ada Example"`. Pass the name only if the sender gave one. Review the \
change before you commit it, because someone else wrote its texts.

"""
COLUMNS = ("when", "on what", "passed", "did not pass", "from whom, license")


class Part(msgspec.Struct):
    """The state and the text of one part of a run."""

    state: Literal["passed", "differed", "failed", "could not run"]
    text: str


class Run(msgspec.Struct):
    """A run from gpu-check's summary, and who sent it.

    date  -- a day or a month, in ISO 8601.
    parts -- results by the line on what was tested.
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
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "archive", nargs="?", type=Path, help="add a row for this archive from `make gpu-check`"
    )
    parser.add_argument("--name", default="", help="add the sender's name, if the sender agreed")
    parser.add_argument(
        "--check", action="store_true", help="only check the pages; exit with 1 if one is stale"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Add a row, if requested, and write or check both pages.

    Return 0, 1 for a stale page, and 2 for an invalid archive.
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
    """Return the run in an archive.

    Raises UserError for a file that isn't a gpu-check archive, and for a run that is already known.
    """
    try:
        with tarfile.open(archive) as source:
            # The archive isn't trusted, so don't unpack it to disk or read anything large.
            entry = next((one for one in source if Path(one.name).name == SUMMARY), None)
            if entry is None or not entry.isfile() or entry.size > LARGEST_BYTES:
                raise UserError(
                    f"{archive} doesn't contain {SUMMARY}. Did the current"
                    " `make gpu-check` write it?"
                )
            run = msgspec.json.decode(source.extractfile(entry).read(), type=Run)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise UserError(f"{archive} can't be unpacked ({error}). Ask for a new copy.") from error
    except msgspec.DecodeError as error:
        raise UserError(
            f"{archive}: gpu-check didn't write its {SUMMARY} ({error}). Ask for a new copy."
        ) from error
    run.name = name
    if any(msgspec.structs.replace(one, name=name) == run for one in known):
        raise UserError(f"{archive}: {PAGE} already has a row for this run.")
    return run


def page(runs: Sequence[Run]) -> str:
    """Return the whole page, with the newest run first."""
    amd = "**No AMD GPU is among them yet.**" if line(runs) == NOBODY else ""
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    rows += map(_row, sorted(runs, key=lambda run: run.date, reverse=True))
    return HEAD.format(amd=amd) + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def line(runs: Iterable[Run]) -> str:
    """Return README's words on AMD GPUs, which it shows in bold."""
    machines = [f"{_harmless(run.gpu)} ({when(run)})" for run in runs if run.maker == "AMD"]
    return f"run on {', '.join(machines)}." if machines else NOBODY


def when(run: Run) -> str:
    """Return the day or the month of a run as text for people."""
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
    """Return someone else's text for a cell: plain words unchanged, and any other text as code."""
    return text if _WORDS.fullmatch(text) else markdown_text(text)


if __name__ == "__main__":
    raise SystemExit(main())

"""The command-line interface: `python -m proflab --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidyprof.command_line import Parser, add_version, parsed, program
from tidyprof.errors import UserError
from tidyprof.standard_streams import discard, tell

EXAMPLES = {
    "doctor": ("", "--json", "--patience 60"),
    "recordings": ("",),
    "fetch": ("torch-mi250-minitoy", "--all"),
    "progress": ("", "--lesson 02 03", "--runs collected --page room.html"),
    "findings": ("", "--html findings.html"),
    "tape": ("record --gpu MI300X -- rocprofv3 --kernel-trace -f csv -d out -- python train.py",),
}
"""Example arguments for each command. The command's help prints one example per line."""

if TYPE_CHECKING:
    from proflab.display import Table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    - 0: The command succeeded.
    - 1: The command found a problem that must be fixed.
    - 2: The command failed with a one-line error that the user can correct.
    """
    options = parsed(build_parser(), arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except UserError as error:
        tell(f"error: {error}")
        return 2
    except BrokenPipeError:  # the reader, such as head, closed the pipe
        discard(sys.stdout)
        return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser for all commands."""
    parser = Parser(prog=program("proflab", "proflab"), description="Run the course toolkit.")
    add_version(parser, "rocm-profiling-course")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    doctor = _add(commands, "doctor", "check this machine and suggest fixes for problems")
    doctor.add_argument("--json", action="store_true", help="print JSON instead of the table")
    doctor.add_argument(
        "--patience",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="wait at most this many seconds for each program",
    )
    doctor.set_defaults(run=_doctor)

    progress = _add(commands, "progress", "show your progress in the exercises of each lesson")
    progress.add_argument(
        "--runs",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="read this progress file, its folder, or a folder of collected files "
        "(default: runs, or notebooks/runs); several files produce one table of all participants",
    )
    progress.add_argument(
        "--lesson", nargs="+", default=[], metavar="NN", help="show each exercise of these lessons"
    )
    progress.add_argument(
        "--page", type=Path, metavar="FILE", help="write an HTML page to print or display"
    )
    progress.set_defaults(run=_progress)

    sheet = _add(commands, "findings", "show the findings of each lesson about the example run")
    sheet.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page")
    sheet.set_defaults(run=_findings)

    listing = _add(commands, "recordings", "list the course's recordings and their locations")
    listing.set_defaults(run=_recordings)

    fetch = _add(commands, "fetch", "download complete recordings into the cache and verify them")
    which = fetch.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "names", nargs="*", default=[], metavar="NAME", help="fetch these recordings"
    )
    which.add_argument(
        "--all", action="store_true", help="fetch every recording that isn't on this machine"
    )
    fetch.set_defaults(run=_fetch)

    tape = _add(commands, "tape", "record a command of a real tool as a tape")
    tape.add_argument("action", choices=["record"])
    tape.add_argument("--name", default="", help="name the tape (default: the tool's name)")
    tape.add_argument("--gpu", required=True, help="name the GPU of this machine, such as MI300X")
    tape.add_argument("command", nargs="+", help="run this tool command, which must follow --")
    tape.set_defaults(run=_record)
    return parser


def _add(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.examples = EXAMPLES[name]
    return command


def _doctor(options: argparse.Namespace) -> int:
    from proflab.doctor import Machine, run_doctor, table

    findings = run_doctor(Machine(patience_s=options.patience))
    to_fix = any(one.status == "fix" for one in findings)
    if options.json:
        print(json.dumps({"ok": not to_fix, "findings": [asdict(one) for one in findings]}))
    else:
        print(table(findings))
    return int(to_fix)


def _recordings(options: argparse.Namespace) -> int:
    from proflab.display import Table, size
    from proflab.recordings import load_manifest, places

    rows, notes = [], []
    for entry in load_manifest().values():
        found = places(entry)
        where = next((place.source for place in found if place.problem is None), "not here")
        notes += [f"{place.source}: {place.problem}" for place in found if place.problem]
        about = (entry.kind, entry.short_gpu, size(entry.total_bytes), entry.license)
        rows.append((entry.name, *about, where))
    notes.append(
        "A cut contains what the lessons need. To get the full file, run `proflab fetch NAME`."
    )
    columns = ("recording", "kind", "GPU", "size", "license", "found in")
    print(Table("Recordings", columns, rows, "\n".join(notes)))
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from proflab.recordings import RecordingUnavailable, fetch, find_entry, load_manifest

    entries = (
        list(load_manifest().values())
        if options.all
        else [find_entry(name) for name in options.names]
    )
    failed = 0
    for entry in entries:
        try:
            found = fetch(entry.name)
        except RecordingUnavailable as error:
            tell(f"error: {error}")
            failed += 1
            continue
        print(f"{found.name}: {found.source}, {found.path} ({entry.license}, {entry.copyright})")
    return 2 if failed else 0


def _progress(options: argparse.Namespace) -> int:
    from proflab.exercises import all_exercises
    from proflab.progress import progress_file, progress_files, progress_table

    if not (options.runs or options.page or progress_file().is_file()):
        print(
            "You haven't answered any exercises yet. Work on a lesson, or pass the folder with"
            " --runs FOLDER."
        )
        return 0
    files = progress_files(options.runs or [progress_file()])
    return _give(progress_table(files, all_exercises(), options.lesson), options.page)


def _findings(options: argparse.Namespace) -> int:
    from proflab import case

    return _give(replace(case.table(), earlier=0), options.html)


def _give(table: Table, file: Path | None) -> int:
    from proflab.display import page
    from tidyprof.atomic_write import whole_file

    if file is None:
        print(table)
        return 0
    try:
        with whole_file(file) as target:
            target.write_text(page(table), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"Can't write {file} ({error.strerror}). Choose a file in a folder that you own."
        ) from None
    return 0


def _record(options: argparse.Namespace) -> int:
    import platform

    from proflab.tapes.recorder import record

    origin = {"kind": "recorded", "detail": f"{options.gpu}, {platform.node()}"}
    print(record(options.command, options.name or options.command[0], origin))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

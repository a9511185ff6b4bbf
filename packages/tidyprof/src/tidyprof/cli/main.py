"""The command line: takes options, returns an exit code. Only the modules that a command needs are
imported, and only once it runs.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tidyprof.cli.usage import EXAMPLES, EXPORTS, JSON, TOP_IN_TERMINAL
from tidyprof.command_line import Parser, add_version, parsed, program
from tidyprof.errors import LONGEST_LINE, ProfileReadError, UserError
from tidyprof.escaping import printable
from tidyprof.gate.metrics import METRICS
from tidyprof.standard_streams import discard, tell

BUG = 3
"""Exit code of a bug. Python's own would be 1, which means that the gate fails."""

MAX_JOBS = 61
"""The most processes that --jobs takes: as many as a ProcessPoolExecutor allows on every system."""

DISTRIBUTION = "tidyprof"
"""Name of the distribution that installs this package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0; 1 only if the gate fails or `isa --fail-on-spill` finds a spill;
    2 after a one-line message about something that the user can correct; 3 after the traceback of a
    bug; 130 after Ctrl-C.
    """
    try:
        return _run(parsed(build_parser(), arguments))
    except KeyboardInterrupt:
        return 130
    except Exception:
        tell(traceback.format_exc().rstrip())
        return BUG


def _run(options: argparse.Namespace) -> int:
    commands = import_module(f"tidyprof.cli.{'run' if options.command == 'run' else 'commands'}")
    try:
        return commands.COMMANDS[options.command](options) or 0
    except (UserError, ProfileReadError) as error:
        tell(f"error: {printable(str(error), LONGEST_LINE)}")
        return 2
    except BrokenPipeError:  # the reader, such as head, has had enough
        discard(sys.stdout)
    return 0


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    parser = Parser(
        prog=program("tidyprof", "tidyprof"),
        description=(
            "Profiler output as tables: what recorded it, which kernels, how busy, which steps."
        ),
        epilog="Formats are recognized by content. Times in exported tables are whole nanoseconds.",
    )
    add_version(parser, DISTRIBUTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    summary = _add(
        commands,
        "summary",
        "what recorded it, on what, how busy, the top kernels or operators, warnings",
    )
    _add_selection(summary)
    _add_tables(commands)
    _add_gate(commands)
    _add_triage(commands)
    _add_run(commands)
    _add_hang(commands)
    _add_isa(commands)
    convert = commands.add_parser(
        "convert", help="write a Chrome trace for https://ui.perfetto.dev"
    )
    convert.add_argument("files", nargs=1, metavar="FILE", help="file or folder of a profiler")
    convert.add_argument("target", metavar="OUT", help="file to write, ending in .json or .json.gz")
    for name, command in commands.choices.items():
        command.examples = EXAMPLES[name]
    return parser


def _command(commands: Any, name: str, text: str) -> Parser:
    """Add a command that this text describes."""
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def _add(
    commands: Any, name: str, text: str, files: tuple[str, ...] = ()
) -> argparse.ArgumentParser:
    """Add a command that reads files, shows a table and can write it."""
    parser = _command(commands, name, text)
    for file in files:
        parser.add_argument(
            "files", action="append", metavar=file, help="file or folder of a profiler"
        )
    if not files:
        parser.add_argument("files", nargs="+", metavar="FILE", help="file or folder of a profiler")
    for kind, what in EXPORTS.items():
        parser.add_argument(
            f"--{kind}", metavar="OUT", help=f"write the whole table to OUT, {what}"
        )
    return parser


def _add_step_marker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step-marker", metavar="NAME", help="range, operator or call with which each step begins"
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=_steps, metavar="N[-M]", help="only what these steps did or launched"
    )
    _add_step_marker(parser)


def _add_tables(commands: Any) -> None:
    text = "show one table of a file: kernels, busy, steps or compare"
    table = _command(commands, "table", text)
    tables = table.add_subparsers(required=True, metavar="NAME", dest="table")
    kernels = _add(tables, "kernels", "list the kernels by total time")
    _add_top(kernels)
    _add_selection(kernels)
    busy = _add(tables, "busy", "show how long each device was busy, and the sum of its durations")
    _add_selection(busy)
    steps = _add(tables, "steps", "list the duration of each training step, and its parts")
    steps.add_argument(
        "--timeline",
        choices=("host", "device"),
        default="host",
        help="whose steps: host (default) or device",
    )
    _add_step_marker(steps)
    compare = _add(
        tables, "compare", "compare two files by kernel or operator", ("BEFORE", "AFTER")
    )
    compare.add_argument(
        "--by",
        choices=("kernel", "operator"),
        help="what to compare (default: kernel, or operator if neither file has kernels)",
    )
    _add_top(compare)


def _add_gate(commands: Any) -> None:
    text = "compare two versions of a program; exit code 1 if the new one is slower beyond doubt"
    gate = _command(commands, "gate", text)
    for side in ("BASE", "NEW"):
        gate.add_argument(
            "files",
            action="append",
            metavar=side,
            help="a run, or a folder with a subfolder per repeat",
        )
    gate.add_argument(
        "--fail-above",
        type=_limit,
        default="5%",
        metavar="PERCENT",
        help="pass an increase up to this limit (default: 5%%)",
    )
    gate.add_argument(
        "--paired",
        action="store_true",
        help="compare runs of the same name, which ran one after the other in random order",
    )
    gate.add_argument(
        "--fail-on-inconclusive",
        action="store_true",
        help="exit with 1 if the verdict is inconclusive, too",
    )
    gate.add_argument(
        "--metric",
        choices=METRICS,
        default="step",
        help=(
            "judge the mean step (default), requests by their mean or 99th percentile, memory, or"
            " a part of the job that tidyprof run recorded"
        ),
    )
    _add_step_marker(gate)
    gate.add_argument("--json", metavar="OUT", help=f"write the verdict to OUT, {JSON}")


def _add_triage(commands: Any) -> None:
    text = (
        "what limits a run, with the evidence, what rules other causes out, and what the files"
        " can't tell"
    )
    triage = _command(commands, "triage", text)
    triage.add_argument(
        "files", nargs="+", metavar="FILE", help="files or folders of one run: its ranks, its tools"
    )
    _add_step_marker(triage)
    triage.add_argument(
        "--step-time-ms",
        type=_milliseconds,
        metavar="MS",
        help="what a step takes without a profiler, from any log of the program",
    )
    triage.add_argument(
        "--jobs",
        type=_jobs,
        metavar="N",
        help=(
            "processes that read files (default: 1 for small ones, else the processors that may be"
            " used, at most 4)"
        ),
    )
    triage.add_argument(
        "--engine",
        metavar="ENGINE",
        help=(
            "read the files of many ranks on many nodes: mpi, of all ranks of this job (srun -n 64"
            " python -m tidyprof triage ...), or dask=ADDRESS of a scheduler"
        ),
    )
    triage.add_argument(
        "--why", action="store_true", help="show the evidence, other causes, and what is missing"
    )
    for kind, what in (("json", JSON), ("html", "as a page with figures (needs matplotlib)")):
        triage.add_argument(f"--{kind}", metavar="OUT", help=f"write the diagnosis to OUT, {what}")


def _add_run(commands: Any) -> None:
    text = (
        "what limits a program as it is: it runs, some of its steps are timed and traced, and"
        " triage judges them"
    )
    run = _command(commands, "run", text)
    run.usage, run.hint = (
        "%(prog)s [options] -- COMMAND ...",
        "; options of your program go behind --",
    )
    run.add_argument(
        "program", nargs="+", metavar="PROGRAM", help="the command as without this, behind --"
    )
    run.add_argument(
        "--out",
        metavar="DIR",
        help="folder for traces and times (default: tidyprof-run-1, -2, ...)",
    )
    run.add_argument(
        "--skip-steps",
        type=_at_least(3, "of which one warms up"),
        default=30,
        metavar="N",
        help="steps before the trace: a third to warm up, the others timed (default: 30)",
    )
    traced = run.add_mutually_exclusive_group()
    traced.add_argument(
        "--steps",
        type=_at_least(1, "--no-trace records none"),
        default=3,
        metavar="N",
        help="steps of the trace (default: 3)",
    )
    traced.add_argument("--no-trace", action="store_true", help="time steps, and record no trace")
    run.add_argument(
        "--with-stack",
        action="store_true",
        help="the trace has Python functions, too: it takes longer",
    )
    run.add_argument(
        "--record-shapes", action="store_true", help="the trace has the operators' shapes"
    )
    run.add_argument(
        "--step-marker",
        metavar="NAME",
        help="range or function of the program that begins each step",
    )
    run.add_argument(
        "--why", action="store_true", help="show the evidence, other causes, and what is missing"
    )
    for kind, what in (("json", JSON), ("html", "as a page with figures (needs matplotlib)")):
        run.add_argument(f"--{kind}", metavar="OUT", help=f"write the report to OUT, {what}")


def _add_hang(commands: Any) -> None:
    text = "which rank is missing when a job hangs, by the dumps of PyTorch's flight recorder"
    hang = _command(commands, "hang", text)
    hang.add_argument("files", nargs=1, metavar="FOLDER", help="folder with a dump of each rank")
    hang.add_argument(
        "--json", metavar="OUT", help=f"write the verdict and each rank's last call to OUT, {JSON}"
    )


def _add_isa(commands: Any) -> None:
    text = (
        "what the compiler made of GPU kernels: registers, spills, LDS, occupancy, matrix"
        " instructions, loads"
    )
    isa = _command(commands, "isa", text)
    what = "assembly (.amdgcn, .s) or a code object, or a folder with such files, as Triton's cache"
    isa.add_argument("files", nargs=1, metavar="FILE", help=what)
    isa.add_argument(
        "--fail-on-spill",
        action="store_true",
        help="exit code 1 if a kernel spills vector registers",
    )
    isa.add_argument("--json", metavar="OUT", help=f"write a row for each kernel to OUT, {JSON}")


def _add_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top",
        type=_count,
        metavar="N",
        help=f"rows to show, 0 for all (default: {TOP_IN_TERMINAL} on a terminal, else all)",
    )


def _limit(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1
    if not 0 <= percent < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage such as 5%")
    return percent / 100


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number such as 10")
    return number


def _at_least(least: int, why: str) -> Callable[[str], int]:
    """Return the type of an option for a number of steps, `least` or more."""

    def number(text: str) -> int:
        if (count := _count(text)) < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be {least} or more: {why}")
        return count

    return number


def _jobs(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes, 1 to {MAX_JOBS}")
    return int(text)


def _milliseconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in milliseconds, such as 12.5")
    return found


def _steps(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) < int(first):
        raise argparse.ArgumentTypeError(f"{text!r} are no steps such as 3 or 3-5")
    return int(first), int(last or first)

"""Parse the command line, run a command and return an exit code. Each command imports only the
modules that it needs.
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
"""The exit code after a bug. Python uses exit code 1 for exceptions, but here exit code 1 means
that the gate fails.
"""

MAX_JOBS = 61
"""The limit of --jobs. A ProcessPoolExecutor supports this many processes on every system."""

DISTRIBUTION = "tidyprof"
"""The name of the distribution that installs this package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Exit code 0 means success. Exit code 1 means that the gate fails or that `isa --fail-on-spill`
    finds a spill. Exit code 2 means an error that the user can fix, 3 a bug, and 130 that the user
    pressed Ctrl-C.
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
    except BrokenPipeError:  # the next program in the pipe, such as head, has ended
        discard(sys.stdout)
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser for all commands and their options."""
    parser = Parser(
        prog=program("tidyprof", "tidyprof"),
        description=(
            "Read the output of any profiler, find the bottleneck of a run, and compare two"
            " versions of a program."
        ),
        epilog="Formats are recognized by content. Exported tables contain times in nanoseconds.",
    )
    add_version(parser, DISTRIBUTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    summary = _add(
        commands,
        "summary",
        "show the origin of a profile, its busy time, its top kernels or operators, and warnings",
    )
    _add_selection(summary)
    _add_tables(commands)
    _add_gate(commands)
    _add_triage(commands)
    _add_run(commands)
    _add_hang(commands)
    _add_isa(commands)
    convert = commands.add_parser(
        "convert", help="convert a profile to a Chrome trace for https://ui.perfetto.dev"
    )
    convert.add_argument("files", nargs=1, metavar="FILE", help="profile: a file or folder")
    convert.add_argument(
        "target", metavar="OUT", help="file to write, with a name that ends in .json or .json.gz"
    )
    for name, command in commands.choices.items():
        command.examples = EXAMPLES[name]
    return parser


def _command(commands: Any, name: str, text: str) -> Parser:
    """Add a command with the given description."""
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def _add(
    commands: Any, name: str, text: str, files: tuple[str, ...] = ()
) -> argparse.ArgumentParser:
    """Add a command that reads files, shows a table and can export the table."""
    parser = _command(commands, name, text)
    for file in files:
        parser.add_argument(
            "files", action="append", metavar=file, help="profile: a file or folder"
        )
    if not files:
        parser.add_argument("files", nargs="+", metavar="FILE", help="profile: a file or folder")
    for kind, what in EXPORTS.items():
        parser.add_argument(
            f"--{kind}", metavar="OUT", help=f"write the complete table to OUT, {what}"
        )
    return parser


def _add_step_marker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step-marker",
        metavar="NAME",
        help="start a step at each range, operator or call with this name",
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=_steps, metavar="N[-M]", help="select the events of these steps"
    )
    _add_step_marker(parser)


def _add_tables(commands: Any) -> None:
    text = "show one table of a file: kernels, busy, steps or compare"
    table = _command(commands, "table", text)
    tables = table.add_subparsers(required=True, metavar="NAME", dest="table")
    kernels = _add(tables, "kernels", "list the kernels by total time")
    _add_top(kernels)
    _add_selection(kernels)
    busy = _add(
        tables, "busy", "show the busy time of each device, and the total duration of its events"
    )
    _add_selection(busy)
    steps = _add(tables, "steps", "list the duration and the parts of each training step")
    steps.add_argument(
        "--timeline",
        choices=("host", "device"),
        default="host",
        help="measure the steps of the host (default) or of the device",
    )
    _add_step_marker(steps)
    compare = _add(
        tables, "compare", "compare two files by kernel or operator", ("BEFORE", "AFTER")
    )
    compare.add_argument(
        "--by",
        choices=("kernel", "operator"),
        help="compare kernels or operators (default: kernel if a file has kernels)",
    )
    _add_top(compare)


def _add_gate(commands: Any) -> None:
    text = "compare runs of two versions of a program; exit with 1 if the new version is slower"
    gate = _command(commands, "gate", text)
    for version in ("BASE", "NEW"):
        gate.add_argument(
            "files",
            action="append",
            metavar=version,
            help="a run, or a folder with one subfolder per run",
        )
    gate.add_argument(
        "--fail-above",
        type=_limit,
        default="5%",
        metavar="PERCENT",
        help="allow an increase up to this limit (default: 5%%)",
    )
    gate.add_argument(
        "--paired",
        action="store_true",
        help="compare runs with the same name, recorded one after the other in random order",
    )
    gate.add_argument(
        "--fail-on-inconclusive",
        action="store_true",
        help="also exit with 1 if the verdict is inconclusive",
    )
    gate.add_argument(
        "--metric",
        choices=METRICS,
        default="step",
        help=(
            "compare the mean step (default), the mean or 99th percentile of requests, memory, or a"
            " part of the job that tidyprof run recorded"
        ),
    )
    _add_step_marker(gate)
    gate.add_argument("--json", metavar="OUT", help=f"write the verdict to OUT, {JSON}")


def _add_triage(commands: Any) -> None:
    text = (
        "report what limits a run, with the evidence, the causes that it rules out, and what the"
        " files can't show"
    )
    triage = _command(commands, "triage", text)
    triage.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="files or folders of one run, for example of all ranks",
    )
    _add_step_marker(triage)
    triage.add_argument(
        "--step-time-ms",
        type=_milliseconds,
        metavar="MS",
        help="step time without a profiler, for example from a log of the program",
    )
    triage.add_argument(
        "--jobs",
        type=_jobs,
        metavar="N",
        help=(
            "number of processes that read files (default: 1 for small files, otherwise the number"
            " of available CPU cores, at most 4)"
        ),
    )
    triage.add_argument(
        "--why", action="store_true", help="show the evidence, other causes, and what is missing"
    )
    for kind, what in (("json", JSON), ("html", "as a page with figures (needs tidyprof[plots])")):
        triage.add_argument(f"--{kind}", metavar="OUT", help=f"write the diagnosis to OUT, {what}")


def _add_run(commands: Any) -> None:
    text = "run a program unmodified, time and trace some of its steps, and report its bottleneck"
    run = _command(commands, "run", text)
    run.usage, run.hint = (
        "%(prog)s [options] -- COMMAND ...",
        "; put the options of your program after --",
    )
    run.add_argument("program", nargs="+", metavar="PROGRAM", help="your usual command, after --")
    run.add_argument(
        "--out",
        metavar="DIR",
        help="write traces and step times to this folder (default: tidyprof-run-1, -2, ...)",
    )
    run.add_argument(
        "--skip-steps",
        type=_at_least(3, "one of them warms up"),
        default=30,
        metavar="N",
        help="run N steps before the trace, a third as warm-up and the others timed (default: 30)",
    )
    traced = run.add_mutually_exclusive_group()
    traced.add_argument(
        "--steps",
        type=_at_least(1, "for no trace, pass --no-trace"),
        default=3,
        metavar="N",
        help="trace N steps (default: 3)",
    )
    traced.add_argument("--no-trace", action="store_true", help="time steps without a trace")
    run.add_argument(
        "--with-stack",
        action="store_true",
        help="also record Python functions, which takes longer",
    )
    run.add_argument(
        "--record-shapes", action="store_true", help="record the shapes of operator inputs"
    )
    run.add_argument(
        "--step-marker",
        metavar="NAME",
        help="start a step at each range or function with this name",
    )
    run.add_argument(
        "--why", action="store_true", help="show the evidence, other causes, and what is missing"
    )
    for kind, what in (("json", JSON), ("html", "as a page with figures (needs tidyprof[plots])")):
        run.add_argument(f"--{kind}", metavar="OUT", help=f"write the report to OUT, {what}")


def _add_hang(commands: Any) -> None:
    text = "find the missing rank in a hanging job, from dumps of PyTorch's flight recorder"
    hang = _command(commands, "hang", text)
    hang.add_argument("files", nargs=1, metavar="FOLDER", help="folder with one dump per rank")
    hang.add_argument(
        "--json",
        metavar="OUT",
        help=f"write the verdict and the last call of each rank to OUT, {JSON}",
    )


def _add_isa(commands: Any) -> None:
    text = (
        "show registers, spills, LDS, occupancy, matrix instructions and loads of compiled GPU"
        " kernels"
    )
    isa = _command(commands, "isa", text)
    what = (
        "assembly (.amdgcn, .s), a code object, or a folder of such files, such as Triton's cache"
    )
    isa.add_argument("files", nargs=1, metavar="FILE", help=what)
    isa.add_argument(
        "--fail-on-spill",
        action="store_true",
        help="exit with 1 if a kernel spills vector registers",
    )
    isa.add_argument("--json", metavar="OUT", help=f"write one row per kernel to OUT, {JSON}")


def _add_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top",
        type=_count,
        metavar="N",
        help=f"show N rows, 0 for all (default: {TOP_IN_TERMINAL} on a terminal, otherwise all)",
    )


def _limit(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1
    if not 0 <= percent < float("inf"):
        raise argparse.ArgumentTypeError(
            f"expects a percentage such as 5%, but you passed {text!r}"
        )
    return percent / 100


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"expects a number such as 10, but you passed {text!r}")
    return number


def _at_least(least: int, why: str) -> Callable[[str], int]:
    """Return an argument type that accepts only numbers of at least `least`."""

    def number(text: str) -> int:
        if (count := _count(text)) < least:
            raise argparse.ArgumentTypeError(
                f"must be {least} or more, but you passed {text}: {why}"
            )
        return count

    return number


def _jobs(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_JOBS:
        raise argparse.ArgumentTypeError(
            f"must be between 1 and {MAX_JOBS}, but you passed {text!r}"
        )
    return int(text)


def _milliseconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(
            f"expects milliseconds such as 12.5, but you passed {text!r}"
        )
    return found


def _steps(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) < int(first):
        raise argparse.ArgumentTypeError(f"expects steps such as 3 or 3-5, but you passed {text!r}")
    return int(first), int(last or first)

"""The command `python -m proflab doctor`."""

from __future__ import annotations

import argparse
import math
import sys

from proflab.display import terminal_width
from proflab.doctor.checkup import check_up
from proflab.doctor.machine import PATIENCE_S, Machine

HELP = "look at what is here: GPU, ROCm, profilers, PyTorch, limits; and say how to fix what is wrong"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the doctor's options to a (sub-)parser."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"longest wait for one program (default: {PATIENCE_S:g})",
    )


def run(options: argparse.Namespace) -> int:
    """Check this machine and print what was found; 0 if nothing is red, 1 if something is."""
    report = check_up(Machine(patience_s=options.patience))
    if options.json:
        print(report.as_json())
    else:
        report.print(sys.stdout, terminal_width())
    return report.exit_code


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 3600")
    return value

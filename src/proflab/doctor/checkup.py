"""Ask all probes at once, each in a thread of its own, and wait for none longer than agreed.

The command `python -m proflab doctor` is here, too.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Sequence

from proflab.display import terminal_width
from proflab.doctor.findings import Finding, Probe, Status, one_line
from proflab.doctor.machine import PATIENCE_S, Machine
from proflab.doctor.report import PROBES, Report

GRACE_S = 3.0
"""Time in seconds, beyond the machine's patience, for a probe to judge the output of its program.
"""


def check_up(machine: Machine | None = None, probes: Sequence[Probe] = PROBES) -> Report:
    """Ask every probe and report. Takes `machine.patience_s` and GRACE_S at most, whatever hangs.

    A probe that hangs or fails gives rows with the status unknown. Its thread is a daemon, so that
    a file system that hangs can't keep the program from ending.
    """
    machine = Machine() if machine is None else machine
    start = time.monotonic()
    answers: dict[Probe, list[Finding]] = {}
    threads = [
        threading.Thread(target=_ask, args=(probe, machine, answers), daemon=True)
        for probe in probes
    ]
    for thread in threads:
        thread.start()
    try:
        # One deadline for all: each thread gets the time that is left of it.
        for thread in threads:
            thread.join(max(0.0, start + machine.patience_s + GRACE_S - time.monotonic()))
    finally:
        machine.stop_all()
    found = [
        finding for probe in probes for finding in answers.get(probe) or _silent(probe, machine)
    ]
    return Report.of(found, seconds=time.monotonic() - start)


def _ask(probe: Probe, machine: Machine, answers: dict[Probe, list[Finding]]) -> None:
    try:
        answers[probe] = list(probe.ask(machine))
    except Exception as error:  # one broken check must not cost the others
        text = one_line(f"this check failed itself ({type(error).__name__}: {error})")
        answers[probe] = [
            Finding(key, Status.UNKNOWN, text, "Please report this.") for key in probe.keys
        ]


def _silent(probe: Probe, machine: Machine) -> list[Finding]:
    text = f"no answer in {machine.patience_s + GRACE_S:g} s"
    hint = "A file system or the network may hang; look at the other rows."
    return [Finding(key, Status.UNKNOWN, text, hint) for key in probe.keys]


HELP = (
    "look at what is here: GPU, ROCm, profilers, PyTorch, limits; and say how to fix what is wrong"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the doctor's options to a (sub-)parser."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of the table"
    )
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"longest wait for one program (default: {PATIENCE_S:g})",
    )


def run(options: argparse.Namespace) -> int:
    """Check this machine and print the report. Returns 1 if a row is red, else 0."""
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

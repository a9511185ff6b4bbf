"""Checks of the GPU, ROCm, profilers, PyTorch and limits of this machine, with a fix for each
problem.

`run_doctor()` runs every check in `checks.CHECKS` at the same time, each with a time limit. A
check that doesn't finish is reported as "unknown", never as "ok". The doctor imports torch only
in a separate process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from proflab.display import Table
from proflab.doctor.checks import CHECKS, Check
from proflab.doctor.machine import Machine

GRACE_S = 3.0
"""Extra seconds for a check to evaluate its program's output after the machine's `patience_s`."""

ISSUES = "docs/known-issues.md"


@dataclass(frozen=True)
class Finding:
    """One row of the result. `status` is ok, note, fix, unknown or not needed."""

    check: str
    status: str
    found: str
    fix: str = ""


def run_doctor(
    machine: Machine | None = None, checks: Mapping[str, Check] = CHECKS
) -> tuple[Finding, ...]:
    """Return the finding of every check after at most `machine.patience_s` plus GRACE_S seconds.

    A check that hangs is reported as unknown. Each check runs in a daemon thread, so a hanging
    file system can't keep the program from exiting.
    """
    machine = machine or Machine()
    deadline = time.monotonic() + machine.patience_s + GRACE_S
    answers: dict[str, Finding] = {}

    def ask(name: str, check: Check) -> None:
        answers[name] = _finding(name, check, machine)

    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in checks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = "no answer; a file system or the network may be hanging"
    return tuple(answers.get(name) or Finding(name, "unknown", late) for name in checks)


def _finding(name: str, check: Check, machine: Machine) -> Finding:
    try:
        status, found, *own_fix = check.probe(machine)
    except Exception as error:  # a check that crashes must not affect other checks
        return Finding(name, "unknown", f"this check failed ({type(error).__name__}: {error})")
    # Turn a program's output into one printable line.
    found = " ".join("".join(one if one.isprintable() else " " for one in found).split())[:160]
    if own_fix or status in ("ok", "not needed"):
        return Finding(name, status, found, "".join(own_fix))
    see = f" See {ISSUES}#{check.issue}" if check.issue else ""
    return Finding(name, status, found, check.fix + see)


def table(findings: tuple[Finding, ...]) -> Table:
    """Return the table of findings, with the fixes and the unneeded checks listed below it."""
    rows = [(one.check, one.status, one.found) for one in findings if one.status != "not needed"]
    below = [f"{one.check}: {one.fix}" for one in findings if one.fix]
    if unneeded := [one.check for one in findings if one.status == "not needed"]:
        below.append(f"Not needed on this machine: {', '.join(unneeded)}.")
    return Table("This machine", ("check", "status", "found"), rows, "\n".join(below))

"""The report of the command `run` once the program has ended."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tidyprof.cli.output import origin_of, say, write_report
from tidyprof.cli.triage import diagnosed, show_report
from tidyprof.errors import ProfileReadError, UserError
from tidyprof.running.report import (
    Run,
    details_of,
    notes_of,
    read_run,
    times_of,
    why_no_trace,
)
from tidyprof.triage.printers import as_dict
from tidyprof.triage.verdict import Diagnosis

PATIENCE_S = 60.0
"""How long the first rank waits for the files of the other ranks."""


def report(options: Namespace, folder: Path, code: int, waits: bool) -> None:
    """Show the result on standard error, since standard output is the program's, and write the
    files that were asked for.

    waits -- whether each rank has its own command, so that some ranks may still be at work.
    """
    found = _wait_for_ranks(folder) if waits else read_run(folder)
    came_to_torch = _take_away(folder / "torch_imported")
    if found.ranks:
        diagnosis, why = _diagnosis(options, found)
        _write_about(folder, options, found, code)
    else:
        diagnosis, why = None, _nothing_seen(options, came_to_torch, code)
    with redirect_stdout(sys.stderr):
        say("")
        if diagnosis is not None:
            show_report(diagnosis, found, options.why)
        else:
            say("Times only, as requested." if options.no_trace else f"No verdict: {why}", "bold")
            for line in (
                [times_of(found), *notes_of(found), *details_of(found)] if found.ranks else ()
            ):
                say(line)
        if found.ranks:
            left = "times" if options.no_trace else "traces and times"
            say(f"Files    {folder}: {left} of each rank ({origin_of(found)})")
    if options.json is not None:
        told = {
            "run": {str(rank): about for rank, about in found.ranks.items()},
            "why_no_verdict": why or None,
        }
        told["diagnosis"] = None if diagnosis is None else as_dict(diagnosis)
        write_report(
            "--json",
            options.json,
            json.dumps({"exit_code": code, **told}, indent=1, default=float) + "\n",
        )


def _take_away(sign: Path) -> bool:
    """Whether the hooks left this file. It is removed, and so is its folder if that is empty
    then.
    """
    was_there = sign.is_file()
    if was_there:
        sign.unlink()
        if not any(sign.parent.iterdir()):
            sign.parent.rmdir()
    return was_there


def _wait_for_ranks(folder: Path) -> Run:
    """All that the ranks wrote; the files of other nodes may appear a moment later."""
    began = time.monotonic()
    while True:
        found = read_run(folder)
        worlds = {about["world"] for about in found.ranks.values()}
        if len(found.ranks) >= max(worlds, default=0) or time.monotonic() - began > PATIENCE_S:
            return found
        time.sleep(0.5)


def _diagnosis(options: Namespace, found: Run) -> tuple[Diagnosis | None, str]:
    if not found.traces:
        return None, why_no_trace(found)
    # The hooks have marked the steps, so no --step-marker is needed.
    asked = {"files": [str(found.folder)], "step_marker": None, "step_time_ms": None, "jobs": None}
    try:
        return diagnosed(Namespace(**asked, html=options.html, json=options.json)), ""
    except (ProfileReadError, UserError) as error:
        return None, str(error)


def _nothing_seen(options: Namespace, came_to_torch: bool, code: int) -> str:
    """A sentence on why no step was seen at all."""
    ended = (
        f"the program ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}"
        if code
        else ""
    )
    if not came_to_torch:
        reason = "nothing that it started imported torch"
        hidden = (
            "; Python with -E or -I, or in a container of its own, does not read the hooks from"
            " PYTHONPATH"
        )
        return f"{ended} before it imported torch" if ended else reason + hidden
    if ended:
        return f"{ended} before it made a step"
    if options.step_marker:
        return (
            f"nothing called {options.step_marker} began: --step-marker takes the name of a range,"
            " or of a function of the program"
        )
    seen = "no optimizer of PyTorch took a step, and no module was called"
    return f"{seen}; --step-marker NAME names a function of the program that is called once a step"


def _write_about(folder: Path, options: Namespace, found: Run, code: int) -> None:
    about: dict[str, Any] = {
        "command": options.program,
        "exit_code": code,
        "host": platform.node(),
        "folder": os.getcwd(),
        "ranks": {str(rank): one["machine"] for rank, one in found.ranks.items()},
    }
    (folder / "run.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

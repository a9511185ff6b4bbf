"""The report of the command `run` after the program has ended."""

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
from tidyprof.cli.run import ABOUT
from tidyprof.cli.triage import diagnosed, show_report
from tidyprof.errors import ProfileReadError, UserError
from tidyprof.running.launch import FIRST, Ended
from tidyprof.running.report import (
    Run,
    details_of,
    job_of,
    notes_of,
    read_run,
    times_of,
    why_no_trace,
)
from tidyprof.standard_streams import tell
from tidyprof.triage.printers import as_dict, labeled
from tidyprof.triage.verdict import Diagnosis

PATIENCE_S = 60.0
"""The maximum time in seconds that the first rank waits for the files of other ranks."""

SIGNS = ("torch_imported", "python_*")
"""The names of empty files that show how far the program got."""


def report(options: Namespace, folder: Path, ended: Ended, waits: bool) -> None:
    """Show the result on standard error, and write the requested files.

    Standard output is reserved for the program.

    - waits: whether to wait for other ranks, because each rank was started by a separate command.
    """
    run = _wait_for_ranks(folder) if waits else read_run(folder)
    signs = _remove_signs(folder)
    job = job_of(run, ended.launched_ns, ended.ended_ns)
    if run.ranks:
        _write_about(folder, options, run, ended.code, job)
        diagnosis, why = _diagnosis(options, run)
    else:
        diagnosis, why = None, _nothing_seen(options, signs, ended.code)
    with redirect_stdout(sys.stderr):
        _show(options, folder, run, job, diagnosis, why)
    if options.json is not None:
        content = {
            "exit_code": ended.code,
            "run": {str(rank): about for rank, about in run.ranks.items()},
            "job_s": job or None,
            "why_no_verdict": why or None,
            "diagnosis": None if diagnosis is None else as_dict(diagnosis),
        }
        text = json.dumps(content, indent=1, default=float)
        write_report("--json", options.json, text + "\n")


def _show(
    options: Namespace,
    folder: Path,
    run: Run,
    job: dict[str, float],
    diagnosis: Diagnosis | None,
    why: str,
) -> None:
    say("")
    if diagnosis is not None:
        show_report(diagnosis, run, options.why)
    else:
        say("Times only, as requested." if options.no_trace else f"No verdict: {why}", "bold")
        if run.ranks:
            for line in (times_of(run), *notes_of(run), *details_of(run)):
                say(line)
    if run.ranks:
        left = "times" if options.no_trace else "traces and times"
        files = f"{run.folder}: {left} of each rank ({origin_of(run)})"
        for line in (*labeled("Job", job_line(job)), *labeled("Files", files)):
            say(line)


def job_line(job: dict[str, float]) -> str:
    """Return a line with the time of the whole job and the time of each part."""
    whole = sum(job.values())
    parts = [
        f"{name} {seconds:,.3g} s ({100 * seconds / whole:.0f}%)"
        for name, seconds in job.items()
        if seconds
    ]
    return f"{whole:,.4g} s: {', '.join(parts)}"


def _remove_signs(folder: Path) -> list[str]:
    """Remove the empty files that the hooks created, and return their names."""
    files = [file for sign in SIGNS for file in folder.glob(sign)]
    for file in files:
        file.unlink(missing_ok=True)
    return [file.name for file in files]


def _wait_for_ranks(folder: Path) -> Run:
    """Return the results of all ranks. Wait for files from other nodes, which may appear later."""
    began = time.monotonic()
    while True:
        found = read_run(folder)
        worlds = {about["world"] for about in found.ranks.values()}
        if len(found.ranks) >= max(worlds, default=0) or time.monotonic() - began > PATIENCE_S:
            return found
        time.sleep(0.5)


def _diagnosis(options: Namespace, run: Run) -> tuple[Diagnosis | None, str]:
    if not run.traces:
        return None, why_no_trace(run)
    # The hooks have marked the steps, so the diagnosis doesn't need --step-marker.
    asked = dict.fromkeys(("step_marker", "step_time_ms"))
    try:
        return diagnosed(Namespace(files=[str(run.folder)], html=options.html, **asked), run), ""
    except (ProfileReadError, UserError) as error:
        return None, str(error)


def _nothing_seen(options: Namespace, signs: list[str], code: int) -> str:
    """Return the reason why the hooks detected no steps."""
    end = f"exit code {code}" if code > 0 else f"signal {-code}"
    if "torch_imported" not in signs:
        old = [sign.removeprefix("python_") for sign in signs]
        if old:
            return f"the program runs Python {old[0]}, but the hooks need Python 3.10 or newer"
        if code:
            return f"the program ended with {end} before it imported torch"
        return (
            "no process of the program imported torch. PYTHONPATH can't load the hooks if Python"
            f" runs with -E or -I, or in a container without {FIRST}"
        )
    if code:
        return f"the program ended with {end} before the first step"
    named = f", and no {options.step_marker} ran" if options.step_marker else ""
    return (
        f"no PyTorch optimizer took a step, and no module was called{named}. The hooks can't detect"
        " a step that torch.compile compiled as a whole. Pass --step-marker NAME with an uncompiled"
        " range or function that runs once per step"
    )


def _write_about(
    folder: Path, options: Namespace, run: Run, code: int, job: dict[str, float]
) -> None:
    """Write the metadata of the run. Keep only the script name, because arguments may contain
    secrets.
    """
    scripts = [word for word in options.program[1:] if Path(word).is_file()]
    about: dict[str, Any] = {
        "command": [options.program[0], *scripts[:1]],
        "exit_code": code,
        "host": platform.node(),
        "folder": os.getcwd(),
        "job_s": job,
        "ranks": {str(rank): one["machine"] for rank, one in run.ranks.items()},
    }
    try:
        (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        tell(f"tidyprof: {folder / ABOUT} can't be written: {error.strerror}")

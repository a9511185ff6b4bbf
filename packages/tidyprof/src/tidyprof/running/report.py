"""The results of the hooks on all ranks, such as step times, parts of a step, and overhead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ABOUT = "run_rank*.json"
"""The name pattern of the files with the metadata of each rank."""

KEYS = {"rank", "world", "stage", "source", "marks", "backwards", "machine", "all_steps", "needed"}
"""The keys that the metadata file of each rank always contains."""

WINDOW_KEYS = {"steps", "step_ns", "parts_ns"}
"""The keys of each period in which steps were timed. Older releases wrote others."""

WINDOWS = ("before", "after")
"""The periods before and after the trace in which steps were timed."""

JOB = ("startup", "training", "validation", "checkpoints", "recording")
"""The parts of a job that the hooks measure (inside/job.py). The remaining time is the shutdown."""


@dataclass(frozen=True)
class Run:
    """The contents of a run's folder.

    - ranks: the data that the hooks of each rank wrote (inside/recorder.py).
    - traces: the trace files of the ranks.
    - others: the folders of other processes that ran steps.
    """

    folder: Path
    ranks: Mapping[int, Mapping[str, Any]]
    traces: tuple[Path, ...]
    others: tuple[Path, ...]

    @property
    def step_ns(self) -> float | None:
        """The mean unprofiled step time of all ranks, or None if no step was timed."""
        lengths = [_mean_step(about) for about in self.ranks.values()]
        known = [length for length in lengths if length is not None]
        return float(np.mean(known)) if known else None


def read_run(folder: Path) -> Run:
    """Return the data that the processes of a run wrote.

    If a program restarts itself or starts another program, the new process writes to a subfolder.
    If the first process recorded no trace, describe the first other process that did.
    """
    others = tuple(sorted(folder.glob("program-*"), key=lambda path: int(path.name[8:] or 0)))
    first = _traces(folder)
    best = next((path for path in others if not first and _traces(path)), folder)
    rest = tuple(path for path in (folder, *others) if path != best)
    return Run(best, _ranks(best), _traces(best), rest if others else ())


def _traces(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("trace_rank*.json.gz")))


def _ranks(folder: Path) -> dict[int, Mapping[str, Any]]:
    """Return the data that each rank wrote.

    A file counts as missing if it is incomplete because the process was killed. A file also counts
    as missing if other software or an older release wrote it.
    """
    ranks = {}
    for file in sorted(folder.glob(ABOUT)):
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
            windows = [about[name] for name in WINDOWS if name in about]
            if about.keys() >= KEYS and all(one.keys() >= WINDOW_KEYS for one in windows):
                ranks[int(about["rank"])] = about
        except (OSError, ValueError, AttributeError, TypeError):
            continue
    return ranks


def _mean_step(about: Mapping[str, Any]) -> float | None:
    windows = [about[name] for name in WINDOWS if name in about]
    steps = sum(window["steps"] for window in windows)
    return sum(window["step_ns"] * window["steps"] for window in windows) / steps if steps else None


def notes_of(run: Run) -> list[str]:
    """Return the notes about a run that every reader of the report should see."""
    notes = list({line: None for about in run.ranks.values() for line in about.get("notes", ())})
    worlds = {about["world"] for about in run.ranks.values()}
    missing = sorted({*range(max(worlds))} - {*run.ranks})
    if missing:
        notes.append(f"The hooks didn't detect any step on rank {', '.join(map(str, missing))}.")
    if run.others:
        names = ", ".join(folder.name for folder in run.others)
        notes.append(
            "Other processes also ran steps, but this report describes only one process. Files of"
            f" the other processes: {names}."
        )
    return notes


def details_of(run: Run) -> list[str]:
    """Return lines about the definition of a step and the host time by part."""
    shares = ", ".join(f"{part} {100 * share:.0f}%" for part, share in _parts(run).items())
    parts = [f"The host's time without the profiler: {shares}."] if shares else []
    return [_what_is_a_step(run), *parts]


def times_of(run: Run) -> str:
    """Return a sentence about the unprofiled step time."""
    if run.step_ns is None:
        return "The hooks didn't time any steps."
    return f"A step takes {run.step_ns / 1e6:,.4g} ms without the profiler."


def _what_is_a_step(run: Run) -> str:
    about = next(iter(run.ranks.values()))
    marks, passes = " or ".join(about["marks"]), about["backwards"]
    what = {
        "optimizer": f"one step of {marks}",
        "backward": "one backward pass, because no PyTorch optimizer took a step,",
        "module": f"one call to {marks}, because no optimizer and no backward pass ran,",
    }.get(about["source"], f"one {marks}")
    is_several = about["source"] == "optimizer" and passes >= 1.5
    several = f", with {passes:.1f} backward passes" if is_several else ""
    return f"A step lasts from {what} to the next{several}."


def _parts(run: Run) -> dict[str, float]:
    """Return the share (0 to 1) of each part in the unprofiled host time, the largest first."""
    sums: dict[str, float] = {}
    windows = [one[name] for one in run.ranks.values() for name in WINDOWS if name in one]
    for window in windows:
        for part, length in window["parts_ns"].items():
            sums[part] = sums.get(part, 0.0) + length * window["steps"]
    whole = sum(sums.values())
    largest = sorted(sums, key=lambda part: -sums[part])
    return {part: sums[part] / whole for part in largest if whole}


def job_of(run: Run, launched_ns: int, ended_ns: int) -> dict[str, float]:
    """Return the first rank's time in seconds for each part of the job, from launch to exit.

    If the program was killed, the remaining time counts as training.
    """
    about = next(iter(run.ranks.values()), {})
    job = about.get("job")
    if job is None:
        return {}
    parts = {name: job[f"{name}_ns"] / 1e9 for name in JOB}
    rest = (ended_ns - launched_ns) / 1e9 - sum(parts.values())
    last = "shutdown" if "closed" in about else "training"
    parts |= {"shutdown": 0.0}
    parts[last] += max(0.0, rest)
    return parts


def machine_of(run: Run) -> str:
    """Return the first rank's host name, GPU, PyTorch version, and ROCm version if known."""
    machine = next(iter(run.ranks.values()))["machine"]
    named = [machine["host"], machine["gpu"] or "no GPU", f"PyTorch {machine['torch']}"]
    if machine["rocm"]:
        named.append(f"ROCm {machine['rocm']}")
    return ", ".join(named)


def why_no_trace(run: Run) -> str:
    """Return the reason why a run with steps has no verdict, and a way to get a verdict."""
    about = next(iter(run.ranks.values()))
    if notes := about.get("notes"):
        return "; ".join(notes)
    if about["asked_steps"] == 0:
        return "--no-trace was passed"
    seen, needed = about["all_steps"], about["needed"]
    if "closed" not in about and about["stage"] != "done":
        return (
            f"the program was killed or called os._exit after at least {seen} steps, but a trace"
            f" needs {needed}"
        )
    if seen < needed:
        # Reserve the steps of the trace and the step before it. Subtract another step, because the
        # last step may have ended with the program. Use a multiple of 3, because a third of
        # --skip-steps is warm-up.
        of_trace = needed - about["asked_after"]
        sooner = 3 * ((seen - 1 - of_trace) // 3)
        help_ = f"pass --skip-steps {sooner}" if sooner >= 3 else "let it run longer"
        return f"it ended after {seen} steps, but a trace needs {needed}: {help_}"
    return "the program ended during the trace, so let it run a few steps longer"

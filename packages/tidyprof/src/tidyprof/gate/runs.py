"""Read the step time of a run, and the parts and kernels of a step.

A training loop can write its own step times without a profiler. The loop writes one file per rank
and one line per step. Times are in seconds, for example `{"rank": 0, "step": 3, "data": 0.002,
"forward": 0.011, ...}`. Lesson 14's code block (snippets/14_instrument_me.py) writes such files if
STEP_TIMER=times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import Annotated

import msgspec
import pandas as pd

from tidyprof.analyses.budget import MEMORY, NO_PARTS, budget_parts, steady_steps, step_budget
from tidyprof.analyses.common import has_launches
from tidyprof.analyses.kernels import kernels
from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.gate.metrics import METRICS, STEP
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.registry import read
from tidyprof.tables.contract import Origin, Profile, origin_of_files
from tidyprof.tables.profiles import ignored_lines

NAMES = "times_rank*.jsonl"

NOTHING = pd.Series(dtype=float)
"""An empty series for metrics that have no parts."""

_Numbers = dict[str, Annotated[float, msgspec.Meta(ge=0, lt=1e18)]]
"""The content of a line: times in seconds, numbers of bytes, and the numbers of rank and step."""


_LINES = msgspec.json.Decoder(_Numbers)


class _Job(msgspec.Struct):
    """The content of run.json: the time of each part of the job in seconds."""

    job_s: _Numbers


def times_files(path: str | PathLike[str]) -> list[Path]:
    """Return the files with names that match NAMES in this folder, or this file if it matches."""
    path = Path(path)
    return sorted(path.glob(NAMES)) if path.is_dir() else [path] if path.match(NAMES) else []


@guarded
def read_times(file: str | PathLike[str]) -> pd.DataFrame:
    """Return one row per step of a rank, with the rank, the step, and the time of each part in ns.

    The columns in NO_PARTS keep their units. Values that a line doesn't contain are <NA>. An
    invalid last line without a newline is ignored, because the job was probably killed while
    writing it. Raises ProfileReadError if the file has no complete lines, if a line isn't a step,
    or if a line isn't later than the previous line.
    """
    *lines, last = read_bytes(Path(file), guard=in_lines).split(b"\n")
    rows: list[dict[str, float]] = []
    for number, line in enumerate([*lines, last], 1):
        step = _step(line)
        if step and (not rows or step["step"] > rows[-1]["step"]):
            rows.append(step)
        elif number <= len(lines):
            raise ProfileReadError(
                file,
                f"line {number} isn't a step with a rank and seconds, or isn't the next step",
                "two runs wrote to the same file, or another program changed it",
                "run it again, with a separate STEP_TIMER_DIR for each run",
            )
    if not rows:
        raise ProfileReadError(file, "the file contains no complete lines", *DAMAGED)
    table = pd.DataFrame(rows).astype({"rank": "int64", "step": "int64"})
    parts = table.columns.difference(NO_PARTS)
    table[parts] = table[parts].fillna(0) * 1e9
    return table


def _step(line: bytes) -> dict[str, float] | None:
    """Return the content of a line, or None if the line isn't a step."""
    try:
        step = _LINES.decode(line)
    except (msgspec.DecodeError, ValueError):
        return None
    is_numbered = all(step.get(name, 0.5).is_integer() for name in ("rank", "step"))
    takes_time = any(step[name] for name in step if name not in ("samples", *MEMORY))
    return step if is_numbered and takes_time and all(map(str.isprintable, step)) else None


@dataclass(frozen=True)
class RunTimes:
    """One run, judged by its steady steps. Steady steps are all steps after the warm-up on all
    ranks and devices.

    If launches are recorded, steps are measured on the device. Host steps wouldn't reveal a slower
    device, because a host that runs ahead finishes its steps early.

    - value: the mean steady step time, or the time of a part of the job, in ns.
    - steps: the number of steady steps.
    - parts: the mean time in ns of each part per steady step. The parts come from
      `tidyprof.step_budget` or from the training loop. They add up to the mean step time.
    - kernels: a table by short kernel name. The values in the columns calls and total_ns are per
      step of one device. The column full_name contains the developers' name for the kernel.
    - profiled: whether a profiler ran, which makes steps longer.
    - ignored: the files in the run's folder that tidyprof didn't read; see `ignored_lines`.
    - work: the number of steps in the whole run, and the number of samples if it is known.
    - metric: one of METRICS.
    - job: the time in ns of each part of the job. The parts add up to the wall time. The series is
      empty if the parts of the job weren't recorded.
    """

    path: str
    value: float
    steps: int
    parts: pd.Series
    kernels: pd.DataFrame
    origin: Origin
    profiled: bool = True
    ignored: tuple[str, ...] = ()
    work: dict[str, float] = field(default_factory=dict)
    metric: str = STEP
    job: pd.Series = field(default_factory=lambda: NOTHING)


@guarded
def repeats_in(path: str | PathLike[str]) -> list[Path]:
    """Return the runs of one version.

    If a folder has several subfolders, each subfolder is a run. Otherwise, the file or folder
    itself is the run. A folder with times files is always one run, and its subfolders belong to
    other processes of that run.
    """
    folder = Path(path)
    inside = (
        sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    )
    return [folder] if len(inside) < 2 or times_files(folder) else inside


def copies_among(runs: Iterable[RunTimes]) -> list[tuple[RunTimes, RunTimes]]:
    """Return pairs of runs with exactly the same times. In such a pair, one run is a copy of the
    other, or a link to it.
    """
    return [
        (one, other)
        for one, other in combinations(runs, 2)
        if (one.value, one.steps) == (other.value, other.steps)
    ]


@guarded
def run_times(path: str | PathLike[str], mark: str | None = None, metric: str = STEP) -> RunTimes:
    """Read one run from its times files (see `times_files`), or otherwise from its profile.

    - mark: the range or operator that starts each step of a profile; see `tidyprof.steps`.
    - metric: one of METRICS. All metrics except `step` require the run.json of `tidyprof run`.

    Raises ProfileReadError if the run can't be read, lacks the metric, or contains a rank twice.
    """
    files = times_files(path)
    run = _own_times(path, files) if files else _profiled_times(path, mark)
    if metric == STEP:
        return run
    spent = run.job.get(metric, 0)
    if not spent:
        raise ProfileReadError(
            run.path,
            f"its run.json contains no time for {METRICS[metric].lower()}",
            "the program has no such part, or tidyprof run didn't record the job",
            "choose another --metric",
        )
    return replace(run, value=spent, parts=NOTHING, metric=metric)


def _profiled_times(path: str | PathLike[str], mark: str | None) -> RunTimes:
    profile = read(path)
    timeline = "device" if has_launches(profile.device_events) else "host"
    try:
        budget = step_budget(profile, timeline, mark)
    except ValueError as error:
        raise ProfileReadError(path, str(error), "another script", "pass another mark") from None
    budget = budget[budget["step"].notna()]
    if not len(budget):
        raise ProfileReadError(
            path,
            "the profile has no marked steps, so runs of different lengths can't be compared",
            "the script called neither the profiler's step() nor a range, or another tool profiled"
            " the same run",
            "pass --step-marker NAME with a range or operator that runs once per step",
        )
    steady = steady_steps(budget)
    return RunTimes(
        str(path),
        float(steady["duration_ns"].mean()),
        len(steady),
        pd.Series({part: steady[f"{part}_ns"].mean() for part in budget_parts(steady)}),
        _kernels_of_a_step(profile, steady),
        profile.origin,
        ignored=tuple(ignored_lines(profile.meta)),
        work={"steps": len(budget)},
    )


def _own_times(path: str | PathLike[str], files: list[Path]) -> RunTimes:
    """Return a run from the times files of all ranks.

    Exclude the first step of each rank, as in a profile.
    """
    table = pd.concat([read_times(file) for file in files], ignore_index=True)
    if table.duplicated(["rank", "step"]).any():
        raise ProfileReadError(
            path,
            f"two files of {', '.join(file.name for file in files)} have the same rank",
            "one is a copy, a link, or part of another run",
            "keep one file per rank",
        )
    steady = steady_steps(table[["rank", "step"]].assign(device=0)).index
    parts = table[table.columns.difference(NO_PARTS, sort=False)].fillna(0).loc[steady].mean()
    work = {"steps": float(len(table))}
    if "samples" in table:
        work["samples"] = table["samples"].sum(skipna=False)
    return RunTimes(
        str(path),
        float(parts.sum()),
        len(steady),
        parts,
        pd.DataFrame(columns=["full_name", "calls", "total_ns"]),
        origin_of_files(map(str, files)),
        profiled=False,
        work=work,
        job=_job(Path(path)),
    )


def _job(folder: Path) -> pd.Series:
    """Return the time in ns of each part of a job from run.json. The result may be empty."""
    try:
        parts = msgspec.json.decode((folder / "run.json").read_bytes(), type=_Job).job_s
    except (OSError, ValueError, msgspec.DecodeError):
        return NOTHING
    return 1e9 * pd.Series(parts, dtype=float)


def _kernels_of_a_step(profile: Profile, steady: pd.DataFrame) -> pd.DataFrame:
    """Return kernel calls and times within the steady steps, per step of one device."""
    begin = steady["start_ns"].min()
    end = (steady["start_ns"] + steady["duration_ns"]).max()
    inside = profile.events[profile.events["start_ns"].between(begin, end, inclusive="left")]
    table = (
        kernels(replace(profile, events=inside))
        .set_index("short_name")
        .rename(columns={"name": "full_name"})
    )
    return table[["full_name"]].join(table[["calls", "total_ns"]] / len(steady))

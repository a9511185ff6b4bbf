"""Read the step time of a run, and the parts and kernels of a step.

A training loop can write its own step times without a profiler. The loop writes one file per rank
and one line per step. Times are in seconds, for example `{"rank": 0, "step": 3, "data": 0.002,
"forward": 0.011, ...}`. Lesson 14's code block (snippets/14_instrument_me.py) writes such files if
STEP_TIMER=times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from tidyprof.analyses.budget import MEMORY, NO_PARTS, budget_parts, steady_steps, step_budget
from tidyprof.analyses.common import has_launches
from tidyprof.analyses.kernels import kernels
from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.gate.metrics import JOB, METRICS
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.registry import read, recordings_in
from tidyprof.tables.contract import Origin, Profile, origin_of_files
from tidyprof.tables.profiles import ignored_lines

NAMES = "times_rank*.jsonl"
LONGEST_S, MOST_BYTES = 1e9, 1e18
"""The upper limits for the time in a part of a step or job (about 30 years), and for memory."""

NOTHING = pd.Series(dtype=float)
"""An empty series for metrics that have no parts."""

LANE = ["rank", "process", "device"]
"""The columns that identify a lane. Steps in the same lane never overlap."""


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
    table = pd.DataFrame(rows)
    parts = table.columns.difference(NO_PARTS)
    table[parts] = table[parts].fillna(0) * 1e9
    return table


def _step(line: bytes) -> dict[str, float] | None:
    """Return the content of a line, or None if the line isn't a step."""
    try:
        step = json.loads(line)
    except ValueError:
        return None
    if not isinstance(step, dict) or not all(
        type(step.get(name)) is int for name in ("rank", "step")
    ):
        return None
    numbers = {name: number for name, number in step.items() if name not in ("rank", "step")}
    possible = all(
        name.isprintable() and _possible(number, MOST_BYTES if name in MEMORY else LONGEST_S)
        for name, number in numbers.items()
    )
    no_time = ("samples", *MEMORY)
    takes_time = any(number for name, number in numbers.items() if name not in no_time)
    return step if possible and takes_time else None


def _possible(number: Any, limit: float) -> bool:
    return type(number) in (int, float) and 0 <= number < limit


def _job(folder: Path) -> pd.Series:
    """Return the time in ns of each part of a job from run.json. The result may be empty."""
    try:
        parts = dict(json.loads((folder / "run.json").read_text(encoding="utf-8"))[JOB])
    except (OSError, ValueError, KeyError, TypeError):
        return NOTHING
    known = all(_possible(seconds, LONGEST_S) for seconds in parts.values())
    return 1e9 * pd.Series(parts, dtype=float) if known else NOTHING


@dataclass(frozen=True)
class RunTimes:
    """One run, judged by its steady steps. Steady steps are all steps after the warm-up on all
    ranks and devices.

    If launches are recorded, steps are measured on the device. Host steps wouldn't reveal a slower
    device, because a host that runs ahead finishes its steps early.

    - value: the mean steady step time, or the value of another metric, in ns or bytes.
    - median: the median steady step time, or `value` if the metric isn't a mean.
    - steps: the number of steady steps.
    - parts: the mean time in ns of each part per steady step. The parts come from
      `tidyprof.step_budget` or from the training loop. They add up to `value`. The series is empty
      if the metric has no parts.
    - kernels: a table by short kernel name. The values in the columns calls and total_ns are per
      step of one device. The column full_name contains the developers' name for the kernel.
    - profiled: whether a profiler ran, which makes steps longer.
    - ignored: the files in the run's folder that tidyprof didn't read; see `ignored_lines`.
    - work: the number of steps in the whole run, and the number of samples if it is
      known.
    - lanes: a hash of all step times of each rank and device. If two runs have the same hash, one
      run is a copy of the other.
    - metric: one of METRICS.
    - job: the time in ns of each part of the job. The parts add up to the wall time. The series is
      empty for memory, and if the parts of the job weren't recorded.
    """

    path: str
    value: float
    median: float
    steps: int
    parts: pd.Series
    kernels: pd.DataFrame
    origin: Origin
    profiled: bool = True
    ignored: tuple[str, ...] = ()
    work: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    lanes: tuple[str, ...] = ()
    metric: str = "step"
    job: pd.Series = field(default_factory=lambda: NOTHING)


@guarded
def repeats_in(path: str | PathLike[str]) -> list[Path]:
    """Return the runs of one version.

    If a folder has several subfolders, each subfolder is a run. Otherwise, the file or folder
    itself is the run. A folder with times files is always one run, and its subfolders belong to
    other processes of that run. Raises ProfileReadError if the subfolders contain profiles from
    several tools, because such profiles belong to the same run.
    """
    folder = Path(path)
    inside = (
        sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    )
    if len(inside) < 2 or times_files(folder):
        return [folder]
    kinds = {
        name: kind for name, kind in recordings_in(folder)[1].items() if folder / name in inside
    }
    tools = sorted({kind.partition(" (")[0] for kind in kinds.values()})
    if len(tools) > 1:
        with_steps = next((name for name in kinds if kinds[name].startswith("torch")), min(kinds))
        raise ProfileReadError(
            folder,
            f"the subfolders come from {len(tools)} tools ({', '.join(tools)}) and aren't repeats",
            "each tool profiled the same run",
            f"pass a profile with marked steps, such as {folder / with_steps}",
        )
    return inside


def copies_among(runs: Iterable[RunTimes]) -> list[tuple[RunTimes, RunTimes]]:
    """Return pairs of runs in which a rank has exactly the same step times. In such a pair, one run
    is a copy of the other, or a link to it.
    """
    return [(one, other) for one, other in combinations(runs, 2) if {*one.lanes} & {*other.lanes}]


@guarded
def run_times(path: str | PathLike[str], mark: str | None = None, metric: str = "step") -> RunTimes:
    """Read one run from its times files (see `times_files`), or otherwise from its profile.

    - mark: the range or operator that starts each step of a profile; see `tidyprof.steps`.
    - metric: one of METRICS. All metrics except `step` require times files.

    Raises ProfileReadError if the run can't be read, lacks the metric, or contains a rank twice.
    """
    if METRICS[metric].column == JOB:
        return _part_of_job(run_times(path, mark), metric)
    if files := times_files(path):
        return _own_times(path, files, metric)
    if metric != "step":
        raise _not_stated(path, METRICS[metric].column)
    profile = read(path)
    try:
        budget = step_budget(profile, _timeline(profile), mark)
    except ValueError as error:
        raise ProfileReadError(path, str(error), "another script", "pass another mark") from None
    budget = budget[budget["step"].notna()]
    if not len(budget):
        raise ProfileReadError(
            path,
            "the profile has no marked steps, so runs of different lengths can't be compared",
            "the script called neither the profiler's step() nor a range",
            "pass --step-marker NAME with a range or operator that runs once per step",
        )
    lanes = [rows.drop(columns=LANE) for _, rows in budget.groupby(LANE, dropna=False)]
    steady = steady_steps(budget)
    return RunTimes(
        str(path),
        float(steady["duration_ns"].mean()),
        float(steady["duration_ns"].median()),
        len(steady),
        pd.Series({part: steady[f"{part}_ns"].mean() for part in budget_parts(steady)}),
        _kernels_of_a_step(profile, steady),
        profile.origin,
        ignored=tuple(ignored_lines(profile.meta)),
        work={"steps": len(budget)},
        lanes=_lanes(path, lanes, profile.meta.get("files", ())),
    )


def _part_of_job(run: RunTimes, metric: str) -> RunTimes:
    """Return the run with the time of one part of its job as its value."""
    spent = run.job.get(metric, 0)
    if not spent:
        cause = "the program has no such part, or tidyprof run didn't record the job"
        raise ProfileReadError(
            run.path,
            f"its run.json contains no time for {metric}",
            cause,
            "choose another --metric",
        )
    return replace(run, value=spent, median=spent, parts=NOTHING, metric=metric)


def _own_times(path: str | PathLike[str], files: list[Path], metric: str) -> RunTimes:
    """Return a run from the times files of all ranks.

    Exclude the first step of each rank, as in a profile.
    """
    tables = [read_times(file) for file in files]
    for (file, table), (other, same) in combinations(zip(files, tables, strict=True), 2):
        if {*table["rank"]} & {*same["rank"]}:
            raise _rank_twice(path, file, other)
    lanes = _lanes(path, [table.drop(columns="rank") for table in tables], files)
    table = pd.concat(tables, ignore_index=True)
    if metric == "memory" and not table.get("gpu_peak_bytes", NOTHING).any():
        metric = "host-memory"
    column = METRICS[metric].column
    parts = table[table.columns.difference(NO_PARTS, sort=False)].fillna(0)
    values = table[column] if column in table else parts.sum(axis=1)
    stated = values > 0
    if column not in ("", *table) or not stated.any():
        raise _not_stated(path, column)
    table = table[stated]
    # For memory, judge the peak, and include the warm-up, because it also allocates memory.
    steps = table[["rank", "step"]].assign(process=0, device=0)
    steady = (table if column else steady_steps(steps)).index
    values, work = values.loc[steady], {"steps": len(table)}
    return RunTimes(
        str(path),
        float(values.max() if column else values.mean()),
        float(values.max() if column else values.median()),
        len(steady),
        NOTHING if column else parts.loc[steady].mean(),
        pd.DataFrame(columns=["full_name", "calls", "total_ns"]),
        origin_of_files(map(str, files)),
        profiled=False,
        work=work | ({"samples": table["samples"].sum(skipna=False)} if "samples" in table else {}),
        lanes=lanes,
        metric=metric,
        job=NOTHING if column else _job(Path(path)),
    )


def _not_stated(path: str | PathLike[str], column: str) -> ProfileReadError:
    found = f"no file {NAMES} contains {column or 'the parts of a step'}"
    next_step = "leave out --metric, or record this column"
    return ProfileReadError(path, found, "another program wrote the files", next_step)


def _lanes(
    path: str | PathLike[str], lanes: Iterable[pd.DataFrame], files: Iterable[str | Path]
) -> tuple[str, ...]:
    """Return a hash of all step times of each rank and device.

    Raises ProfileReadError if two hashes are equal because one file is a copy of another.
    """
    digests = [
        hashlib.sha256(rows.select_dtypes("number").astype(float).to_numpy().tobytes()).hexdigest()
        for rows in lanes
    ]
    if len({*digests}) < len(digests):
        content = [(file, hashlib.sha256(Path(file).read_bytes()).digest()) for file in files]
        for (file, one), (other, same) in combinations(content, 2):
            if one == same:
                raise _rank_twice(path, file, other)
    return tuple(digests)


def _rank_twice(path: str | PathLike[str], one: str | Path, other: str | Path) -> ProfileReadError:
    found = f"{Path(one).name} and {Path(other).name} have the same rank"
    return ProfileReadError(
        path, found, "one is a copy, a link, or part of another run", "keep one file per rank"
    )


def _timeline(profile: Profile) -> str:
    return "device" if has_launches(profile.device_events) else "host"


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

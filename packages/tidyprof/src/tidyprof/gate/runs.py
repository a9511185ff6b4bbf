"""One run as the gate sees it: how long a step takes, and its parts and kernels.

A training loop can write its times without a profiler. It writes a file per rank and a line per
step, such as `{"rank": 0, "step": 3, "data": 0.002, "forward": 0.011, ...}`, in seconds. The block
of lesson 14 does so (snippets/14_instrument_me.py, STEP_TIMER=times). A server can write a line per
request in the same way, such as `{"rank": 0, "step": 3, "latency_ms": 812.5, "ttft_ms": 95.1}`.
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
"""The upper limits for a part of a step or a job, and for memory: no part takes 30 years."""

NOTHING = pd.Series(dtype=float)
"""The parts of a metric that has none."""

LANE = ["rank", "process", "device"]
"""The columns that identify a lane: steps with equal values follow each other."""

LEAST_FOR_P99 = 100
"""The least requests for a 99th percentile. With fewer, it is at or next to the longest one."""


def times_files(path: str | PathLike[str]) -> list[Path]:
    """Return this file if its name matches NAMES, or the files in this folder that do."""
    path = Path(path)
    return sorted(path.glob(NAMES)) if path.is_dir() else [path] if path.match(NAMES) else []


@guarded
def read_times(file: str | PathLike[str]) -> pd.DataFrame:
    """Return a row per step of one rank: rank, step, and ns of each part under its own name.

    NO_PARTS keep their units, and are <NA> if a line doesn't state them. A last line without a
    newline that isn't valid is left out, because the job was killed while it wrote. Raises
    ProfileReadError for a file without a whole line, and for a line that isn't a step or isn't
    later than the line before.
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
                f"line {number} is no step with a rank and seconds, or not the next one",
                "two runs wrote into one file, or another program changed it",
                "run it again, with a separate STEP_TIMER_DIR for each run",
            )
    if not rows:
        raise ProfileReadError(file, "no whole line", *DAMAGED)
    table = pd.DataFrame(rows)
    parts = table.columns.difference(NO_PARTS)
    table[parts] = table[parts].fillna(0) * 1e9
    return table


def _step(line: bytes) -> dict[str, float] | None:
    """Return the content of a line, or None if it is neither a step nor a request."""
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
    """Return ns of each part of a job by the run.json in its folder; none if it states no parts."""
    try:
        parts = dict(json.loads((folder / "run.json").read_text(encoding="utf-8"))[JOB])
    except (OSError, ValueError, KeyError, TypeError):
        return NOTHING
    known = all(_possible(seconds, LONGEST_S) for seconds in parts.values())
    return 1e9 * pd.Series(parts, dtype=float) if known else NOTHING


@dataclass(frozen=True)
class RunTimes:
    """One run, judged by its steady steps: all steps after the warm-up, of all ranks and devices.

    Steps are those of the device if launches are recorded. A host that runs ahead ends its steps
    early, so a slower device would show in none of them.

    value    -- the mean steady step, or the value of another metric, in ns or bytes.
    median   -- the median steady step or request; `value` if the metric isn't a mean.
    steps    -- the number of steady steps or requests.
    parts    -- part -> its mean ns per steady step (parts of `tidyprof.step_budget`, or of the
                loop). They add up to `value`, or are empty if the metric has none.
    kernels  -- by short name the columns calls and total_ns, both per step of one device, and
                full_name, by which its developers know it.
    profiled -- whether a profiler ran, which makes steps longer.
    ignored  -- files in the run's folder that weren't read, see `ignored_lines`.
    work     -- the work of the whole run: steps or requests of all ranks, and samples if its
                files state them.
    lanes    -- a digest of all steps of each rank and device. Two runs share one only if one run
                is a copy of the other.
    metric   -- one of METRICS.
    job      -- part of the job -> its ns, which add up to the wall time; empty if not recorded, or
                for requests and memory.
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
    """Return the runs of one version: the subfolders of a folder that has several, otherwise the
    file or folder itself.

    A folder with times files is one run, and its subfolders belong to other processes of it.
    Raises ProfileReadError if the subfolders are profiles by several tools, and so of one run.
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
            f"its folders are profiles by {len(tools)} tools ({', '.join(tools)}), not repeats",
            "each tool profiled one and the same run",
            f"pass a profile with marked steps, such as {folder / with_steps}",
        )
    return inside


def copies_among(runs: Iterable[RunTimes]) -> list[tuple[RunTimes, RunTimes]]:
    """Return pairs of runs that share a rank to the last digit: one is a copy of the other, or a
    link to it.
    """
    return [(one, other) for one, other in combinations(runs, 2) if {*one.lanes} & {*other.lanes}]


@guarded
def run_times(path: str | PathLike[str], mark: str | None = None, metric: str = "step") -> RunTimes:
    """Read one run: the times that its loop wrote (`times_files`), or if there are none, its
    profile.

    mark   -- the range or operator that begins each step of a profile, see `tidyprof.steps`.
    metric -- one of METRICS; all but `step` need times files.
    Raises ProfileReadError for a run that can't be read, lacks the metric, or has a rank twice.
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
        raise ProfileReadError(path, str(error), "another script", "name another mark") from None
    budget = budget[budget["step"].notna()]
    if not len(budget):
        raise ProfileReadError(
            path,
            "no steps are marked in it, so runs of different length can't be compared",
            "it was recorded without the profiler's step() and without ranges",
            "give --step-marker NAME, a range or an operator that runs once per step",
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
    """Return the run as judged by one part of its job."""
    spent = run.job.get(metric, 0)
    if not spent:
        cause = "the program has none, or something else than tidyprof run recorded it"
        raise ProfileReadError(
            run.path, f"no time in {metric} is in its run.json", cause, "judge another --metric"
        )
    return replace(run, value=spent, median=spent, parts=NOTHING, metric=metric)


def _own_times(path: str | PathLike[str], files: list[Path], metric: str) -> RunTimes:
    """Return a run of all ranks without a profiler. The first step of each rank is left out, as in
    a profile.
    """
    tables = [read_times(file) for file in files]
    for (file, table), (other, same) in combinations(zip(files, tables, strict=True), 2):
        if {*table["rank"]} & {*same["rank"]}:
            raise _rank_twice(path, file, other)
    lanes = _lanes(path, [table.drop(columns="rank") for table in tables], files)
    table = pd.concat(tables, ignore_index=True)
    if metric == "memory" and not table.get("gpu_peak_bytes", NOTHING).any():
        metric = "host-memory"
    column, _, quantile, _ = METRICS[metric]
    parts = table[table.columns.difference(NO_PARTS, sort=False)].fillna(0)
    is_request, is_peak = column.endswith("_ms"), column in MEMORY
    scale = 1e6 if is_request else 1
    values = scale * table[column] if column in table else parts.sum(axis=1)
    # A file may hold lines of requests and of steps; those of the other kind don't count.
    stated = values.notna() if is_request else values > 0
    if column not in ("", *table) or not stated.any():
        raise _not_stated(path, column)
    table = table[stated]
    if is_request and quantile and len(table) < LEAST_FOR_P99:
        found = f"of {len(table)} requests, the 99th percentile is hardly more than the longest one"
        next_step = f"record {LEAST_FOR_P99} or more, or judge the mean"
        raise ProfileReadError(path, found, "the run is short", next_step)
    # Memory is also needed in the warm-up.
    steady = (
        table if is_peak else steady_steps(table[["rank", "step"]].assign(process=0, device=0))
    ).index
    values, parts = values.loc[steady], _parts_of_requests(table, metric) if column else parts
    work = {"requests" if is_request else "steps": len(table)}
    return RunTimes(
        str(path),
        float(values.quantile(quantile) if quantile else values.mean()),
        float(values.quantile(quantile or 0.5)),
        len(steady),
        parts.loc[steady].mean(),
        pd.DataFrame(columns=["full_name", "calls", "total_ns"]),
        origin_of_files(map(str, files)),
        profiled=False,
        work=work | ({"samples": table["samples"].sum(skipna=False)} if "samples" in table else {}),
        lanes=lanes,
        metric=metric,
        job=NOTHING if column else _job(Path(path)),
    )


def _parts_of_requests(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return ns of each request up to its first token, and of the rest, for a mean latency of
    requests that all state both; otherwise no parts.
    """
    if metric != "latency" or "ttft_ms" not in table or table["ttft_ms"].isna().any():
        return pd.DataFrame(index=table.index)
    first_token = 1e6 * table["ttft_ms"]
    return pd.DataFrame(
        {"first_token": first_token, "rest": 1e6 * table["latency_ms"] - first_token}
    )


def _not_stated(path: str | PathLike[str], column: str) -> ProfileReadError:
    if not column:
        found, cause = "no step with parts is in it, only requests", "a server wrote it"
        return ProfileReadError(path, found, cause, "give --metric latency or --metric ttft")
    found, cause = f"no line with {column} is in a file {NAMES}", "another program wrote it"
    return ProfileReadError(path, found, cause, "leave out --metric, or record this column")


def _lanes(
    path: str | PathLike[str], lanes: Iterable[pd.DataFrame], files: Iterable[str | Path]
) -> tuple[str, ...]:
    """Return a digest of the steps of each rank and device. Raises ProfileReadError if two are
    equal because one file is a copy of the other.
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
    found = f"{Path(one).name} and {Path(other).name} are of the same rank"
    return ProfileReadError(
        path, found, "one is a copy or a link, or belongs to another run", "keep one file per rank"
    )


def _timeline(profile: Profile) -> str:
    return "device" if has_launches(profile.device_events) else "host"


def _kernels_of_a_step(profile: Profile, steady: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels that began within the steady steps, per step of one device."""
    begin = steady["start_ns"].min()
    end = (steady["start_ns"] + steady["duration_ns"]).max()
    inside = profile.events[profile.events["start_ns"].between(begin, end, inclusive="left")]
    table = (
        kernels(replace(profile, events=inside))
        .set_index("short_name")
        .rename(columns={"name": "full_name"})
    )
    return table[["full_name"]].join(table[["calls", "total_ns"]] / len(steady))

"""One run as the gate sees it: how long a step takes, and its parts and kernels.

A training loop can write times about itself, without a profiler: a file for each rank, a line for
each step, such as `{"rank": 0, "step": 3, "data": 0.002, "forward": 0.011, ...}`, in seconds, as
the block of lesson 14 writes them (snippets/14_instrument_me.py, WATCH=times). A server can write a
line for each request in the same way, such as `{"rank": 0, "step": 3, "latency_ms": 812.5,
"ttft_ms": 95.1}`.
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

import pandas as pd

from tidyprof.analyses.budget import NO_PARTS, budget_parts, steady_steps, step_budget
from tidyprof.analyses.common import has_launches
from tidyprof.analyses.kernels import kernels
from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.gate.measures import MEASURES
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.registry import read, recordings_in
from tidyprof.tables.contract import Origin, Profile, origin_of_files
from tidyprof.tables.profiles import ignored_lines

NAMES = "times_rank*.jsonl"
LONGEST_S = 1e9
"""No part of a step takes 30 years."""

LANE = ["rank", "process", "device"]
"""Steps with the same values in these columns follow each other."""


LEAST_FOR_P99 = 100
"""The 99th percentile of fewer requests is the longest one, or lies between the two longest."""


def times_files(path: str | PathLike[str]) -> list[Path]:
    """This file if its name matches NAMES, or the files in this folder that do."""
    path = Path(path)
    return sorted(path.glob(NAMES)) if path.is_dir() else [path] if path.match(NAMES) else []


@guarded
def read_times(file: str | PathLike[str]) -> pd.DataFrame:
    """A row for each step of one rank: rank, step, and ns of each part under its own name.

    samples, latency_ms and ttft_ms (NO_PARTS) stay as they are, <NA> where a line does not state
    them. A last line without its end is left out: the job was killed while it wrote. Raises
    ProfileReadError for a file without a whole line, and for a line that is no step, or not a later
    step than the line before.
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
                "run it again, with a WATCH_DIR for each run",
            )
    if not rows:
        raise ProfileReadError(file, "no whole line", *DAMAGED)
    table = pd.DataFrame(rows)
    parts = table.columns.difference(NO_PARTS)
    table[parts] = table[parts].fillna(0) * 1e9
    return table


def _step(line: bytes) -> dict[str, float] | None:
    """A line's content, if it is a step or a request."""
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
        name.isprintable() and type(number) in (int, float) and 0 <= number < LONGEST_S
        for name, number in numbers.items()
    )
    takes_time = any(number for name, number in numbers.items() if name != "samples")
    return step if possible and takes_time else None


@dataclass(frozen=True)
class RunTimes:
    """One run. `step_ns` is the median of its steady steps over ranks and devices, `steps` their
    number.

    Steps are those of the device where launches are recorded: a host that runs ahead ends its steps
    early, and a device that got slower would show in none of them. With another measure than steps,
    `step_ns` is that measure of its requests.

    parts    -- part -> its mean ns in a typical step (parts of `tidyprof.step_budget`, or of the
                loop): in the middle half of each rank's steady steps by length, so that they add up
                to about step_ns.
    kernels  -- by short name the columns calls and total_ns, both for one step of one device, and
                full_name, by which its developers know it.
    profiled -- whether a profiler ran, which makes steps longer.
    ignored  -- files in the run's folder that were not read, see `ignored_lines`.
    work     -- the work of the whole run: steps or requests of all ranks, and samples where its
                files state them.
    mean_ns  -- mean of the steady steps, None for a measure that is no median.
    lanes    -- a digest of all steps of each rank and device: two runs have the same one only if
                one is a copy.
    measure  -- one of MEASURES.
    """

    path: str
    step_ns: float
    steps: int
    parts: pd.Series
    kernels: pd.DataFrame
    origin: Origin
    profiled: bool = True
    ignored: tuple[str, ...] = ()
    work: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    mean_ns: float | None = None
    lanes: tuple[str, ...] = ()
    measure: str = "step"


@guarded
def repeats_in(path: str | PathLike[str]) -> list[Path]:
    """The runs of one side: the sub-folders of a folder that has several, else the file or folder
    itself. One with times of its own is a run, and its sub-folders are of other processes of it.

    Raises ProfileReadError where these are recordings by several tools, and so of one run.
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
            f"its folders are recordings by {len(tools)} tools ({', '.join(tools)}), not repeats",
            "one run was recorded by each of them",
            f"pass one whose steps are marked, such as {folder / with_steps}",
        )
    return inside


def copies_among(runs: Iterable[RunTimes]) -> list[tuple[RunTimes, RunTimes]]:
    """Pairs of runs that share a rank to the last digit: one is a copy of the other, or a link to
    it.
    """
    return [(one, other) for one, other in combinations(runs, 2) if {*one.lanes} & {*other.lanes}]


@guarded
def run_times(
    path: str | PathLike[str], mark: str | None = None, measure: str = "step"
) -> RunTimes:
    """Read one run: the times that its loop wrote (`times_files`), or if there are none, its
    recording.

    mark    -- the range or operator with which each step of a recording begins, see
               `tidyprof.steps`.
    measure -- one of MEASURES; all but `step` need times files.
    Raises ProfileReadError for a run that can't be read, has no steps or requests, or has a rank
    twice.
    """
    if files := times_files(path):
        return _own_times(path, files, measure)
    if measure != "step":
        raise _no_requests(path, MEASURES[measure].column)
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
            "give --mark NAME, a range or an operator that runs once in each step",
        )
    of_lanes = [rows.drop(columns=LANE) for _, rows in budget.groupby(LANE, dropna=False)]
    lanes = _lanes(path, of_lanes, profile.meta.get("files", ()))
    steady = steady_steps(budget)
    typical = _typical(steady, steady["duration_ns"])
    parts = pd.Series({part: typical[f"{part}_ns"].mean() for part in budget_parts(steady)})
    return RunTimes(
        str(path),
        float(steady["duration_ns"].median()),
        len(steady),
        parts,
        _kernels_of_a_step(profile, steady),
        profile.origin,
        ignored=tuple(ignored_lines(profile.meta)),
        work={"steps": len(budget)},
        mean_ns=float(steady["duration_ns"].mean()),
        lanes=lanes,
    )


def _own_times(path: str | PathLike[str], files: list[Path], measure: str) -> RunTimes:
    """A run without a profiler, of all its ranks; the first step of each rank is left out as in a
    recording.
    """
    tables = [read_times(file) for file in files]
    for (file, table), (other, same) in combinations(zip(files, tables, strict=True), 2):
        if {*table["rank"]} & {*same["rank"]}:
            raise _rank_twice(path, file, other)
    lanes = _lanes(path, [table.drop(columns="rank") for table in tables], files)
    table = pd.concat(tables, ignore_index=True)
    column, quantile, _ = MEASURES[measure]
    parts_of_steps = table[table.columns.difference(NO_PARTS, sort=False)].fillna(0)
    values = table[column] * 1e6 if column in table else parts_of_steps.sum(axis=1)
    # Lines of requests and of steps may stand in one file; those of the other sort don't count.
    stated = values.notna() if column else values > 0
    if column not in ("", *table) or not stated.any():
        raise _no_requests(path, column)
    table = table[stated]
    parts = _parts_of_requests(table, column) if column else parts_of_steps
    steady = steady_steps(table[["rank", "step"]].assign(process=0, device=0))
    values = values.loc[steady.index]
    if quantile > 0.5 and len(table) < LEAST_FOR_P99:
        found = f"of {len(table)} requests the 99th percentile is no more than the longest one"
        raise ProfileReadError(
            path, found, "a short run", f"record {LEAST_FOR_P99} or more, or judge the median"
        )
    work = {"requests" if column else "steps": len(table)}
    figure = float(values.quantile(quantile))
    # The parts that explain a median are those of typical steps, for a high quantile those of the
    # steps from there on.
    judged = _typical(steady, values) if quantile == 0.5 else steady[values >= figure]
    return RunTimes(
        str(path),
        figure,
        len(steady),
        parts.loc[judged.index].mean(),
        pd.DataFrame(columns=["full_name", "calls", "total_ns"]),
        origin_of_files(map(str, files)),
        profiled=False,
        work=work | ({"samples": table["samples"].sum(skipna=False)} if "samples" in table else {}),
        mean_ns=float(values.mean()) if quantile == 0.5 else None,
        lanes=lanes,
        measure=measure,
    )


def _typical(steps: pd.DataFrame, lengths: pd.Series) -> pd.DataFrame:
    """The middle half by length of the steps of each rank and device."""
    lanes = lengths.groupby([steps[name] for name in LANE], dropna=False)
    position, left_out = lanes.rank(method="first"), lanes.transform("size") // 4
    return steps[(position > left_out) & (position <= lanes.transform("size") - left_out)]


def _parts_of_requests(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """ns of each request up to its first token, and of the rest, where both are stated; no parts
    for another measure.
    """
    if column != "latency_ms" or "ttft_ms" not in table:
        return pd.DataFrame(index=table.index)
    return (
        pd.DataFrame(
            {"first_token": table["ttft_ms"], "rest": table["latency_ms"] - table["ttft_ms"]}
        )
        * 1e6
    )


def _no_requests(path: str | PathLike[str], column: str) -> ProfileReadError:
    if not column:
        found, cause = "no step with parts is in it, only requests", "a server wrote it"
        return ProfileReadError(path, found, cause, "give --measure latency or --measure ttft")
    found = f"no request with {column} is in a file {NAMES}"
    return ProfileReadError(
        path, found, "a training, or a server that wrote other names", "judge steps: no --measure"
    )


def _lanes(
    path: str | PathLike[str], lanes: Iterable[pd.DataFrame], files: Iterable[str | Path]
) -> tuple[str, ...]:
    """A digest of the steps of each rank and device. Raises ProfileReadError where two are equal
    because one file is a copy of the other.
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
        path, found, "one is a copy or a link, or of another run", "leave one file of each rank"
    )


def _timeline(profile: Profile) -> str:
    return "device" if has_launches(profile.device_events) else "host"


def _kernels_of_a_step(profile: Profile, steady: pd.DataFrame) -> pd.DataFrame:
    """Kernels that began within the steady steps, for one step of one device."""
    begin = steady["start_ns"].min()
    end = (steady["start_ns"] + steady["duration_ns"]).max()
    inside = profile.events[profile.events["start_ns"].between(begin, end, inclusive="left")]
    table = (
        kernels(replace(profile, events=inside))
        .set_index("short_name")
        .rename(columns={"name": "full_name"})
    )
    return table[["full_name"]].join(table[["calls", "total_ns"]] / len(steady))

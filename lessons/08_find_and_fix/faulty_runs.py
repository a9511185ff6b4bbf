"""Runs for the diagnosis practice: each may have a fault, and most have a control run without it.

Three runs are third-party programs, recorded on a GPU, whose fault was known before they ran. More
runs are modeled, and a seed draws their faults. A run shows its letter and its events. The name of
its file stays out of every table, figure and message, because it would reveal the fault.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import tidyprof
from proflab.lessons import lesson
from proflab.recordings import recording
from tidyprof import Profile

if TYPE_CHECKING:
    import pandas as pd

FAULTS = (
    ("slow-loader", "unpinned-copies"),
    ("sync-every-step", "many-small-kernels", "wrong-layout", "tiny-batch"),
    ("rank-skew", "slow-network"),
)
"""Groups of modeled faults: of data, of launches, of ranks. A draw takes one of each group."""

RANKS = 4
"""Number of ranks of a modeled run with a fault between ranks, and of its control."""

FOUR_RANKS = "modeled_four_ranks.tar.xz"
"""The last step of four ranks: of a healthy run, and of a run whose transfers take 40 times as
long.
"""

LETTERS = "ABC"
NO_PART = ("step_ms", "unprofiled_step_ms", "longest_gap_ms", "waiting_ms", "transfer_ms")
"""Indicators in ms that aren't parts of the step budget."""

WRAPPER = "DistributedDataParallel.forward"
"""A host range that only a run with several ranks has."""


@dataclass(frozen=True, repr=False)
class Run:
    """A run under a letter: the profile of its steps, and its control, if there is one.

    unprofiled_step_ms -- step time without the profiler, in ms; NaN if it wasn't measured.
    """

    letter: str
    profile: Profile
    control: Run | None = None
    unprofiled_step_ms: float = float("nan")
    _fault: str = field(default="", repr=False)

    def __repr__(self) -> str:
        ranks = int(self.indicators["ranks"])
        steps = len(tidyprof.steps(self.profile)) // ranks
        return f"Run {self.letter}: steps: {steps}, ranks: {ranks}"

    @cached_property
    def indicators(self) -> pd.Series:
        """Indicators per step and rank; see `indicators_of`."""
        return indicators_of(self.profile, self.unprofiled_step_ms)

    @cached_property
    def changes(self) -> pd.Series:
        """Change of each part of the step against the control, in ms; medians over steps and
        ranks.
        """
        return change(self, self.control)

    def has_fault(self, name: str) -> bool:
        """Return True if this fault was injected into the run."""
        return name == self._fault


def change(run: Run, other: Run) -> pd.Series:
    """Return by how many ms each part of a step is longer in one run than in another."""
    parts = [name for name in run.indicators.index if name.endswith("_ms") and name not in NO_PART]
    return (run.indicators[parts] - other.indicators[parts]).rename(
        index=lambda name: name.removesuffix("_ms")
    )


def recorded() -> dict[str, Run]:
    """Return the three recorded runs by their letters, with their controls."""
    import pandas as pd

    folder = lesson("08").folder
    table = pd.read_csv(folder / "faulty_runs.csv", comment="#").fillna({"fault": ""})
    origin = tidyprof.Origin("recorded", "NVIDIA H200")
    found: dict[str, Run] = {}
    # Controls come first, because the faulty runs refer to them.
    for row in table.sort_values("version", kind="stable").itertuples():
        profile = _unnamed(tidyprof.read(folder / row.file, origin=origin))
        control = found.get(row.letter)
        found[row.letter] = Run(row.letter, profile, control, row.unprofiled_step_ms, row.fault)
    return {letter: found[letter] for letter in LETTERS}


def drawn(seed: int) -> dict[str, Run]:
    """Return three modeled runs by their letters. The same seed draws the same faults."""
    draw = random.Random(seed)
    faults = [draw.choice(group) for group in FAULTS]
    draw.shuffle(faults)
    return {
        letter: with_fault(letter, fault) for letter, fault in zip(LETTERS, faults, strict=True)
    }


@cache
def control_run(ranks: int = 1) -> Run:
    """Return the modeled training run without a fault, on this number of ranks."""
    return Run("control", _one_step("resnet") if ranks == 1 else _four_ranks("healthy"))


def with_fault(letter: str, fault: str) -> Run:
    """Return a modeled run with one of FAULTS."""
    profile = _four_ranks(fault) if fault == "slow-network" else _one_step(fault)
    return Run(letter, profile, control_run(RANKS if fault in FAULTS[-1] else 1), _fault=fault)


@cache
def _four_ranks(name: str) -> Profile:
    """Return the last step of RANKS modeled ranks, from the archive next to the lesson."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(lesson("08").folder / FOUR_RANKS, folder)
        return _last_step(tidyprof.read(Path(folder) / name))


@cache
def _one_step(name: str) -> Profile:
    """Return the last step of a modeled trace that the course ships."""
    found = recording(f"modeled-{name}")
    return _last_step(tidyprof.read(Path(found.path) / "torch", origin=found.origin))


def _last_step(whole: Profile) -> Profile:
    """Return the last recorded step of every rank."""
    steps = tidyprof.steps(whole)
    last = steps[steps["step"] == steps["step"].max()]
    begin, end = last["start_ns"].min(), (last["start_ns"] + last["duration_ns"]).max()
    kept = whole.events["start_ns"].between(begin, end - 1)
    # The model's host was measured under a launcher, but a single rank has no such range.
    if len(last) == 1:
        kept &= (whole.events["kind"] != "annotation") | (whole.events["name"] != WRAPPER)
    return _unnamed(Profile(whole.events[kept].reset_index(drop=True), meta=whole.meta))


def _unnamed(profile: Profile) -> Profile:
    """Return the profile without the file names, which would reveal the fault."""
    hidden = ("files", "ignored_files")
    meta = {key: value for key, value in profile.meta.items() if key not in hidden}
    return Profile(profile.events, meta=meta)


def indicators_of(profile: Profile, unprofiled_step_ms: float = float("nan")) -> pd.Series:
    """Return a step of this run in numbers, per rank: counts, and times in ms (medians over steps
    and ranks).

    busy_percent            -- time in which the device computes, in percent of the step without
                               the profiler.
    longest_gap_ms          -- longest gap on the device in a step.
    waiting_ms, transfer_ms -- the two parts of the time in collectives.
    """
    import pandas as pd

    from tidyprof.analyses import budget_parts

    budget, kernels = tidyprof.step_budget(profile), tidyprof.kernels(profile)
    # A row is one step of one rank, so counts divided by rows are per step and rank.
    rows, ranks = len(budget), budget["rank"].nunique(dropna=False)
    found = {f"{name}_ms": budget[f"{name}_ns"].median() / 1e6 for name in budget_parts(budget)}
    category = kernels["category"].astype(str)
    own = kernels[category != "collective"]
    copies = profile.events.loc[profile.events["kind"] == "copy", "name"].astype(str)
    between = tidyprof.ranks(profile).median(numeric_only=True) / 1e6 if ranks > 1 else {}
    found |= {
        "step_ms": budget["duration_ns"].median() / 1e6,
        "unprofiled_step_ms": unprofiled_step_ms,
        "busy_percent": 100 * found["compute_ms"] / unprofiled_step_ms,
        "longest_gap_ms": _longest_gaps(profile, budget).median() / 1e6,
        "ranks": ranks,
        "kernels": own["calls"].sum() / rows,
        "mean_kernel_us": own["total_ns"].sum() / own["calls"].sum() / 1e3,
        "elementwise_kernels": kernels.loc[category == "elementwise", "calls"].sum() / rows,
        "copy_kernels": kernels.loc[category == "copy", "calls"].sum() / rows,
        "copies_to_device": copies.str.contains("HtoD").sum() / rows,
        "copies_to_host": copies.str.contains("DtoH").sum() / rows,
        "waiting_ms": between.get("wait_ns", 0.0),
        "transfer_ms": between.get("transfer_ns", 0.0),
    }
    return pd.Series(found, dtype="float64")


def _longest_gaps(profile: Profile, budget: pd.DataFrame) -> pd.Series:
    """Return the longest gap that starts in each step of each rank, in ns, or 0 without a gap."""
    import pandas as pd

    gaps = tidyprof.gaps(profile, minimum_ns=1)
    longest = []
    for step in budget.itertuples():
        inside = gaps["start_ns"].between(step.start_ns, step.start_ns + step.duration_ns)
        # A run with one process has no rank.
        own = inside if pd.isna(step.rank) else inside & (gaps["rank"] == step.rank)
        kept = gaps.loc[own.fillna(False).astype(bool), "duration_ns"]
        longest.append(kept.max() if len(kept) else 0)
    return pd.Series(longest, dtype="float64")


def indicator_table(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return a table with one row per run: its name in `run`, then the columns of `indicators_of`.

    Counts are whole numbers. Times are in ns, in columns such as `step_ns`.
    """
    import pandas as pd

    table = pd.DataFrame([run.indicators for run in runs.values()])
    table.insert(0, "run", list(runs))
    counts = table.filter(regex="^ranks$|kernels$|^copies").columns
    table[counts] = table[counts].round().astype("int64")
    for unit, size in {"_ms": 1e6, "_us": 1e3}.items():
        for name in table.filter(regex=f"{unit}$").columns:
            table[name.removesuffix(unit) + "_ns"] = table.pop(name) * size
    table.attrs["origin"] = next(iter(runs.values())).profile.meta["origin"]
    return table

"""The blind clinic: runs with an unknown fault, beside each a healthy run, and their vital signs.

Three patients are real programs, recorded on a GPU; their fault was known before they ran. More
patients, to practice on, are modeled, and a seed draws their faults. A patient shows its letter
and its events; the file that it came from is kept out of every table, figure and message.
"""

from __future__ import annotations

import random
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import tidyprof
from proflab.lessons import lesson
from proflab.recordings import recording

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

HEALTHY = "modeled-resnet"
WARDS = (
    ("slow-loader", "unpinned-copies"),
    ("sync-every-step", "many-small-kernels", "wrong-layout", "tiny-batch"),
    ("rank-skew", "slow-network"),
)
"""One modeled fault of each group is drawn: of data, of launches, of ranks."""

RANKS = 4
"""Number of ranks of a modeled patient with a fault between ranks, and of its healthy run."""

FOUR_RANKS = "modeled_four_ranks.tar.xz"
"""The last step of four healthy ranks, and of four whose transfers take 40 times as long, so that
the exchange takes most of the step.
"""

LETTERS = "ABC"
NO_PART = ("step_ms", "untraced_ms", "longest_gap_ms", "waiting_ms", "transfer_ms")
"""Signs in ms that are not parts of the step's budget."""

WRAPPER = "DistributedDataParallel.forward"
"""A range of the host that only a run of several ranks has."""


@dataclass(frozen=True, repr=False)
class Patient:
    """A run under a letter: `profile` holds its steps, `healthy` is the run to compare it with,
    None if there is none.

    untraced_ms -- the time of its step without the profiler, in ms; NaN if nobody measured it.
    """

    letter: str
    profile: Profile
    healthy: Patient | None = None
    untraced_ms: float = float("nan")
    _fault: str = field(default="", repr=False)

    def __repr__(self) -> str:
        ranks = f", {self.signs['ranks']:.0f} ranks" if self.signs["ranks"] > 1 else ""
        steps = round(len(tidyprof.steps(self.profile)) / self.signs["ranks"])
        return f"Patient {self.letter}: {steps} step{'s' if steps != 1 else ''}{ranks}"

    @cached_property
    def signs(self) -> pd.Series:
        """Vital signs per step and rank; see `vital_signs`."""
        return vital_signs(self.profile, self.untraced_ms)

    @cached_property
    def changes(self) -> pd.Series:
        """How much longer each part of the step is than in the healthy run, in ms; medians over
        steps and ranks.
        """
        return change(self, self.healthy)

    def is_ill_with(self, name: str) -> bool:
        """Whether this is the fault that was put into the run."""
        return name == self._fault


def change(patient: Patient, control: Patient) -> pd.Series:
    """How much longer each part of a step is in one run than in another, in ms."""
    parts = [name for name in patient.signs.index if name.endswith("_ms") and name not in NO_PART]
    return (patient.signs[parts] - control.signs[parts]).rename(
        index=lambda name: name.removesuffix("_ms")
    )


def recorded() -> dict[str, Patient]:
    """Three patients by their letters: programs that ran on an H200, with a healthy run to compare
    with if there is one.
    """
    import pandas as pd

    folder = lesson("08").folder
    table = pd.read_csv(folder / "patients.csv", comment="#").astype({"fault": "string"})
    origin = tidyprof.Origin("recorded", "NVIDIA H200")
    found: dict[str, Patient] = {}
    # The healthy runs come first, since patients refer to them.
    for row in table.sort_values("form", ascending=False, kind="stable").itertuples():
        whole = tidyprof.read(folder / row.file, origin=origin)
        fault = "" if pd.isna(row.fault) else str(row.fault)
        found[row.letter] = Patient(
            row.letter, _unnamed(whole), found.get(row.letter), row.untraced_ms, fault
        )
    return {letter: found[letter] for letter in LETTERS}


def admit(seed: int) -> dict[str, Patient]:
    """Three modeled patients by their letters; the same seed draws the same patients."""
    draw = random.Random(seed)
    faults = [draw.choice(ward) for ward in WARDS]
    draw.shuffle(faults)
    return {
        letter: with_fault(letter, fault) for letter, fault in zip(LETTERS, faults, strict=True)
    }


@cache
def healthy_run(ranks: int = 1) -> Patient:
    """The modeled training without a fault, on this number of ranks."""
    return Patient("healthy", _one_step(HEALTHY) if ranks == 1 else _four_ranks("healthy"))


def with_fault(letter: str, fault: str) -> Patient:
    """A modeled patient with one of the faults in WARDS."""
    shared = fault == "slow-network"
    profile = _four_ranks(fault) if shared else _one_step(f"modeled-{fault}")
    return Patient(letter, profile, healthy_run(RANKS if fault in WARDS[-1] else 1), _fault=fault)


@cache
def _four_ranks(name: str) -> Profile:
    """The last step of RANKS modeled ranks, from the archive next to the lesson."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tarfile.open(lesson("08").folder / FOUR_RANKS) as archive,
    ):
        archive.extractall(folder, filter="data")
        return _last_step(tidyprof.read(Path(folder) / name))


@cache
def _one_step(name: str) -> Profile:
    """The last step of a shipped recording."""
    found = recording(name)
    return _last_step(tidyprof.read(Path(found.path) / "torch", origin=found.origin))


def _last_step(whole: Profile) -> Profile:
    """The last recorded step of every rank."""
    from tidyprof import Profile

    steps = tidyprof.steps(whole)
    last = steps[steps["step"] == steps["step"].max()]
    begin, end = last["start_ns"].min(), (last["start_ns"] + last["duration_ns"]).max()
    kept = whole.events["start_ns"].between(begin, end - 1)
    # The model's host was measured under a launcher: one rank alone has no such range.
    if len(last) == 1:
        kept &= (whole.events["kind"] != "annotation") | (whole.events["name"] != WRAPPER)
    return _unnamed(Profile(whole.events[kept].reset_index(drop=True), meta=whole.meta))


def _unnamed(profile: Profile) -> Profile:
    """The profile without the file names, which would give the fault away."""
    from tidyprof import Profile

    meta = {
        key: value
        for key, value in profile.meta.items()
        if key not in ("files", "ignored_files", "trace_id")
    }
    return Profile(profile.events, meta=meta)


def vital_signs(profile: Profile, untraced_ms: float = float("nan")) -> pd.Series:
    """A step of this run in numbers, per rank: times in ms (medians over steps and ranks) and
    counts.

    busy_percent            -- the time in which the device computes, in percent of the step without
                               the profiler.
    longest_gap_ms          -- the longest gap of the device in a step.
    waiting_ms, transfer_ms -- the two parts of the time in collectives.
    """
    import pandas as pd

    from tidyprof.analyses import budget_parts

    budget, kernels = tidyprof.step_budget(profile), tidyprof.kernels(profile)
    # A row is one step of one rank, so counts over rows are per step and rank.
    rows = len(budget)
    signs = {"step_ms": budget["duration_ns"].median() / 1e6}
    signs |= {f"{name}_ms": budget[f"{name}_ns"].median() / 1e6 for name in budget_parts(budget)}
    category = kernels["category"].astype(str)
    own = kernels[category != "collective"]
    copies = profile.events.loc[profile.events["kind"] == "copy", "name"].astype(str)
    signs |= {
        "untraced_ms": untraced_ms,
        "busy_percent": 100 * signs["compute_ms"] / untraced_ms,
        "longest_gap_ms": _longest_gaps(profile, budget).median() / 1e6,
        "ranks": budget["rank"].nunique(dropna=False),
        "kernels": own["calls"].sum() / rows,
        "mean_kernel_us": own["total_ns"].sum() / own["calls"].sum() / 1e3,
        "elementwise_kernels": kernels.loc[category == "elementwise", "calls"].sum() / rows,
        "copy_kernels": kernels.loc[category == "copy", "calls"].sum() / rows,
        "copies_to_device": copies.str.contains("HtoD").sum() / rows,
        "copies_to_host": copies.str.contains("DtoH").sum() / rows,
    }
    return pd.Series(
        signs | _between_ranks(profile if signs["ranks"] > 1 else None), dtype="float64"
    )


def _longest_gaps(profile: Profile, budget: pd.DataFrame) -> pd.Series:
    """The longest gap that begins in each step of each rank, in ns; 0 for a step without a gap."""
    import pandas as pd

    gaps = tidyprof.gaps(profile, minimum_ns=1)
    longest = []
    for step in budget.itertuples():
        inside = gaps["start_ns"].between(step.start_ns, step.start_ns + step.duration_ns)
        # A run of one process has no rank.
        own = inside if pd.isna(step.rank) else inside & (gaps["rank"] == step.rank)
        longest.append(
            gaps.loc[own.fillna(False).astype(bool), "duration_ns"].max() if own.any() else 0
        )
    return pd.Series(longest, dtype="float64")


def signs_table(patients: Mapping[str, Patient]) -> pd.DataFrame:
    """The vital signs of all runs, one row for each: its name in `run`, then the columns of
    `vital_signs`, with counts as whole numbers.

    Times are in ns here, in columns such as `step_ns`.
    """
    import pandas as pd

    table = pd.DataFrame([patient.signs for patient in patients.values()])
    table.insert(0, "run", list(patients))
    counts = [
        name
        for name in table
        if name == "ranks" or name.endswith("kernels") or name.startswith("copies")
    ]
    table[counts] = table[counts].round().astype("int64")
    for unit, size in {"_ms": 1e6, "_us": 1e3}.items():
        for name in [name for name in table if name.endswith(unit)]:
            table[name.removesuffix(unit) + "_ns"] = table.pop(name) * size
    table.attrs["origin"] = next(iter(patients.values())).profile.meta["origin"]
    return table


def _between_ranks(profile: Profile | None) -> dict[str, float]:
    """The signs of collectives, medians over ranks; zeros without a profile, which is for one
    rank.
    """
    if profile is None:
        return {"waiting_ms": 0.0, "transfer_ms": 0.0}
    ranks = tidyprof.ranks(profile)
    return {
        "waiting_ms": ranks["wait_ns"].median() / 1e6,
        "transfer_ms": ranks["transfer_ns"].median() / 1e6,
    }

"""The blind clinic: runs with an unknown fault beside a healthy one, and their vital signs.

The recordings are modelled, so the fault is known by construction. A patient shows its letter and its events;
which recording it came from is kept out of every table, figure and message.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import tidyprof
from proflab.recordings import recording

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

HEALTHY = "modelled-resnet"
WARDS = (
    ("slow-loader", "unpinned-copies"),
    ("sync-every-step", "many-small-kernels", "wrong-layout"),
    ("rank-skew",),
)
"""One fault of each group is drawn: data, launches, ranks."""

LETTERS = "ABC"
WRAPPER = "DistributedDataParallel.forward"


@dataclass(frozen=True, repr=False)
class Patient:
    """A run under a letter: `profile` holds one step of every rank, `healthy` is the run to compare it with."""

    letter: str
    profile: Profile
    healthy: Patient | None = None
    _fault: str = field(default="", repr=False)

    def __repr__(self) -> str:
        return f"Patient {self.letter}: one step, {self.signs['ranks']:.0f} rank(s)"

    @cached_property
    def signs(self) -> pd.Series:
        """Vital signs per step and rank; see `vital_signs`."""
        return vital_signs(self.profile)

    @cached_property
    def changes(self) -> pd.Series:
        """By how many ms each part of the step is longer than in the healthy run, medians over ranks."""
        parts = [name for name in self.signs.index if name.endswith("_ms") and name != "step_ms"]
        change = self.signs[parts] - self.healthy.signs[parts]
        return change.rename(index=lambda name: name.removesuffix("_ms"))

    def is_ill_with(self, name: str) -> bool:
        """Whether this is the fault that was put into the run."""
        return name == self._fault


def admit(seed: int) -> dict[str, Patient]:
    """The healthy run and three patients, by `healthy` and their letters; the same seed draws the same patients."""
    draw = random.Random(seed)
    faults = [draw.choice(ward) for ward in WARDS]
    draw.shuffle(faults)
    healthy = Patient("healthy", _one_step(HEALTHY))
    drawn = zip(LETTERS, faults, strict=True)
    return {"healthy": healthy, **{letter: _with_fault(letter, fault, healthy) for letter, fault in drawn}}


def waiting_room(healthy: Patient) -> dict[str, Patient]:
    """A patient for every fault that can be drawn, by the fault's name, and the healthy run again: for checks."""
    faults = [fault for ward in WARDS for fault in ward]
    again = Patient("again", healthy.profile, healthy, "healthy")
    return {"healthy": again, **{fault: _with_fault("of the waiting room", fault, healthy) for fault in faults}}


def _with_fault(letter: str, fault: str, healthy: Patient) -> Patient:
    return Patient(letter, _one_step(f"modelled-{fault}"), healthy, fault)


@cache
def _one_step(name: str) -> Profile:
    """The last recorded step of every rank, without the file names, which would tell the fault."""
    from tidyprof import Profile

    found = recording(name)
    whole = tidyprof.read(Path(found.path) / "torch", origin=found.origin)
    steps = tidyprof.steps(whole)
    last = steps[steps["step"] == steps["step"].max()]
    begin, end = last["start_ns"].min(), (last["start_ns"] + last["duration_ns"]).max()
    kept = whole.events["start_ns"].between(begin, end - 1)
    if len(last) == 1:  # the model's host was measured under a launcher: one rank alone has no such range
        kept &= (whole.events["kind"] != "annotation") | (whole.events["name"] != WRAPPER)
    meta = {key: value for key, value in whole.meta.items() if key not in ("files", "ignored_files", "trace_id")}
    return Profile(whole.events[kept].reset_index(drop=True), meta=meta)


def vital_signs(profile: Profile) -> pd.Series:
    """What a step of this run looks like in numbers, per rank: times in ms (medians over ranks), counts.

    waits_for_one_rank_percent is the share of all waiting in collectives that the straggler caused, 0 if there is none.
    """
    import pandas as pd

    from tidyprof.analyses import parts_of

    budget, kernels = tidyprof.step_budget(profile), tidyprof.kernels(profile)
    rows = len(budget)
    signs = {"step_ms": budget["duration_ns"].median() / 1e6}
    signs |= {f"{name}_ms": budget[f"{name}_ns"].median() / 1e6 for name in parts_of(budget)}
    category = kernels["category"].astype(str)
    own = kernels[category != "collective"]
    copies = profile.events.loc[profile.events["kind"] == "copy", "name"].astype(str)
    signs |= {
        "ranks": rows,
        "kernels": own["calls"].sum() / rows,
        "mean_kernel_us": own["total_ns"].sum() / own["calls"].sum() / 1e3,
        "elementwise_kernels": kernels.loc[category == "elementwise", "calls"].sum() / rows,
        "copy_kernels": kernels.loc[category == "copy", "calls"].sum() / rows,
        "copies_inside": copies.str.contains("DtoD").sum() / rows,
        "copies_to_device": copies.str.contains("HtoD").sum() / rows,
        "copies_to_host": copies.str.contains("DtoH").sum() / rows,
        "waits_for_one_rank_percent": _blame(profile) if rows > 1 else 0.0,
    }
    return pd.Series(signs, dtype="float64")


def signs_table(patients: Mapping[str, Patient]) -> pd.DataFrame:
    """The vital signs of all runs, one row for each: run, and those of `vital_signs`, counts as whole numbers.

    Times are in ns here, in columns such as `step_ns`.
    """
    import pandas as pd

    table = pd.DataFrame([patient.signs for patient in patients.values()])
    table.insert(0, "run", list(patients))
    counts = [name for name in table if name == "ranks" or name.endswith("kernels") or name.startswith("copies")]
    table[counts] = table[counts].round().astype("int64")
    for unit, size in {"_ms": 1e6, "_us": 1e3}.items():
        for name in [name for name in table if name.endswith(unit)]:
            table[name.removesuffix(unit) + "_ns"] = table.pop(name) * size
    table.attrs["origin"] = next(iter(patients.values())).profile.meta["origin"]
    return table


def _blame(profile: Profile) -> float:
    """Share of all waiting, in percent, that the straggler caused; 0 if `ranks` names none."""
    ranks = tidyprof.ranks(profile)
    straggler = ranks.attrs["straggler"]
    if straggler is None:
        return 0.0
    return 100 * ranks.loc[ranks["rank"] == straggler, "caused_wait_ns"].sum() / ranks["caused_wait_ns"].sum()

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
from proflab.parts.modelled_trace import modelled_trace
from proflab.recordings import recording

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

HEALTHY = "modelled-resnet"
WARDS = (
    ("slow-loader", "unpinned-copies"),
    ("sync-every-step", "many-small-kernels", "wrong-layout"),
    ("rank-skew", "slow-network"),
)
"""One fault of each group is drawn: data, launches, ranks."""

UNDRAWN = ("tiny-batch",)
"""Only for checks: it shortens a part more than it lengthens another."""

RANKS = 4
"""Of a patient with a fault between ranks, and of its healthy run."""

NETWORK = (("nccl", 40.0),)
"""slow-network: how many times as long each transfer takes. Chosen: the exchange then takes most of the step."""

LETTERS = "ABC"
NO_PART = ("step_ms", "waiting_ms", "transfer_ms")
"""Signs in ms that are no part of the step's budget."""

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
        parts = [name for name in self.signs.index if name.endswith("_ms") and name not in NO_PART]
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
    drawn = zip(LETTERS, faults, strict=True)
    return {"healthy": healthy_run(), **{letter: _with_fault(letter, fault) for letter, fault in drawn}}


def waiting_room() -> dict[str, Patient]:
    """A patient for every fault that there is, by the fault's name, and both healthy runs again: for checks."""
    well = {"healthy": healthy_run(), f"healthy, {RANKS} ranks": healthy_run(RANKS)}
    again = {name: Patient("again", one.profile, one, "healthy") for name, one in well.items()}
    faults = [fault for ward in (*WARDS, UNDRAWN) for fault in ward]
    return {**again, **{fault: _with_fault("of the waiting room", fault) for fault in faults}}


@cache
def healthy_run(ranks: int = 1) -> Patient:
    """The training without a fault, on as many ranks."""
    return Patient("healthy", _one_step(HEALTHY) if ranks == 1 else _played(()))


def _with_fault(letter: str, fault: str) -> Patient:
    profile = _played(NETWORK) if fault == "slow-network" else _one_step(f"modelled-{fault}")
    return Patient(letter, profile, healthy_run(RANKS if fault in WARDS[-1] else 1), fault)


@cache
def _played(longer: tuple[tuple[str, float], ...]) -> Profile:
    """The last step of RANKS ranks, played now, since no recording of it is shipped."""
    return _last_step(modelled_trace("--profile-all-ranks", RANKS, longer))


@cache
def _one_step(name: str) -> Profile:
    """The last step of a shipped recording."""
    found = recording(name)
    return _last_step(tidyprof.read(Path(found.path) / "torch", origin=found.origin))


def _last_step(whole: Profile) -> Profile:
    """The last recorded step of every rank, without the file names, which would tell the fault."""
    from tidyprof import Profile

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

    waiting_ms and transfer_ms are the two parts of the time in collectives. waits_for_one_rank_percent is the share of
    all waiting that the straggler caused, 0 if there is none, however little all waiting is.
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
    }
    return pd.Series(signs | _between_ranks(profile if rows > 1 else None), dtype="float64")


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


def _between_ranks(profile: Profile | None) -> dict[str, float]:
    """The signs of collectives: medians over ranks, and what `ranks` blames the straggler for; zeros for one rank."""
    if profile is None:
        return {"waiting_ms": 0.0, "transfer_ms": 0.0, "waits_for_one_rank_percent": 0.0}
    ranks = tidyprof.ranks(profile)
    caused, late = ranks.set_index("rank")["caused_wait_ns"], ranks.attrs["straggler"]
    return {
        "waiting_ms": ranks["wait_ns"].median() / 1e6,
        "transfer_ms": ranks["transfer_ns"].median() / 1e6,
        "waits_for_one_rank_percent": 0.0 if late is None else 100 * caused[late] / caused.sum(),
    }

"""The blind clinic: runs with an unknown fault beside a healthy one, their vital signs, and the list of suspects.

The recordings are modelled, so the fault is known by construction. A patient shows its letter and its events;
which recording it came from is kept out of every table, figure and message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import tidyprof
from cifar_train.config import PATHOLOGIES
from proflab.errors import CourseError
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

LARGE_SHARE = 0.2
"""A part that grew by this share of the healthy step has grown a lot; the two healthy steps differ by far less."""

MANY_EVENTS = 100
"""So many more copies or kernels per step are no accident: the trainer launches the same ones in every step."""


COUNTS = ("kernels", "elementwise_kernels", "copy_kernels", "copies_to_device", "copies_to_host", "ranks")
"""Vital signs that are whole numbers."""


@dataclass(frozen=True)
class Suspect:
    """A fault that may be the cause.

    sign -- what a profile would show, one clause; looks_at -- the vital signs that decide; fits -- whether they speak
    for it, given the signs of the healthy run and of the patient.
    """

    name: str
    what: str
    sign: str
    looks_at: tuple[str, ...]
    fits: Callable[[Mapping[str, float], Mapping[str, float]], bool]


def _grew_much(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return after[name] - before[name] > LARGE_SHARE * before["step_ms"]


def _more(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return after[name] - before[name] > MANY_EVENTS


SUSPECTS = {
    suspect.name: suspect
    for suspect in (
        Suspect(
            "slow-loader",
            "every image is read slowly, in the training process itself",
            "the wait for data grows, and the copies stay as they are",
            ("data_wait_ms", "copies_to_device"),
            lambda a, b: _grew_much("data_wait_ms", a, b) and not _more("copies_to_device", a, b),
        ),
        Suspect(
            "unpinned-copies",
            "images cross to the device one by one, each waited for",
            "the wait for data grows, and so does the number of copies to the device",
            ("data_wait_ms", "copies_to_device"),
            lambda a, b: _grew_much("data_wait_ms", a, b) and _more("copies_to_device", a, b),
        ),
        Suspect(
            "sync-every-step",
            "a number is read back from the device for every parameter",
            "many copies go back to the host, and the time grows in which the host is blocked or launches late",
            ("copies_to_host", "blocked_host_ms", "launch_bound_ms"),
            lambda a, b: _more("copies_to_host", a, b),
        ),
        Suspect(
            "many-small-kernels",
            "each activation is a chain of small operations",
            "more element-wise kernels run per step, and nothing is copied more often",
            ("elementwise_kernels", "copy_kernels", "copies_to_host"),
            lambda a, b: _more("elementwise_kernels", a, b),
        ),
        Suspect(
            "wrong-layout",
            "tensors are rearranged before each layer",
            "more kernels run that only copy",
            ("copy_kernels", "elementwise_kernels"),
            lambda a, b: _more("copy_kernels", a, b),
        ),
        Suspect(
            "tiny-batch",
            "far too few images in a step",
            "as many kernels run as before, each much shorter",
            ("kernels", "mean_kernel_us"),
            lambda a, b: not _more("kernels", a, b) and b["mean_kernel_us"] < (1 - LARGE_SHARE) * a["mean_kernel_us"],
        ),
        Suspect(
            "rank-skew",
            "one rank comes late to every collective",
            "exposed communication grows, and nearly all waiting is for one and the same rank",
            ("exposed_communication_ms", "waits_for_one_rank_percent"),
            lambda a, b: _grew_much("exposed_communication_ms", a, b) and b["waits_for_one_rank_percent"] > 0,
        ),
        Suspect(
            "slow-network",
            "the data of a collective takes long to travel",
            "exposed communication grows on all ranks alike, and nobody is waited for",
            ("exposed_communication_ms", "waits_for_one_rank_percent"),
            lambda a, b: _grew_much("exposed_communication_ms", a, b) and not b["waits_for_one_rank_percent"],
        ),
    )
}
"""Everything that the clinic considers, by name; not all of them can be drawn."""


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
    def signs(self) -> dict[str, float]:
        """Vital signs per step and rank; see `vital_signs`."""
        return vital_signs(self.profile)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """How each part of the step differs from the healthy run: part, healthy_ns, patient_ns, change_ns.

        Medians over ranks. Raises CourseError for the healthy run itself.
        """
        import pandas as pd

        if self.healthy is None:
            raise CourseError("this is the healthy run: there is nothing to compare it with")
        names = _parts(self.profile)
        sides = [[round(run.signs[f"{name}_ms"] * 1e6) for name in names] for run in (self.healthy, self)]
        table = pd.DataFrame({"part": names, "healthy_ns": sides[0], "patient_ns": sides[1]})
        table["change_ns"] = table["patient_ns"] - table["healthy_ns"]
        table.attrs["origin"] = self.profile.meta["origin"]
        return table

    @property
    def largest_change(self) -> tuple[str, float]:
        """The part that changed most, and by how many ms."""
        row = self.changes.loc[self.changes["change_ns"].abs().idxmax()]
        return str(row["part"]), float(row["change_ns"]) / 1e6

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
    ill = (Patient(letter, _one_step(f"modelled-{fault}"), healthy, fault) for letter, fault in drawn)
    return {"healthy": healthy, **{patient.letter: patient for patient in ill}}


def _one_step(name: str) -> Profile:
    """The last recorded step of every rank, without the file names, which would tell the fault."""
    from tidyprof import Profile

    found = recording(name)
    whole = tidyprof.read(Path(found.path) / "torch", origin=found.origin)
    steps = tidyprof.steps(whole)
    last = steps[steps["step"] == steps["step"].max()]
    begin, end = last["start_ns"].min(), (last["start_ns"] + last["duration_ns"]).max()
    inside = whole.events["start_ns"].between(begin, end - 1)
    meta = {key: value for key, value in whole.meta.items() if key not in ("files", "ignored_files", "trace_id")}
    return Profile(whole.events[inside].reset_index(drop=True), meta=meta)


def vital_signs(profile: Profile) -> dict[str, float]:
    """What a step of this run looks like in numbers, per rank: times in ms (medians over ranks), counts.

    waits_for_one_rank_percent is the share of all waiting in collectives that the straggler caused, 0 if there is none.
    """
    budget, kernels = tidyprof.step_budget(profile), tidyprof.kernels(profile)
    rows = len(budget)
    signs = {"step_ms": budget["duration_ns"].median() / 1e6}
    signs |= {f"{name}_ms": budget[f"{name}_ns"].median() / 1e6 for name in _parts(profile)}
    own = kernels[kernels["category"].astype(str) != "collective"]
    category = own["category"].astype(str)
    copies = profile.events.loc[profile.events["kind"] == "copy", "name"].astype(str)
    signs |= {
        "kernels": own["calls"].sum() / rows,
        "mean_kernel_us": own["total_ns"].sum() / own["calls"].sum() / 1e3,
        "elementwise_kernels": own.loc[category == "elementwise", "calls"].sum() / rows,
        "copy_kernels": own.loc[category == "copy", "calls"].sum() / rows,
        "copies_to_device": copies.str.contains("HtoD").sum() / rows,
        "copies_to_host": copies.str.contains("DtoH").sum() / rows,
        "ranks": float(rows),
        "waits_for_one_rank_percent": _blame(profile) if rows > 1 else 0.0,
    }
    return {name: float(value) for name, value in signs.items()}


def signs_table(patients: Mapping[str, Patient]) -> pd.DataFrame:
    """The vital signs of all runs, one row for each: run, and the columns of `vital_signs`."""
    import pandas as pd

    table = pd.DataFrame([{"run": name, **patient.signs} for name, patient in patients.items()])
    table[list(COUNTS)] = table[list(COUNTS)].round().astype("int64")
    table.attrs["origin"] = next(iter(patients.values())).profile.meta["origin"]
    return table


def gap_table(patient: Patient) -> pd.DataFrame:
    """Idle time of the device by what the host was doing meanwhile: host_range, gaps, total_ns per rank, most first."""
    gaps = tidyprof.gaps(patient.profile)
    table = gaps.groupby("host_range", observed=True)["duration_ns"].agg(gaps="count", total_ns="sum").reset_index()
    ranks = patient.signs["ranks"]
    table["gaps"], table["total_ns"] = table["gaps"] / ranks, (table["total_ns"] / ranks).round().astype("int64")
    table = table.sort_values("total_ns", ascending=False, ignore_index=True)
    table.attrs["origin"] = patient.profile.meta["origin"]
    return table


def differential(patient: Patient) -> pd.DataFrame:
    """Every suspect against one patient: name, sign, and whether the signs `fit`."""
    import pandas as pd

    before = patient.healthy.signs
    rows = [(one.name, one.sign, bool(one.fits(before, patient.signs))) for one in SUSPECTS.values()]
    table = pd.DataFrame(rows, columns=["suspect", "sign", "fits"])
    table.attrs["origin"] = patient.profile.meta["origin"]
    return table


def suspects_table() -> pd.DataFrame:
    """What the clinic considers: suspect, what it is."""
    import pandas as pd

    return pd.DataFrame([(one.name, one.what) for one in SUSPECTS.values()], columns=["suspect", "what_it_is"])


def option_of(answer: object) -> str:
    """The trainer's option that makes a run with the fault of a diagnosis; "", the plain trainer, for no such fault."""
    fault = answer.get("fault") if isinstance(answer, Mapping) else None
    return f"--pathology {fault}" if isinstance(fault, str) and fault in PATHOLOGIES else ""


def against(suspect: Suspect, patient: Patient) -> str:
    """What speaks against a suspect: its sign, and the figures of the healthy run and of the patient."""
    before, after = patient.healthy.signs, patient.signs
    figures = ", ".join(f"{name.replace('_', ' ')} {before[name]:.4g} → {after[name]:.4g}" for name in suspect.looks_at)
    return f"With {suspect.name}, {suspect.sign}. From the healthy run to this one: {figures}."


def _blame(profile: Profile) -> float:
    """Share of all waiting, in percent, that the straggler caused; 0 if `ranks` names none."""
    ranks = tidyprof.ranks(profile)
    straggler = ranks.attrs["straggler"]
    if straggler is None:
        return 0.0
    return 100 * ranks.loc[ranks["rank"] == straggler, "caused_wait_ns"].sum() / ranks["caused_wait_ns"].sum()


def _parts(profile: Profile) -> list[str]:
    """The parts of a device's step, as `step_budget` names them."""
    from tidyprof.analyses import parts_of

    return list(parts_of(tidyprof.step_budget(profile)))

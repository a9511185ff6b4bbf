"""Which steps count: not the first, and none that is longer because of something that the others don't do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import WARM_UP_STEPS
from tidyprof.analyses.common import four_digits, host_events, names_matching, occupied, start_and_end
from tidyprof.analyses.processes import of_owner, owners_of
from tidyprof.analyses.steps import STEP_PATTERN, steps
from tidyprof.tables.contract import Profile

UNEVEN = 1.5
"""Times the median from which a step is longer than the others (plots.stepping marks it, too)."""

EXPLAINED = 0.5
"""Share of what such a step takes more that a range must cover to explain it."""

BEGINNING = re.compile(r"init|warm|build|set.?up|compil|cache|first|load|prepar", re.IGNORECASE)
"""In the name of a range that comes once: a start-up. Validation, checkpoints and reports come again and again."""

PLACE = ["rank", "process", "device"]


def with_steady(budget: pd.DataFrame, profile: Profile, mark: str | None) -> pd.DataFrame:
    """A table with rank, process, device, step and duration_ns, with two more columns.

    apart  -- the range that makes a step longer and that most other steps lack, in words; "" where there is none.
    steady -- whether the row counts: not one that is apart, and not the first of each device if two others remain.
    """
    reasons = dict(_explained(profile, mark))
    apart = [reasons.get(step, "") if pd.notna(step) else "" for step in budget["step"].tolist()]
    usual = np.array(apart) == ""
    places = [*zip(*(budget[column].tolist() for column in PLACE), strict=True)]
    seen: Counter[tuple[int, ...]] = Counter()
    later = np.zeros(len(budget), bool)
    for row in np.flatnonzero(usual):
        later[row] = seen[places[row]] >= WARM_UP_STEPS
        seen[places[row]] += 1
    enough = later.sum() >= 2 * len(set(places))
    return budget.assign(apart=apart, steady=later if enough else usual if usual.any() else True)


def _explained(profile: Profile, mark: str | None) -> Iterator[tuple[int, str]]:
    """The steps on the host that are apart, with the reason."""
    marked = steps(profile, mark=mark)
    for owner in owners_of(marked):
        own = of_owner(marked, owner)
        length = own["duration_ns"].to_numpy(np.int64)
        median = float(np.median(length))
        if len(own) < 3 or length.max() < UNEVEN * median:
            continue
        inside = _by_step(of_owner(host_events(profile, "annotation"), owner), own)
        for place in np.flatnonzero(length >= UNEVEN * median):
            others = np.delete(inside.to_numpy(), place, axis=1)
            lacking = inside[(others > 0).sum(axis=1) <= others.shape[1] / 2][place]
            lacking = lacking[~lacking.index.str.contains(BEGINNING)]
            if len(lacking) and lacking.max() >= EXPLAINED * (length[place] - median):
                name, spent = lacking.idxmax(), four_digits(lacking.max() / 1e6)
                yield int(own["step"].iloc[place]), f"`{name}` takes {spent} ms of it"


def _by_step(ranges: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    """Time in ns inside the ranges of each name, its numbers left out, one column for each step."""
    ranges = ranges[~names_matching(ranges, STEP_PATTERN)]
    names = ranges["name"].astype(str).str.replace(r"\d+", "#", regex=True)
    begin, finish = start_and_end(own)
    rows = {name: occupied(one).covered_within(begin, finish) for name, one in ranges.groupby(names)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=range(len(own)))

"""How long the host's threads had no processor, and which parts of a step other programs made
longer by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import of_rank
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

TAKEN = "taken"
"""The part of a step in which other programs had the processor while the host would have gone
on.
"""

LENGTHENED = ("data_wait", "between", "silent", "stalled", "launch_bound")
"""The parts that it is taken from: the host's own loss in them is what remains. An operator that
lasts longer is none, and in a call that waits nobody needs a processor.
"""

BUSY = 0.55
"""Share of the step that threads stand in line for a processor from which nobody can tell what the
host does itself: with one other program it is half of it, which two clocks tell to a few
hundredths.
"""


def processor_time(
    profile: Profile,
    owner: Mapping[str, Any],
    begin: np.ndarray,
    finish: np.ndarray,
    parts: Mapping[str, Intervals],
) -> dict[str, Any]:
    """For each step, Float64 ns: lost_ns, in which its thread had no processor, waited_ns, in which
    it stood in line.

    And what of the latter lies in each of LENGTHENED, by its name: of a part of the script as much
    of it as it takes of that. From the samples that the script itself made (readers/torch/meta.py);
    <NA> and 0 where there are none.
    """
    found = dict.fromkeys(("lost_ns", "waited_ns"), pd.array([pd.NA] * len(begin), "Float64"))
    taken = {name: np.zeros(len(begin)) for name in LENGTHENED if name in parts}
    samples = profile.counters
    if "duration_ns" not in samples.columns:
        return found | taken
    if "rank" in samples.columns:
        samples = of_rank(samples, owner["rank"])
    for name, column in (("processor_time", "lost_ns"), ("processor_queue", "waited_ns")):
        own = samples[samples["name"] == name].dropna(subset=["duration_ns"])
        start, length = own["time_ns"].to_numpy(np.int64), own["duration_ns"].to_numpy(np.int64)
        value = own["value"].to_numpy(float)
        value = np.maximum(length - value, 0) if column == "lost_ns" else value
        middle = start + length // 2
        place = np.searchsorted(begin, middle, side="right") - 1
        inside = (place >= 0) & (middle < finish[np.maximum(place, 0)])
        if not len(own):
            continue
        found[column] = pd.array(np.bincount(place[inside], value[inside], len(begin)), "Float64")
        if column == "waited_ns":
            of_sample = np.minimum(value / np.maximum(length, 1), 1.0)
            for part in taken:
                within = parts[part].covered_within(start, start + length) * of_sample
                taken[part] = np.bincount(place[inside], within[inside], len(begin))
    return found | taken


def without_taken(columns: Mapping[str, np.ndarray], times: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of parts, `_ns`, less what others took of them, that as a part of its own, lost_ns
    and waited_ns.
    """
    less = {
        name: np.minimum(times[name], columns[f"{name}_ns"])
        for name in LENGTHENED
        if f"{name}_ns" in columns
    }
    rest = {f"{name}_ns": columns[f"{name}_ns"] - taken for name, taken in less.items()}
    known = {name: times[name] for name in ("lost_ns", "waited_ns")}
    return {**columns, **rest, f"{TAKEN}_ns": sum(less.values()), **known}

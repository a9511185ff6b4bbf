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

CPU_STEAL = "taken"
"""The part of a step in which other programs had the processor although the host could have gone
on.
"""

LENGTHENED = ("data_wait", "between", "silent", "stalled", "launch_bound")
"""The parts that CPU_STEAL is taken from; what remains of them is the host's own loss. An operator
that lasts longer is none of them, and in a call that waits nobody needs a processor.
"""

BUSY = 0.55
"""Where threads stand in line for a processor for this share of the step, nobody can tell what the
host does itself. With one other program it is half of the step, which two clocks tell to a few
hundredths.
"""


def processor_time(
    profile: Profile,
    owner: Mapping[str, Any],
    begin: np.ndarray,
    finish: np.ndarray,
    parts: Mapping[str, Intervals],
) -> dict[str, Any]:
    """For each step, Float64 ns: lost_ns, in which its thread had no processor, and waited_ns, in
    which it stood in line for one.

    Also the ns of waited_ns that lie in each of LENGTHENED, by the name of that part. The samples
    are those that the script itself made (readers/torch/meta.py), and the waiting of a sample is
    spread evenly over its time. Without samples the times are <NA> and the parts 0.
    """
    times = dict.fromkeys(("lost_ns", "waited_ns"), pd.array([pd.NA] * len(begin), "Float64"))
    taken = {name: np.zeros(len(begin)) for name in LENGTHENED if name in parts}
    samples = profile.counters
    if "duration_ns" not in samples.columns or not len(begin):
        return times | taken
    if "rank" in samples.columns:
        samples = of_rank(samples, owner["rank"])
    for name, column in (("processor_time", "lost_ns"), ("processor_queue", "waited_ns")):
        of_name = samples[samples["name"] == name].dropna(subset=["duration_ns"])
        if not len(of_name):
            continue
        start = of_name["time_ns"].to_numpy(np.int64)
        length = of_name["duration_ns"].to_numpy(np.int64)
        value = of_name["value"].to_numpy(float)
        # A sample is the time that the thread had a processor, or the time that it stood in line.
        value = np.maximum(length - value, 0) if column == "lost_ns" else value
        # A sample belongs to the step that its middle is in.
        middle = start + length // 2
        step = np.searchsorted(begin, middle, side="right") - 1
        inside = (step >= 0) & (middle < finish[np.maximum(step, 0)])
        times[column] = pd.array(np.bincount(step[inside], value[inside], len(begin)), "Float64")
        if column == "waited_ns":
            waiting = np.minimum(value / np.maximum(length, 1), 1.0)
            for part in taken:
                within = parts[part].covered_within(start, start + length) * waiting
                taken[part] = np.bincount(step[inside], within[inside], len(begin))
    return times | taken


def without_taken(columns: Mapping[str, np.ndarray], times: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of parts, `_ns`, less what other programs took of them; that as the part
    CPU_STEAL; and lost_ns and waited_ns. times -- see `processor_time`.
    """
    less = {
        name: np.minimum(times[name], columns[f"{name}_ns"])
        for name in LENGTHENED
        if f"{name}_ns" in columns
    }
    rest = {f"{name}_ns": columns[f"{name}_ns"] - taken for name, taken in less.items()}
    known = {name: times[name] for name in ("lost_ns", "waited_ns")}
    return {**columns, **rest, f"{CPU_STEAL}_ns": sum(less.values()), **known}

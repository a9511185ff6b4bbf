"""The reasons for an inconclusive verdict, and the doubts about a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tidyprof.analyses.budget import LOST, WARN_LOST
from tidyprof.analyses.steps import PHASE_PATTERNS
from tidyprof.triage.cpu_time import BUSY_MACHINE, CPU_STEAL
from tidyprof.triage.device_parts import DEVICE_BUSY_PARTS, SILENT_NS
from tidyprof.triage.facts import percent
from tidyprof.triage.profiler_overhead import HOST_COMPUTE
from tidyprof.triage.rules import (
    COMPUTE_RULES,
    LIMIT,
    OTHER_ROWS,
    Row,
    View,
    waits_often,
)

NO_BOTTLENECK, INCONCLUSIVE = "no-bottleneck", "inconclusive"

MARGIN = 1.5
"""The minimum ratio between the two largest shares in a confident verdict. The step budgets of two
tools differ by a smaller factor, and so do budgets with and without a profiler.
"""

CLEAR = 1.25
"""The minimum ratio between a share and LIMIT in a confident verdict. Shares are uncertain, because
they are means of only a few steps.
"""

ONE_STEP = 0.4
"""The minimum share for a confident verdict on a trace with a single step. A single step may be
unusual.
"""

COMPUTING = 0.7
"""The minimum share of computing time in a run without a bottleneck. In a run that computes less,
several small causes may add up.
"""

WARN, TOO_MANY = WARN_LOST, LOST
"""Two limits for the share of launches or events that contradict each other. The report adds a
warning at the first limit. The verdict becomes inconclusive at the second limit.
"""

KEEPS_UP = 0.55
"""The busy share of a device above which the host nearly keeps up with the device. A larger batch
or a faster CPU is then enough to fix a launch-bound run.
"""

DEVICES_DIFFER = 0.3
"""The minimum difference between the busy shares of devices that don't share a bottleneck."""

CAPTURED = 0.5
"""The share of captured launches that makes a verdict inconclusive. Captured launches don't run."""

UNEQUAL = 2
"""Kernels may be missing if the largest graph replay has this many times as many kernels as the
median replay. For comparison, the graphs of one model had 4, 12 and 15 kernels.
"""

MEANWHILE = ("outside-torch", "input-bound", "launch-bound")
"""Causes that triage may also report if the thread is only waiting for a CPU core."""

FORWARD = PHASE_PATTERNS["forward"]
"""The ranges in which PyTorch compiles. In some files, the host seems to do nothing during a
compilation.
"""

BETWEEN = "between steps"
"""The name of the range that `tidyprof run` records from an optimizer step to the next model call.
"""


def blamed_rows(view: View, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that limit the run, the largest first.

    Rows that describe a computing device come last. Shares exclude the time lost to other programs,
    so lost time can't hide a cause.
    """
    length = view.step.length_ns - view.step.parts.get(CPU_STEAL, 0.0)
    fired = [
        row for row in rows if row.rule and row.rule.applies(view) and row.ns >= LIMIT * length > 0
    ]
    return sorted(fired, key=lambda row: (is_compute(row), -row.ns))


def why_inconclusive(view: View, blamed: Sequence[Row]) -> str:
    """Return the reason why the files don't show the bottleneck, or an empty string if they show
    it.

    Possible reasons are unreliable measurements and too much time without a known cause.
    """
    if not view.step.length_ns:
        return "all device events have zero length, so the step can't be divided into parts"
    idle = 0.0 if view.run.on_host else 1 - view.share(*DEVICE_BUSY_PARTS, "waiting_ranks")
    return _unreliable_parts(view, idle) or _unexplained_time(view, blamed, idle)


LOST_WORK = "{launches_without_work} of {launches} launches have no work in the file"
CLOCKS_DISAGREE = (
    "the clocks disagree: {clock_conflict_share} of the GPU's work starts up to {clock_offset_ns}"
    " away from its launch"
)
NO_REPLAYS = "{empty_replays} of {graph_replays} graph launches have no kernel in the file"
UNEQUAL_REPLAYS = (
    "the largest of {graph_replays} graph launches has {largest_replay} kernels in the file, the"
    " median one {median_replay}"
)
BUSY_CPU = "other programs had the CPU for {cpu_steal_share} of the traced steps"


def _unreliable_parts(view: View, idle: float) -> str:
    facts = view.run.facts
    without_kernels = 2 * facts["empty_replays"] >= max(facts["graph_replays"], 1)
    reasons = {
        BUSY_CPU: facts["cpu_steal_share"] >= BUSY_MACHINE,
        "a graph captured {captured_share} of the launches without running them": (
            facts["captured_share"] >= CAPTURED
        ),
        f"{LOST_WORK}, so the work of the GPU is unknown": (
            facts["lost_launches_share"] >= TOO_MANY
        ),
        CLOCKS_DISAGREE: facts["clock_conflict_share"] >= TOO_MANY,
        f"{NO_REPLAYS}, so the work of the GPU is unknown": without_kernels and idle >= LIMIT,
        "the GPU is idle while graphs should run, so the file may lack their kernels": (
            graphs_may_lack_kernels(view)
        ),
    }
    return view.say(next((reason for reason, holds in reasons.items() if holds), ""))


def _unexplained_time(view: View, blamed: Sequence[Row], idle: float) -> str:
    best = max((row.ns for row in blamed if not is_compute(row)), default=0.0)
    needs_launches = not blamed or (blamed[0].rule is not None and blamed[0].rule.is_idle)
    unlinked = view.run.facts["unlinked_share"]
    if unlinked >= TOO_MANY and idle >= LIMIT and needs_launches:
        return view.say(
            "{unlinked_share} of the GPU's work has no launch in the file, so the reason for idle"
            " time is unknown"
        )
    open_parts = {name: view.step.parts.get(name, 0.0) for name in REASONS}
    if view.run.on_host:
        open_parts[CPU_STEAL] = 0.0
    name = max(open_parts, key=lambda part: open_parts[part])
    length = open_parts[name]
    if length < LIMIT * view.step.length_ns or length <= best:
        return ""
    reason = REASONS[name].format(percent(length / view.step.length_ns))
    if name == "waiting_ranks":
        return _why_waiting(view, reason)
    queued = "work was queued" if view.run.heard else "no host calls"
    return f"{reason} ({queued})" if name == "other" else reason


REASONS = {
    "unseen": "the traced steps lack {} of an unprofiled step",
    "waiting_ranks": "ranks wait for {} of the step, but not always for the same rank",
    "other": "the GPU is idle for {} of the time, and the files don't show why",
    CPU_STEAL: "other programs had the CPU for {} of the step",
}
"""For each part without a known cause, the reason why the verdict is inconclusive."""


def _why_waiting(view: View, reason: str) -> str:
    """Return the reason why no single rank can be blamed for the wait.

    - reason: the string to return if the late rank is unknown.
    """
    facts = view.run.facts
    if "straggler" not in facts:
        return reason
    why = "it does only {straggler_excess} more work than others"
    if facts["cpu_steal_share"] >= LIMIT:
        why = BUSY_CPU
    return view.say(f"ranks wait for rank {{straggler}}, but {why}")


def is_compute(row: Row) -> bool:
    """Return True if the row describes a device that computes."""
    return row.rule is not None and row.rule.cause in COMPUTE_RULES


def replay_words(view: View) -> str:
    """Return a description of missing graph kernels, or an empty string if none seem missing."""
    facts = view.run.facts
    if facts["empty_replays"]:
        return view.say(NO_REPLAYS)
    if facts["largest_replay"] >= max(UNEQUAL * facts["median_replay"], 1):
        return view.say(UNEQUAL_REPLAYS)
    return ""


def graphs_may_lack_kernels(view: View) -> bool:
    """Return True if kernels that graphs launched may be missing from the file. In such a file,
    graphs launched much of the work, but the device is idle while work is queued or the host waits.
    Normally, a waiting call returns microseconds after the work has ended.
    """
    graphs = view.run.facts["graph_share"]
    return graphs >= LIMIT and max(view.share("other"), view.share("blocked_host")) >= LIMIT


def doubts_of_cause(
    view: View, rows: Sequence[Row], blamed: Sequence[Row], share: float
) -> Iterator[str]:
    """Yield the reasons to doubt the largest cause."""
    run, facts, length = view.run, view.run.facts, view.step.length_ns
    best = blamed[0].rule
    assert best is not None
    yield from _doubt_of_steal(view)
    near, name = _nearest(view, rows, blamed)
    if share < MARGIN * near:
        yield f"{name} comes close, with {percent(near)}."
    if share < CLEAR * LIMIT:
        yield f"{percent(share)} is barely above the minimum share of {percent(LIMIT)} for a cause."
    working = 0.0 if run.on_host else view.share(*DEVICE_BUSY_PARTS, "waiting_ranks")
    if best.cause == "launch-bound" and waits_often(run):
        yield view.say(
            "The host makes {waiting_calls} waiting calls{each}, so it can't run ahead. Remove"
            " these calls first."
        )
    if best.cause == "launch-bound" and working >= KEEPS_UP:
        yield f"The GPU is busy for {percent(working)} of the step, so a larger batch may help."
    is_step = best.cause not in ("startup", *COMPUTE_RULES)
    if is_step and facts["judged_steps"] < 2 and share < ONE_STEP:
        yield "The verdict is based on a single step."
    if view.step.untypical:
        yield "The traced steps lack time that other steps have. Record more steps."
    if best.is_idle and not run.on_host and replay_words(view):
        yield "The file may lack kernels that graphs launched."
    yield from _doubts_of_silence(view, best.cause)
    silent_host = run.on_host and best.cause == "outside-torch"
    if silent_host and "cpu_steal_share" not in facts:
        yield "Other programs may have used the CPU, but the file doesn't show it."
    taken = max(facts["cpu_steal_share"] - view.share(CPU_STEAL), 0.0)
    if best.cause in MEANWHILE and share - taken < CLEAR * LIMIT:
        yield "Other programs may have used the CPU at that time."
    waiting = sum(view.step.parts.get(f"waiting_{kind}", 0.0) for kind in ("launch", "ranks"))
    if best.cause != "straggler" and "always_last" in facts and waiting >= LIMIT * length:
        yield view.say(
            "Rank {always_last} always arrives last but does as much work as others. Try another"
            " GPU."
        )
    measured = facts["measured_data_share"]
    known = "measured_data_share" in facts
    if best.cause == "input-bound" and known and measured < share / MARGIN:
        yield view.say("The timed steps spent only {measured_data_share} of the time on data.")
    yield from doubts_of_links(view)
    if best.is_idle:
        yield from _doubts_of_devices(view)


def _doubt_of_steal(view: View) -> Iterator[str]:
    if view.share(CPU_STEAL) >= LIMIT:
        yield view.say(
            f"Other programs had the CPU for {{{CPU_STEAL}.share}} of the step. Repeat on an idle"
            " machine."
        )


def _doubts_of_devices(view: View) -> Iterator[str]:
    facts = view.run.facts
    if facts["most_busy_device"] - facts["least_busy_device"] >= DEVICES_DIFFER:
        yield view.say(
            "Devices differ. They are busy for {least_busy_device} to {most_busy_device} of the"
            " step."
        )


def _nearest(view: View, rows: Sequence[Row], blamed: Sequence[Row]) -> tuple[float, str]:
    """Return the largest share of the step that the main cause doesn't explain, and its name."""
    length, best = view.step.length_ns, blamed[0]
    shares = [(like_communication(view), "Kernels with names like communication")]
    shares += [
        (view.share(part), f"Time without a known cause ({OTHER_ROWS[part]})")
        for part in ("unseen", "waiting_ranks", "other")
    ]
    shares += [
        (row.ns / length, row.rule.cause)
        for row in blamed[1:]
        if row.rule and (is_compute(best) or not is_compute(row))
    ]
    return max(shares)


def _doubts_of_silence(view: View, cause: str) -> Iterator[str]:
    facts, measured = view.run.facts, view.run.overhead.measured_ns
    if cause != "outside-torch":
        return
    if measured is not None and measured < SILENT_NS:
        yield "Without the profiler, a step takes less than 1 ms, the shortest silence that counts."
    if facts["compiled"] and re.fullmatch(FORWARD, facts["outside_part"]):
        yield "The compiler may be running at that time. To find out, set TORCH_LOGS=recompiles."
    knows_loading = "loading_share" in facts or facts["outside_function"]
    if facts["outside_part"] == BETWEEN and not knows_loading:
        yield "A loop without a DataLoader builds its batches there. Record with --with-stack."


def doubts_of_links(view: View) -> Iterator[str]:
    """Yield warnings about launches and events that contradict each other."""
    facts = view.run.facts
    if facts["lost_launches_share"] >= WARN:
        yield view.say(f"{capital(LOST_WORK)}.")
    if facts["clock_conflict_share"] >= WARN:
        yield view.say(f"{capital(CLOCKS_DISAGREE)}.")


def doubts_of_health(view: View, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the reasons why a run without a known bottleneck may still have one."""
    facts, length = view.run.facts, view.step.length_ns
    lost = [(row.ns / length, row.rule.cause) for row in rows if row.rule and not is_compute(row)]
    lost += [(view.share(part), part.replace("_", " ")) for part in REASONS if part != CPU_STEAL]
    lost += [(like_communication(view), "kernels with names like communication")]
    share, name = max(lost)
    share /= max(1 - view.share(CPU_STEAL), 1e-9)
    if CLEAR * share > LIMIT:
        yield f"{capital(name)} takes {percent(share)}, nearly enough to count as a cause."
    yield from _doubt_of_steal(view)
    computing = view.share(*(HOST_COMPUTE if view.run.on_host else ("compute",)))
    yield from _doubts_of_devices(view)
    if computing < COMPUTING * (1 - view.share(CPU_STEAL)):
        yield "Several small causes add up to a large share of the step."
    if view.run.on_host and facts["collective_share"] >= LIMIT:
        yield view.say(
            "Collectives take {collective_share} of the step on the CPU, which also computes."
        )
    if view.step.untypical:
        yield "The traced steps lack time that other steps have. Record more steps."
    if view.run.on_host and facts["measured_data_share"] >= LIMIT:
        yield view.say("The timed steps spent {measured_data_share} of the time on data.")
    yield from doubts_of_links(view)


def like_communication(view: View) -> float:
    """Return the share of the step in kernels with names that look like communication."""
    return view.run.facts["unknown_collective_amount"] * view.share("compute")


def capital(text: str) -> str:
    """Return the text with its first letter capitalized."""
    return text[:1].upper() + text[1:]

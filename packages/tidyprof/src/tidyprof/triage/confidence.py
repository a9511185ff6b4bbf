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
from tidyprof.triage.rules import DOMINANT_KERNEL, LIMIT, Row, View, part_name, waits_often

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

STEPS_DIFFER = 10.0
"""The minimum ratio between the longest and the shortest judged step that makes their mean
doubtful. One of the steps may contain rare work, such as a validation.
"""

CAPTURED = 0.5
"""The share of captured launches that makes a verdict inconclusive. Captured launches don't run."""

MEANWHILE = ("outside-torch", "input-bound", "launch-bound")
"""Causes that triage may also report if the thread is only waiting for a CPU core."""

FORWARD = PHASE_PATTERNS["forward"]
"""The ranges in which PyTorch compiles. In some files, the host seems to do nothing during a
compilation.
"""

BETWEEN = "between steps"
"""The name of the range that `tidyprof run` records from an optimizer step to the next model call.
"""

UNEXPLAINED = ("unseen", "waiting_ranks", "other")
"""Parts of a step without a known cause. On a GPU, CPU_STEAL is another one."""

LOST_WORK = "{launches_without_work} of {launches} launches have no work in the file"
CLOCKS_DISAGREE = (
    "the clocks disagree: {clock_conflict_share} of the GPU's work starts up to {clock_offset_ns}"
    " away from its launch"
)
GRAPHS = "the GPU is idle while graphs should run, so the file may lack their kernels"
BUSY_CPU = "other processes had the CPU for {cpu_steal_share} of the traced steps"


def blamed_rows(view: View, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that limit the run, the largest first.

    A row that describes a computing device comes last. Shares exclude the time lost to other
    programs, so lost time can't hide a cause.
    """
    length = view.step.length_ns - view.step.parts.get(CPU_STEAL, 0.0)
    fired = [
        row for row in rows if row.rule and row.rule.applies(view) and row.ns >= LIMIT * length > 0
    ]
    return sorted(fired, key=lambda row: (row.rule is DOMINANT_KERNEL, -row.ns))


def why_inconclusive(view: View, blamed: Sequence[Row]) -> str:
    """Return the reason why the files don't show the bottleneck, or an empty string if they show
    it.

    Possible reasons are unreliable measurements and too much time without a known cause.
    """
    if not view.step.length_ns:
        return "all device events have zero length, so the step can't be divided into parts"
    facts, idle = view.run.facts, _idle_share(view)
    needs_launches = not blamed or (blamed[0].rule is not None and blamed[0].rule.is_idle)
    reasons = {
        BUSY_CPU: facts["cpu_steal_share"] >= BUSY_MACHINE,
        "a graph captured {captured_share} of the launches without running them": (
            facts["captured_share"] >= CAPTURED
        ),
        f"{LOST_WORK}, so the work of the GPU is unknown": (
            facts["lost_launches_share"] >= TOO_MANY
        ),
        CLOCKS_DISAGREE: facts["clock_conflict_share"] >= TOO_MANY,
        GRAPHS: graphs_lack_kernels(view),
        "{unlinked_share} of the GPU's work has no launch in the file, so the reason for idle time"
        " is unknown": facts["unlinked_share"] >= TOO_MANY and idle >= LIMIT and needs_launches,
        **_unexplained_time(view, blamed),
    }
    return view.say(next((reason for reason, holds in reasons.items() if holds), ""))


def _idle_share(view: View) -> float:
    """Return the share of the step in which the device is idle, or 0 without a device."""
    return 0.0 if view.run.on_host else 1 - view.share(*DEVICE_BUSY_PARTS, "waiting_ranks")


def _unexplained_time(view: View, blamed: Sequence[Row]) -> dict[str, bool]:
    """Return a sentence about the largest unexplained part, and whether it exceeds each cause."""
    best = max((row.ns for row in blamed if row.rule is not DOMINANT_KERNEL), default=0.0)
    names = UNEXPLAINED if view.run.on_host else (*UNEXPLAINED, CPU_STEAL)
    name = max(names, key=lambda part: view.step.parts.get(part, 0.0))
    late = (
        " (rank {straggler})" if name == "waiting_ranks" and "straggler" in view.run.facts else ""
    )
    reason = f"{part_name(name)}{late} takes {{{name}.share}} of the step, without a known cause"
    length = view.step.parts.get(name, 0.0)
    return {reason: length >= LIMIT * view.step.length_ns and length > best}


def graphs_lack_kernels(view: View) -> bool:
    """Return True if kernels that graphs launched may be missing from the file.

    Either many graph launches have fewer kernels than others, or graphs launched much of the work,
    but the device is idle while work is queued or the host waits. Normally, a waiting call returns
    microseconds after the work has ended.
    """
    facts = view.run.facts
    few = facts["poor_replays"] >= TOO_MANY * max(facts["graph_replays"], 1)
    is_open = max(view.share("other"), view.share("blocked_host")) >= LIMIT
    return _idle_share(view) >= LIMIT and (few or (facts["graph_share"] >= LIMIT and is_open))


def doubts_of_cause(
    view: View, rows: Sequence[Row], blamed: Sequence[Row], share: float
) -> Iterator[str]:
    """Yield the reasons to doubt the largest cause."""
    run, facts = view.run, view.run.facts
    best = blamed[0].rule
    assert best is not None
    near, name = _nearest(view, blamed)
    is_launching, is_silent = best.cause == "launch-bound", best.cause == "outside-torch"
    measured, part = run.overhead.measured_ns, facts["outside_part"]
    taken = max(facts["cpu_steal_share"] - view.share(CPU_STEAL), 0.0)
    is_step = best.cause != "startup" and best is not DOMINANT_KERNEL
    is_loading_known = "loading_share" in facts or facts["outside_function"]
    busy = 0.0 if run.on_host else 1 - _idle_share(view)
    doubts = {
        f"{name} comes close, with {percent(near)}.": share < MARGIN * near,
        f"{percent(share)} is close to the minimum share of {percent(LIMIT)} for a cause.": (
            share < CLEAR * LIMIT
        ),
        "The host makes {waiting_calls} waiting calls{each}, so it can't run ahead. Remove these"
        " calls first.": is_launching and waits_often(run),
        f"The GPU is busy for {percent(busy)} of the step, so a larger batch may help.": (
            is_launching and busy >= KEEPS_UP
        ),
        "The verdict is based on a single step.": (
            is_step and facts["judged_steps"] < 2 and share < ONE_STEP
        ),
        "Without the profiler, a step takes less than 1 ms, the shortest silence that counts.": (
            is_silent and measured is not None and measured < SILENT_NS
        ),
        "The compiler may be running at that time. To find out, set TORCH_LOGS=recompiles.": (
            is_silent and facts["compiled"] and re.fullmatch(FORWARD, part)
        ),
        "A loop without a DataLoader builds its batches there. Record with --with-stack.": (
            is_silent and part == BETWEEN and not is_loading_known
        ),
        "Other processes may have used the CPU, but the file doesn't show it.": (
            is_silent and run.on_host and "cpu_steal_share" not in facts
        ),
        "Other processes may have used the CPU at that time.": (
            best.cause in MEANWHILE and 0 < taken > share - CLEAR * LIMIT
        ),
    }
    yield from _doubts_of_run(view, best.is_idle)
    yield from (view.say(doubt) for doubt, holds in doubts.items() if holds)


def doubts_of_health(view: View, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the reasons why a run without a known bottleneck may still have one."""
    length, available = view.step.length_ns, max(1 - view.share(CPU_STEAL), 1e-9)
    lost = [
        (row.ns / length, row.rule.cause)
        for row in rows
        if row.rule and row.rule is not DOMINANT_KERNEL
    ]
    share, name = max([*lost, *_unexplained_shares(view)])
    share /= available
    yield from _doubts_of_run(view, True)
    if CLEAR * share > LIMIT:
        yield f"{capital(name)} takes {percent(share)}, nearly enough to count as a cause."
    if view.share(*(HOST_COMPUTE if view.run.on_host else ("compute",))) < COMPUTING * available:
        yield "Several small causes add up to a large share of the step."


def _nearest(view: View, blamed: Sequence[Row]) -> tuple[float, str]:
    """Return the largest share of the step that the main cause doesn't explain, and its name."""
    shares = [
        (row.ns / view.step.length_ns, row.rule.cause)
        for row in blamed[1:]
        if row.rule and (blamed[0].rule is DOMINANT_KERNEL or row.rule is not DOMINANT_KERNEL)
    ]
    return max([*shares, *_unexplained_shares(view)])


def _unexplained_shares(view: View) -> list[tuple[float, str]]:
    """Return the share and the name of each part of the step without a known cause."""
    alike = view.run.facts["unknown_collective_share"] * view.share("compute")
    shares = [(view.share(part), f"Unexplained time ({part_name(part)})") for part in UNEXPLAINED]
    return [(alike, "Time in kernels with names like communication"), *shares]


def _doubts_of_run(view: View, depends_on_idle: bool) -> Iterator[str]:
    """Yield doubts that don't depend on the cause.

    - depends_on_idle: whether the verdict depends on the time when devices are idle.
    """
    facts = view.run.facts
    differ = facts["most_busy_device"] - facts["least_busy_device"] >= DEVICES_DIFFER
    doubts = {
        f"Other processes had the CPU for {{{CPU_STEAL}.share}} of the step. Repeat on an idle"
        " machine.": view.share(CPU_STEAL) >= LIMIT,
        "The traced steps lack time that other steps have. Record more steps.": (
            view.step.untypical
        ),
        "Steps take {shortest_step_ns} to {longest_step_ns}. Record more steps.": (
            facts["longest_step_ns"] > STEPS_DIFFER * facts["shortest_step_ns"]
        ),
        "Devices differ. They are busy for {least_busy_device} to {most_busy_device} of the"
        " step.": differ and depends_on_idle,
    }
    yield from (view.say(doubt) for doubt, holds in doubts.items() if holds)
    yield from doubts_of_links(view)


def doubts_of_links(view: View) -> Iterator[str]:
    """Yield warnings about launches and events that contradict each other."""
    facts = view.run.facts
    if facts["lost_launches_share"] >= WARN:
        yield view.say(f"{capital(LOST_WORK)}.")
    if facts["clock_conflict_share"] >= WARN:
        yield view.say(f"{capital(CLOCKS_DISAGREE)}.")


def capital(text: str) -> str:
    """Return the text with its first letter capitalized."""
    return text[:1].upper() + text[1:]

"""The remarks in a report. The remarks are notes, missing facts, and next steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidyprof.analyses.common import four_digits
from tidyprof.triage.confidence import (
    NO_BOTTLENECK,
    TOO_MANY,
    WARN,
    graphs_lack_kernels,
)
from tidyprof.triage.cpu_time import CPU_STEAL
from tidyprof.triage.facts import AMD, percent
from tidyprof.triage.profiler_overhead import EQUAL
from tidyprof.triage.rules import (
    COUNTERS,
    LIMIT,
    RUN,
    TRACE,
    Part,
    View,
    command_for,
    part_name,
)
from tidyprof.triage.run_facts import LATE, Run


def step_note(view: View) -> str:
    """Return a description of the step in the table of parts, and the source of its length."""
    run, overhead, facts = view.run, view.run.overhead, view.run.facts
    if not run.marked:
        return "the whole trace, because no steps are marked"
    waiting = ", of the ranks that wait" if facts["straggler_excess"] >= LATE else ""
    if overhead.measured_ns is not None:
        return f"without the profiler ({overhead.source}){waiting}"
    estimated = overhead.estimated
    if estimated is None or estimated.likely >= EQUAL * overhead.traced_ns:
        return view.say("traced (judged steps: {judged_steps}){waiting}", waiting=waiting)
    low, high = (four_digits(end / 1e6) for end in (estimated.low, estimated.high))
    return f"estimated without the profiler ({low} to {high} ms){waiting}"


def notes_of(view: View) -> Iterator[str]:
    """Yield notes on unusual properties of the run for every reader."""
    overhead = view.run.overhead
    if overhead.rare_share >= WARN:
        yield f"A few long steps take {percent(overhead.rare_share)} of the run time."


def missing(run: Run) -> tuple[str, ...]:
    """Return the facts that the files can't show, the most important first."""
    facts = run.facts
    ranks, size = facts["ranks"], facts["world_size"]
    gaps = {
        "GPU work: no GPU took part in this run.": run.on_host,
        "Steps and idle time: the files contain no device events.": not run.parts,
        "The reason for idle time: the files contain no host calls.": run.parts and not run.heard,
        "Host waits: the files contain no runtime calls.": (
            run.heard and not run.on_host and not facts["calls"]
        ),
        "One-time versus repeated work: no steps are marked.": run.parts and not run.marked,
        f"Waits between ranks: the files contain only {ranks:.0f} of {size:.0f} ranks.": (
            ranks < size
        ),
    }
    return tuple(text for text, holds in gaps.items() if holds)


def why_no_cause(view: View, cause: str, parts: Sequence[Part]) -> str:
    """Return the evidence for a verdict without a cause, such as the largest part of the step."""
    facts = view.run.facts
    if cause == NO_BOTTLENECK and facts["top_kernel"]:
        return view.say(
            "The largest kernel, {top_kernel}, takes {top_kernel_share} of kernel time."
        )
    known = [part for part in parts if part.name != part_name(CPU_STEAL)]
    if not known:
        return "The files contain no times to divide."
    left = sum(part.share for part in known)
    share = percent(known[0].share / left if left else 0.0)
    rest = " of the rest" if left < 0.99 else ""
    return f"The largest part is {known[0].name}, with {share}{rest}."


def next_step(view: View, cause: str) -> str:
    """Return the next step for a verdict without a cause."""
    run, facts = view.run, view.run.facts
    if cause == NO_BOTTLENECK:
        if run.on_host:
            return "Use fewer, larger or cheaper operators. List them: tidyprof summary FILE"
        return f"Measure how close kernels are to their roof: {command_for(COUNTERS, run)}"
    if max(facts["cpu_steal_share"], view.share(CPU_STEAL)) >= LIMIT:
        return (
            "Record again on an otherwise idle machine, or with fewer loader workers. top shows"
            " which processes use the CPU."
        )
    if graphs_lack_kernels(view):
        if facts["vendor"] != AMD:
            return "Record without graphs."
        return (
            "Record without graphs, or with PyTorch 2.12 and DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING=0"
            " (docs/known-issues.md)."
        )
    if max(facts["clock_conflict_share"], facts["lost_launches_share"]) >= TOO_MANY:
        return "Record again with fewer steps or with another profiler release."
    if view.step.untypical:
        return "Record more steps: tidyprof run --steps 20 -- COMMAND"
    return f"Record: {command_for(TRACE, run)}"


def why_no_timeline(run: Run) -> tuple[str, str, str]:
    """Return the reason why there is no verdict, its consequence, and a next step."""
    facts = run.facts
    if facts["accelerator"]:
        return (
            f"the file contains no GPU events, although it contains {facts['accelerator']}",
            "Operators launch work there, so their times don't explain the step time.",
            f"Record the work of the accelerator as well, for example: {RUN}",
        )
    if "snapshot" in facts["tool"]:
        return (
            "a memory snapshot contains no times",
            "It shows what allocates memory.",
            "List memory by owner with tidyprof.memory_blocks in Python.",
        )
    return (
        "the files contain no device events, so tidyprof can't tell where the time goes",
        "A verdict requires kernel times and launch times.",
        f"Record: {command_for(TRACE, run)}",
    )

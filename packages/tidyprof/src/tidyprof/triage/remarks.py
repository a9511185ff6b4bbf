"""The remarks in a report. The remarks are notes, missing facts, and commands that record these
facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidyprof.analyses.common import four_digits
from tidyprof.triage.confidence import (
    NO_BOTTLENECK,
    TOO_MANY,
    WARN,
    capital,
    doubts_of_links,
    graphs_may_lack_kernels,
    replay_words,
)
from tidyprof.triage.cpu_time import CPU_STEAL
from tidyprof.triage.facts import AMD, percent
from tidyprof.triage.profiler_overhead import EQUAL
from tidyprof.triage.rules import (
    COUNTERS,
    LIMIT,
    LIMITS,
    OTHER_ROWS,
    Part,
    View,
    for_vendor,
    in_function,
)
from tidyprof.triage.run_facts import LATE, Run

UNEVEN = 1.25
"""The minimum ratio of the longest to the shortest step before the report calls steps uneven."""

QUIET = "Record again on an otherwise idle machine; top shows which programs use the CPU."
ROCPROFV3 = (
    "rocprofv3 --runtime-trace --output-format csv --output-directory out -- python train.py"
)
MONITOR = "amd-smi monitor -p -t -u -m"
RUN = "tidyprof run --steps 5 -- python train.py"
RECORD_HOST = {
    "torch.profiler": RUN,
    "rocmProfileData": "runTracer.sh -o trace.rpd python train.py",
}
"""The command for each tool that also records the host. Other tools use ROCPROFV3. All commands are
valid for ROCm 6.4 to 10.2.
"""


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
    facts, overhead = view.run.facts, view.run.overhead
    if overhead.rare_share >= WARN:
        yield f"A few long steps take {percent(overhead.rare_share)} of the run time."
    if facts["rare_work"]:
        yield view.say(
            "Steps with rare work don't count ({rare_work_share} of the trace): {rare_work}."
        )
    yield from doubts_of_links(view)
    if facts["out_of_memory"]:
        yield view.say("Out of memory: {out_of_memory}.")


def details_of(view: View) -> Iterator[str]:
    """Yield notes on other unusual properties of the run for the evidence."""
    run, facts = view.run, view.run.facts
    graph_kernels = replay_words(view)
    notes = {
        "Each `{step_marker}` starts a step, because the profiler's step() wasn't called.": (
            facts["step_marker"] not in ("", "ProfilerStep#N")
        ),
        "The traced step takes {traced_step_ns}, with {events_per_step} events.": run.marked,
        "The traced steps are uneven: {shortest_step_ns} to {longest_step_ns}.": (
            run.marked and facts["longest_step_ns"] > UNEVEN * facts["shortest_step_ns"]
        ),
        "{earlier_work_ns} don't count, because the file lacks the GPU's work at that time.": (
            facts["earlier_work_ns"]
        ),
        f"{capital(graph_kernels)}. The profiler may have lost some kernels.": graph_kernels,
        "Graphs launched {graph_share} of the device events.": facts["graph_share"] >= WARN,
    }
    yield from (view.say(note) for note, holds in notes.items() if holds)


def missing(view: View) -> tuple[tuple[str, ...], str]:
    """Return the facts that the files can't show, and a command that records the first such fact.

    The most important fact comes first.
    """
    run = view.run
    host = RECORD_HOST.get(run.facts["tool"], ROCPROFV3)
    gaps = [*_missing_host(run, host), *_missing_steps(run), *_missing_ranks(run, host)]
    if not run.on_host:
        gaps += _missing_device(run)
    gaps = [(text, for_vendor(command, run)) for text, command in gaps]
    sentences = tuple(f"{text} Record: {command}" if command else text for text, command in gaps)
    return sentences, next((command for _, command in gaps if command), "")


Gaps = Iterator[tuple[str, str]]
"""Pairs of an unknown fact and a command that would record the fact."""


def _missing_host(run: Run, host: str) -> Gaps:
    facts = run.facts
    if run.on_host:
        yield "GPU work: no GPU took part in this run.", ""
    elif not run.parts:
        yield "Steps and idle time: the files contain no device events.", host
    elif not run.heard:
        yield "The reason for idle time: the files contain no host calls.", host
    elif not facts["calls"]:
        yield "Host waits: the files contain no runtime calls.", host
    elif facts["unlinked_share"] >= WARN:
        share = facts.shown("unlinked_share")
        yield f"Launch times: {share} of the device's work has no launch record.", host


def _missing_steps(run: Run) -> Gaps:
    facts = run.facts
    if run.parts and not run.marked:
        text = "One-time versus repeated work: no steps are marked."
        if facts["marker_to_try"]:
            text += f" Try --step-marker {facts['marker_to_try']}."
        yield text, RUN if facts["operators"] else ""
    elif run.parts and facts["steps"] < 3:
        yield f"Variation between steps: the trace contains only {facts['steps']}.", RUN


def _missing_ranks(run: Run, host: str) -> Gaps:
    facts = run.facts
    ranks, size = facts["ranks"], facts["world_size"]
    if size and ranks < size:
        yield f"Waits between ranks: the files contain only {ranks:.0f} of {size:.0f} ranks.", host


def _missing_device(run: Run) -> Gaps:
    facts = run.facts
    if "top_kernel_roof_share" not in facts:
        yield (
            "Distance of kernels from their roofs: the files contain no roofline counters.",
            COUNTERS,
        )
    if "capped_share" not in facts:
        what = "power cap" if facts["power_log"] else "power log"
        yield (
            f"Clock reductions: the files contain no {what}.",
            LIMITS if facts["power_log"] else MONITOR,
        )


def why_no_cause(view: View, cause: str, parts: Sequence[Part]) -> str:
    """Return the evidence for a verdict without a cause, such as the largest part of the step."""
    facts = view.run.facts
    largest = next((part for part in parts if part.name != OTHER_ROWS[CPU_STEAL]), None)
    if cause == NO_BOTTLENECK and facts["largest_operator"]:
        function = facts["largest_operator_function"]
        return view.say(
            "{largest_operator} takes {largest_operator_amount} of the operators' time{inside}.",
            inside=f", mostly in {function}" if function else "",
        )
    if cause == NO_BOTTLENECK and facts["top_kernel"]:
        return view.say(
            "The largest kernel, {top_kernel}, takes {top_kernel_share} of kernel time."
        )
    if largest is None:
        return "The files contain no times to divide."
    left = 1 - sum(part.share for part in parts if part.name == OTHER_ROWS[CPU_STEAL])
    share = percent(largest.share / left if left else 0.0)
    function = FUNCTIONS.get(largest.name, "largest_operator_function")
    rest = " of the rest" if left < 1 else ""
    return f"The largest part is {largest.name}, with {share}{rest}{in_function(facts[function])}."


FUNCTIONS = {"data": "loading_function", "outside PyTorch": "outside_function"}
"""The fact that names the function in which a part of the step is spent."""


def next_step(view: View, cause: str, command: str) -> str:
    """Return the next step for a verdict without a cause.

    - command: the command that records the missing facts.
    """
    run, facts = view.run, view.run.facts
    if cause == NO_BOTTLENECK:
        if run.on_host:
            return "Use fewer, larger or cheaper operators. List them: tidyprof summary FILE"
        return (
            f"To learn more, record: {command}"
            if command
            else ("Measure before you change anything: tidyprof gate.")
        )
    if max(facts["cpu_steal_share"], view.share(CPU_STEAL)) >= LIMIT:
        return QUIET
    if replay_words(view) or graphs_may_lack_kernels(view):
        if facts["vendor"] != AMD:
            return "Record without graphs."
        if facts["empty_replays"]:
            return "Record with PyTorch 2.12 or newer, or without graphs (docs/known-issues.md)."
        return "Record with DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING=0, or without graphs."
    if facts["clock_conflict_share"] >= TOO_MANY:
        return "Record again with another profiler release. Don't mix files with different clocks."
    if facts["lost_launches_share"] >= TOO_MANY:
        return "Record again with fewer steps or with another profiler release."
    if view.step.untypical:
        return "Record more steps: tidyprof run --steps 20 -- python train.py"
    return f"Record: {command or for_vendor(ROCPROFV3, run)}"


def why_no_timeline(run: Run, command: str) -> tuple[str, str, str]:
    """Return the reason why there is no verdict, its consequence, and a next step."""
    facts = run.facts
    tables = "List memory by owner: tidyprof summary FILE, or tidyprof.memory_blocks in Python."
    if facts["named_gpu"]:
        return (
            f"the file contains no GPU events, although it names {facts['named_gpu']}",
            "Operators launch work on a GPU, so their times don't explain the step time.",
            f"Record the GPU as well: {RUN}",
        )
    if facts["foreign_events"]:
        return (
            f"{facts['foreign_events']} are from an accelerator that tidyprof doesn't support",
            "The GPU's work isn't in the file.",
            "Use the profiler of that accelerator's vendor.",
        )
    if facts["out_of_memory"]:
        return (
            f"out of memory: {facts['out_of_memory']}",
            "The file shows what used the memory.",
            tables,
        )
    if "snapshot" in facts["tool"]:
        return "a memory snapshot contains no times", "It shows what allocates memory.", tables
    return (
        "the files contain no device events, so tidyprof can't tell where the time goes",
        "A verdict requires kernel times and launch times.",
        f"Record: {command}",
    )


def new_notes(notes: Iterable[str], doubts: Sequence[str]) -> tuple[str, ...]:
    """Return the notes that aren't also among the doubts."""
    said = " ".join(doubts)
    return tuple(note for note in notes if note.rstrip(".") not in said)

"""The rules. Each rule has a cause, the parts of a step that it explains, evidence, and a fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

from tidyprof.analyses.common import four_digits
from tidyprof.package_data import table_of
from tidyprof.triage.facts import AMD, NVIDIA, percent
from tidyprof.triage.host_activity import WORKERS
from tidyprof.triage.profiler_overhead import HOST_COMPUTE, Step
from tidyprof.triage.recording import REPLAYING
from tidyprof.triage.run_facts import Run

LIMIT = 0.20
"""The minimum share of the step for a cause that limits a run. Without such a cause, the step would
be at least 1.25 times as fast. Smaller differences can be noise between runs on one machine
(docs/gate.md).
"""

MANY_COPIES = 16
"""With at least this many copies to the device per batch, a program copies samples one by one. A
batch usually needs two copies for images and labels, or a few more for masks and positions.
"""

OFFLOADED = 0.1
"""A run offloads data if exposed copies in each direction take at least this share of the time."""

FEW_CALLS = 1.0
"""The minimum number of allocation calls per step that can stall the GPU. A caching allocator makes
no such calls in a steady step.
"""

SLOW_START = 2.0
"""The first step counts as startup if it takes at least this many times the median of the other
steps.
"""

FEW_LAUNCHES = 16
"""The minimum number of kernels between two waits that lets the host run ahead of the device.
Third-party programs with a wait in each loop launched 1 and 6 kernels between waits. All other
programs launched at least 29 kernels.
"""

ONE_KERNEL = 0.5
"""The minimum share of kernel time that a dominant kernel takes. The run must also compute for at
least the same share of its time.
"""

TRACE, COUNTERS = "a trace", "counters of each kernel"
COMMANDS = {
    (TRACE, AMD): "rocprofv3 --runtime-trace --output-directory out -- COMMAND",
    (TRACE, NVIDIA): "nsys profile --output run COMMAND",
    (COUNTERS, AMD): "rocprof-compute profile --name run -- COMMAND",
    (COUNTERS, NVIDIA): "ncu --set roofline --export run COMMAND",
}
"""The commands of each vendor that record a trace, or counters of each kernel."""

RUN = "tidyprof run -- COMMAND"


@dataclass(frozen=True)
class View:
    """The input of a rule, which consists of a run and its unprofiled step."""

    run: Run
    step: Step

    def share(self, *parts: str) -> float:
        """Return the share (0 to 1) of these parts of the step."""
        return self.step.share(*parts)

    def ms(self, *parts: str) -> str:
        """Return the time of these parts as a string such as `42.1 of 50.3 ms per step`."""
        taken, whole = sum(self.step.parts.get(part, 0.0) for part in parts), self.step.length_ns
        per_step = " per step" if self.run.marked else ""
        return f"{four_digits(taken / 1e6)} of {four_digits(whole / 1e6)} ms{per_step}"

    def say(self, sentence: str, **words: Any) -> str:
        """Fill in a sentence.

        `{name}` is a fact, `{part.ms}` the time of a part or of `part+part`, `{part.share}` its
        share, and `{each}` the words ` per step` if steps are marked. Other words are passed by
        name.
        """
        return _WORDS.format(sentence, self, **words)

    @property
    def whole(self) -> str:
        """The whole that shares refer to, either the step or the trace."""
        return "the step" if self.run.marked else "the trace"


class _Words(Formatter):
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        (view,), (name, _, form) = args, field_name.partition(".")
        if name in kwargs:
            return kwargs[name], name
        if name == "each":
            return " per step" if view.run.marked else "", name
        if form:
            parts = name.split("+")
            return view.ms(*parts) if form == "ms" else percent(view.share(*parts)), name
        return view.run.facts.shown(name) or "unknown", name


_WORDS = _Words()


Text = str | Callable[[View], str]


@dataclass(frozen=True)
class Rule:
    """One cause. The parts of the step that it explains form one row in the table of parts.

    - headline: the verdict as a format string, with `{}` for the share.
    - why: the evidence, a sentence for `View.say` or a function that returns one.
    - fix: the next action or command, in the same form.
    - lesson: the number of the lesson about the cause.
    - parts: the parts of the step that the cause explains.
    - fraction: the fraction (0 to 1) of the last part that belongs to the cause.
    - applies: whether the cause can limit the run. The table of parts shows the cause in either
      case.
    - is_idle: whether the cause describes an idle device. If so, the verdict depends on launch
      records.
    - on_gpu, on_cpu: whether the cause can occur in runs with a GPU, and in runs without a GPU.
    """

    cause: str
    row: str
    headline: str
    why: Text
    fix: Text
    lesson: str
    parts: Sequence[str] | Callable[[View], Sequence[str]]
    applies: Callable[[View], bool] = lambda view: True
    fraction: Callable[[View], float] = lambda view: 1.0
    is_idle: bool = True
    on_gpu: bool = True
    on_cpu: bool = False

    def covers(self, run: Run) -> bool:
        """Return True if the cause can occur in this kind of run."""
        return self.on_cpu if run.on_host else self.on_gpu


class Row(NamedTuple):
    """One row of the table of parts, with its name, its time in ns, and its rule."""

    name: str
    ns: float
    rule: Rule | None = None


class Part(NamedTuple):
    """One row of the table of parts. The field share is the row's share (0 to 1) of the step. The
    field is_cause is True for the verdict's row.
    """

    name: str
    ns: float
    share: float
    is_cause: bool


def command_for(purpose: str, run: Run) -> str:
    """Return the command that records a run in more detail, or the advice to look for one."""
    if purpose == TRACE and run.is_torch:
        return RUN
    unknown = f"{purpose}, with your GPU vendor's profiler"
    return COMMANDS.get((purpose, run.facts["vendor"]), unknown)


def _offloading(view: View) -> bool:
    return min(view.share("exposed_copy"), view.share("fetching")) >= OFFLOADED


def _copy_parts(view: View) -> tuple[str, ...]:
    """Return the parts that contain exposed copies.

    If samples are copied one by one, other parts also contain time for submitting copies and for
    waiting. Copies to the host count if the run offloads data.
    """
    facts = view.run.facts
    batches = facts["batches"] or float(view.run.marked)
    if batches and facts["copies_to_device"] >= MANY_COPIES * batches:
        return ("data_wait", "blocked_host", "exposed_copy")
    return ("fetching", "exposed_copy") if _offloading(view) else ("exposed_copy",)


def _copies_why(view: View) -> str:
    return view.say(
        "{copies_to_device} copies to the device{each} take {time} while nothing else runs.",
        time=view.ms(*_copy_parts(view)),
    )


def waits_often(run: Run) -> bool:
    """Return True if the host waits after every few launches, so work never queues up."""
    waits = run.facts["waiting_calls"]
    return waits > 0 and run.facts["kernels"] < FEW_LAUNCHES * waits


def _sync_parts(view: View) -> tuple[str, ...]:
    """Return the parts in which the host waits.

    If the host waits after every few launches, it can't run ahead. If these waits limit the run,
    the idle time between launches also counts as waiting.
    """
    waits = ("blocked_host", "stalled", "fetching")
    if waits_often(view.run) and view.share(*waits) >= LIMIT:
        return ("launch_bound", *waits)
    return waits


def startup_share(view: View) -> float:
    """Return the share (0 to 1) of the traced time that one-time work takes.

    One-time work includes slow first launches in any step, or the extra time of the first step.
    """
    facts = view.run.facts
    share, traced = view.share("start_up"), view.run.parts.get("start_up", 0.0)
    if view.run.marked:
        # Assume that removing the profiler changes the startup share of all steps by the same
        # factor.
        kept = share * view.run.overhead.traced_ns / traced if traced else 1.0
        share = max(share, facts["startup_share"] * kept)
    first = facts["first_step_ratio"]
    if first >= SLOW_START:
        share = max(share, (first - 1) / (first + facts["steps"] - 1))
    return min(share, 0.999)


def with_startup(view: View) -> View:
    """Return a view of the mean traced step if one-time work limits the run.

    Judged steps exclude the first step, although it contains the one-time work.
    """
    share, parts = startup_share(view), dict(view.step.parts)
    if share < LIMIT or share <= view.share("start_up"):
        return view
    others = sum(length for part, length in parts.items() if part != "start_up")
    parts["start_up"] = others * share / (1 - share)
    return View(view.run, view.step._replace(parts=parts))


def _kernel_share(view: View) -> float:
    """Return the largest kernel's share of kernel time, or 0 if the kernel isn't dominant."""
    facts = view.run.facts
    share = facts["top_kernel_share"]
    computes = not view.step.parts or view.share("compute") >= ONE_KERNEL
    if share < ONE_KERNEL or facts["top_kernel_category"] == "collective" or not computes:
        return 0.0
    return share


def text_of(view: View, text: Text) -> str:
    """Return the sentence of a rule."""
    return view.say(text) if isinstance(text, str) else text(view)


def in_function(function: str) -> str:
    """Return the words that name a function at the end of a sentence, if it is known."""
    return f", in {function}" if function else ""


def _data_why(view: View) -> str:
    inside = in_function(view.run.facts["loading_function"])
    loader = " The DataLoader runs {loader}." if view.run.facts["loader"] else ""
    return view.say("The step waits for data for {data_wait.ms}{inside}." + loader, inside=inside)


def _data_fix(view: View) -> str:
    if view.run.facts["loader"] == WORKERS:
        return (
            "Time the DataLoader alone with more workers. If that doesn't help, profile the"
            " dataset's __getitem__."
        )
    return (
        "Load with num_workers=4 (at most one per CPU core), then move the transforms to whole"
        " batches or to the GPU."
    )


def _outside_why(view: View) -> str:
    facts = view.run.facts
    return view.say(
        "No operator runs and nothing is launched for {silent.ms}{where}{inside}.",
        where=f" in your part `{part}`" if (part := facts["outside_part"]) else "",
        inside=in_function(facts["outside_function"]),
    )


def _outside_fix(view: View) -> str:
    if view.run.facts["outside_function"]:
        return "Call this function less often, in another thread, or on larger pieces of data."
    return (
        "Find the function: tidyprof run --with-stack -- COMMAND. Such functions often prepare"
        " data, write logs or save checkpoints."
    )


def _sync_why(view: View) -> str:
    return view.say(
        "The GPU is idle for {idle} during or after {waiting_calls} waiting calls{each}{most}.",
        idle=view.ms(*_sync_parts(view)),
        most=f", mostly {call}" if (call := view.run.facts["waiting_call"]) else "",
    )


def _launch_fix(view: View) -> str:
    facts = view.run.facts
    if not view.run.is_torch:
        return "Give each launch more work: larger or fewer kernels, or graphs (hipGraphLaunch)."
    fixes = "" if facts["compiled"] else " torch.compile,"
    # HIP graphs return wrong results in some ROCm releases (ROCm/clr#279).
    if facts["vendor"] == NVIDIA and not facts["graph_share"]:
        fixes += " CUDA graphs,"
    return f"Give each launch more work: a larger batch,{fixes} or a fused optimizer in training."


def _startup_why(view: View) -> str:
    facts = view.run.facts
    if facts["library_search"]:
        return view.say(
            "{library_search} benchmarks a library's kernels for {library_search_amount}."
        )
    if facts["first_step_ratio"] >= SLOW_START:
        return view.say(
            "The first step takes {first_step_ratio} times as long as the median of the others."
        )
    return "First launches load code, or a single idle interval takes most of the idle time."


def _startup_fix(view: View) -> str:
    if view.run.facts["library_search"]:
        return (
            "Record steps whose input sizes occurred before. If new sizes keep occurring, pad"
            " inputs to a few sizes."
        )
    if view.run.facts["operators"]:
        return "Skip the first steps and record again: tidyprof run --skip-steps 30 -- COMMAND"
    return "Repeat the work in the program and judge later rounds, which contain no one-time work."


def _straggler_why(view: View) -> str:
    return view.say(
        "Rank {straggler} arrives last in {straggler_last} of {compared_collectives} collectives."
        " Per step, its own work takes {straggler_excess_ns} longer than the other ranks' work,"
        " mostly {part}.",
        part=part_name(view.run.facts["straggler_part"]),
    )


def _straggler_fix(view: View) -> str:
    facts, table = view.run.facts, view.run.rank_table
    late = int(facts["straggler"])
    if facts["straggler_part"] not in (*HOST_COMPUTE, "small"):
        return f"Find out why this rank is late: tidyprof triage RANK{late}"
    assert table is not None
    waiting = table["rank"][table["wait_ns"].where(table["rank"] != late, -1).idxmax()]
    return f"Balance the ranks' work. See tidyprof table compare RANK{waiting} RANK{late}"


def _communication_fix(view: View) -> str:
    ranks = view.run.facts["ranks"]
    if view.run.rank_table is None or view.run.facts["world_size"] > ranks:
        return "Record every rank to see whether one rank arrives late or the network is slow."
    return "Send fewer bytes, or overlap the transfer with computation."


def _kernel_fix(view: View) -> str:
    if view.run.facts["tool"] in REPLAYING:
        return "Look for a faster implementation, fewer calls, or a smaller data type."
    return f"Measure how close it is to its roof: {command_for(COUNTERS, view.run)}"


_TABLE = table_of("triage/rules.toml")
_COMPUTED: Mapping[str, Mapping[str, Callable[[View], Any]]] = {
    "exposed-copies": {"why": _copies_why, "parts": _copy_parts},
    "allocator-churn": {"applies": lambda view: view.run.facts["allocations"] >= FEW_CALLS},
    "input-bound": {"why": _data_why, "fix": _data_fix},
    "outside-torch": {"why": _outside_why, "fix": _outside_fix},
    "sync-bound": {"why": _sync_why, "parts": _sync_parts},
    "startup": {"why": _startup_why, "fix": _startup_fix},
    "straggler": {"why": _straggler_why, "fix": _straggler_fix},
    "exposed-communication": {"fix": _communication_fix},
    "launch-bound": {"fix": _launch_fix},
    "dominant-kernel": {"fix": _kernel_fix, "fraction": _kernel_share},
}
"""The fields of each rule that depend on the run. The other fields are in rules.toml."""

RULES = tuple(
    Rule(cause, **stated, **_COMPUTED.get(cause, {})) for cause, stated in _TABLE["rules"].items()
)
"""All rules. Each part belongs to the first rule that explains it."""

DOMINANT_KERNEL = RULES[-1]
"""The rule for slow computation, which counts only if no other cause limits the run."""


def part_name(part: str) -> str:
    """Return the name of a part in the table of parts."""
    return _TABLE["rows"].get(part, part.replace("_", " "))


def rows_of(view: View) -> list[Row]:
    """Return the rows of the table of parts, which add up to the step.

    The table has one row for each rule that covers the run, and one row for each part without a
    rule.
    """
    left, rows = dict(view.step.parts), []
    for rule in RULES:
        if not rule.covers(view.run):
            continue
        *whole, last = rule.parts(view) if callable(rule.parts) else rule.parts
        taken = left.get(last, 0.0) * rule.fraction(view)
        left[last] = left.get(last, 0.0) - taken
        taken += sum(left.pop(part, 0.0) for part in whole)
        rows.append(Row(rule.row, taken, rule))
    rows += [Row(part_name(part), length) for part, length in left.items()]
    return rows

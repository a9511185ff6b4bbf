"""What each sentence of triage claims, as one list of a regular expression and what has to be true
for its match.

A sentence is read from left to right in pieces: every expression of CHECKS is looked for, and what
it matched is struck out. What is left must hold no digit and no `no`, `none`, `not` or `nothing`: a
new sentence needs its line here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from math import floor, log10
from statistics import median

from tidyprof_tests.triage import raw_ranks
from tidyprof_tests.triage.raw import (
    COMPILED,
    NO_MARK,
    STEP,
    TRAINING,
    Truth,
    judged,
    loader_starts,
    loading_by_loader,
    own_times,
    within,
)
from tidyprof_tests.triage.raw_observer import Step, bill_of_all, end_steps, judged_step, lengths
from tidyprof_tests.triage.raw_time import (
    ALLOCATING,
    COMPILING,
    COPYING,
    DATA,
    LOADER,
    MS,
    SYNCHRONISING,
    named,
)

N = r"[\d,]*\.?\d+"
PARTS = {
    "host silent": "silent",
    "behind a waiting call": "stalled",
    "in a waiting call": "blocked_host",
    "in a call that allocates": "allocation",
    "in slow first launches": "start_up",
    "between operators": "between",
    "idle for another reason": "other",
    "compute": "compute",
    "exposed communication": "exposed_communication",
    "exposed copy": "exposed_copy",
    "data wait": "data_wait",
    "blocked host": "blocked_host",
    "launch-bound idle": "launch_bound",
    "compiling": "compiling",
    "copying to the host": "fetching",
    "taken by other programs": "taken",
}
"""What a part is called in sentences."""

CAUSES = (
    "memory-pressure",
    "exposed-copies",
    "late-data",
    "recompiling",
    "silent-host",
    "blocked-host",
    "start-up",
    "straggler",
    "exposed-communication",
    "many-operators",
    "launch-bound",
)
LIMIT = 0.2

Check = Callable[[Truth, re.Match], str]
"""Says what is wrong, "" if nothing is."""


def number(text: str) -> float:
    """Of `1,025`."""
    return float(text.replace(",", ""))


def digits(text: str, value: float) -> str:
    """A number with four digits, and all of those before the point."""
    unit = 1.0 if value >= 1000 else 10.0 ** (floor(log10(value)) - 3) if value > 0 else 1e-9
    return "" if abs(number(text) - value) <= 0.51 * unit else f"{text} is {value:.6g}"


def shown(text: str, value: float, slack: float = 0.0) -> str:
    """A number rounded to the places that are shown."""
    unit = 10.0 ** -len(text.partition(".")[2])
    return "" if abs(number(text) - value) <= 0.51 * unit + slack else f"{text} is {value:.6g}"


def share(text: str, value: float) -> str:
    """A share from 0 to 1, shown in percent: as rounded, and 0.1 points for sums of cut
    stretches.
    """
    return shown(text, 100 * value, 0.1 if number(text) < 10 else 0.2)


def true(statement: bool, words: str) -> str:
    """Nothing is wrong, or these words."""
    return "" if statement else words


def first(*wrong: str) -> str:
    """The first thing that is wrong."""
    return next((one for one in wrong if one), "")


def of_step(truth: Truth, name: str) -> float:
    """A part of the step without the profiler, 0 to 1."""
    return judged_step(truth).share(name)


def cause_share(step: Step, name: str) -> float:
    """What a cause takes of the time by the rules of docs/triage.md, 0 where it is not met."""
    if step.truth.on_host and name in (
        "memory-pressure",
        "exposed-copies",
        "blocked-host",
        "launch-bound",
    ):
        return 0.0
    if not step.truth.on_host and name == "many-operators":
        return 0.0
    return SHARES[name](step)


def _one_by_one(truth: Truth) -> bool:
    if truth.on_host or not (truth.marked or truth.counts["batches"]):
        return False
    return truth.counts["copies"] / max(truth.counts["batches"], 1) >= 16


def _both_ways(step: Step) -> bool:
    return not step.truth.on_host and step.share("exposed_copy") >= 0.1 <= step.share("fetching")


def _copies(step: Step) -> float:
    more = (
        ("data_wait", "blocked_host")
        if _one_by_one(step.truth)
        else ("fetching",)
        if _both_ways(step)
        else ()
    )
    return sum(step.share(name) for name in ("exposed_copy", *more))


def _blocked(step: Step) -> float:
    names = {"stalled", "fetching", "blocked_host"}
    names -= {"blocked_host"} if _one_by_one(step.truth) else set()
    names -= {"fetching"} if _both_ways(step) else set()
    return sum(step.share(name) for name in names)


def _start_up(step: Step) -> float:
    truth, found = step.truth, step.start_up
    if truth.first_step and truth.first_step >= 2:
        found = max(found, (truth.first_step - 1) / (truth.first_step + truth.steps - 1))
    return max(found, _once(step))


def _once(step: Step) -> float:
    """Share of the one long gap of a recording without steps, 0 where there is no such gap."""
    gap = None if step.truth.on_host or step.truth.marked else step.truth.gap
    if not gap or (
        not gap[4] and not step.truth.events("call") and not step.truth.events("operator")
    ):
        return 0.0
    return gap[0] / (step.length * step.truth.steps) if gap[1] >= 0.5 and gap[2] >= 3 else 0.0


def _recompiling(step: Step) -> float:
    ranges, silence = max(step.truth.compiling, step.share("compiling")), step.share("silent")
    again = (
        step.truth.is_named(COMPILED) and silence * step.length >= 100 * MS and not _start_up(step)
    )
    return max(ranges, silence) if again else ranges


def _straggler(step: Step) -> float:
    if not raw_ranks.compared(step.truth):
        return 0.0
    worst = raw_ranks.blamed(step.truth)
    waited = raw_ranks.waited_for(step.truth, worst) * step.waits_left
    return min(raw_ranks.excess(step.truth, worst)[0], waited)


def _communication(step: Step) -> float:
    exposed = step.share("exposed_communication")
    if not raw_ranks.compared(step.truth):
        return exposed
    return exposed * raw_ranks.transferring(step.truth, step.waits_left / step.shorter)


def _one_kernel(step: Step) -> float:
    """Of a kernel that has half of all their time or more, where they have half of the step."""
    times, _ = step.truth.kernel_time
    (name, spent), *_ = times.most_common(1) or [("", 0)]
    part = spent / max(sum(times.values()), 1)
    collectives = {event.name for event in step.truth.events("collective")}
    return (
        step.share("compute") * part
        if min(part, step.share("compute")) >= 0.5 and name not in collectives
        else 0.0
    )


SHARES: dict[str, Callable[[Step], float]] = {
    "memory-pressure": lambda s: (
        s.share("allocation") if s.truth.counts["allocating"] >= 1 else 0.0
    ),
    "exposed-copies": _copies,
    "late-data": lambda s: 0.0 if _one_by_one(s.truth) else s.share("data_wait"),
    "recompiling": _recompiling,
    "silent-host": lambda s: 0.0 if _recompiling(s) >= LIMIT else s.share("silent"),
    "blocked-host": _blocked,
    "start-up": _start_up,
    "straggler": _straggler,
    "exposed-communication": _communication,
    "many-operators": lambda s: s.small,
    "launch-bound": lambda s: s.share("launch_bound") if len(s.truth.sides) < 2 else s.pace,
    "one-kernel": _one_kernel,
}


def leading(step: Step) -> tuple[str, bool]:
    """The cause with the most weight of those that fired (`healthy` where there is none), and
    whether it is clear.

    A host that waits weighs as much as late launches, and what comes in each step counts for the
    time of such steps.
    """
    truth = step.truth
    slow = truth.first_step if truth.first_step and len(truth.steady) < len(truth.rows) else 1.0
    shares = {name: cause_share(step, name) for name in CAUSES}
    weights = {name: value for name, value in shares.items() if value >= LIMIT}
    if "blocked-host" in weights:
        weights["blocked-host"] = max(weights["blocked-host"], step.share("launch_bound"))
    for name in {*weights} - {"start-up"}:
        weights[name] *= (truth.steps - 1) / (truth.steps - 1 + slow) if slow != 1.0 else 1.0
    lost = 0.0 if truth.on_host else step.share("other")
    if weights:
        best, *rest = sorted(weights, key=lambda name: -weights[name])
        at_work = sum(
            step.share(name)
            for name in ("compute", "exposed_communication", "exposed_copy", "fetching")
        )
        near = max([lost, *(weights[name] for name in rest)])
        clear = shares[best] >= max(1.25 * LIMIT, 1.5 * near) and not (
            best == "launch-bound" and at_work >= 0.55
        )
        return best, clear
    if not truth.on_host and _one_kernel(step) >= LIMIT:
        return "one-kernel", True
    return "healthy", 1.25 * max([lost, *shares.values()]) <= LIMIT and step.share("compute") >= 0.7


def _known_without(truth: Truth, found: re.Match) -> str:
    """The length without the profiler is told where it can be another one, as a range, with what it
    is known by.
    """
    if not (known := lengths(truth)):
        return "nothing tells that it is another one"
    low, middle, high = known
    return first(
        digits(found["middle"], middle / 1e6),
        digits(found["low"], low / 1e6),
        digits(found["high"], high / 1e6),
        digits(found["events"], bill_of_all(truth).events),
    )


def _profiler_alone(truth: Truth, found: re.Match) -> str:
    """At the ends of the range the step has the named causes; where none is named, one that is not
    clear at an end.
    """
    ends = [leading(step) for step in (*end_steps(truth), judged_step(truth))]
    if len(ends) < 3:
        return "there is one length"
    leaders = {name for name, _ in ends}
    if not found["causes"]:
        return true(len(leaders) == 1 and not all(clear for _, clear in ends), f"it is {ends}")
    stated = {*found["causes"].split(" or ")}
    known = true(
        stated <= {*CAUSES, "healthy", "one-kernel", "power-limit", "can't tell"}, "that is none"
    )
    return first(
        known, true(len(stated) > 1 and (stated - {"can't tell"} <= leaders), f"it is {ends}")
    )


def _unknown_cost(truth: Truth, found: re.Match) -> str:
    own = truth.recording
    return first(
        true(found["tool"] == own.tool, f"it is {own.tool}"),
        true(own.tool != "torch.profiler" and not own.modelled, "it is known"),
    )


def _missing(truth: Truth, found: re.Match) -> str:
    """None of these ranks is in what was judged; of one alone nobody knows who waits for whom."""
    named = {int(one) for one in re.findall(r"rank (\d+)", found["names"] or found["same"])}
    here = {rank.number for rank in truth.ranks}
    alone = "who waits for whom" in found[0]
    return first(
        true(not named & here, f"{named & here} are here"),
        true(bool(found["names"]) or alone == (len(here) < 2), f"{len(here)} are here"),
    )


def _healthy(truth: Truth, found: re.Match) -> str:
    """`nothing takes` speaks of all time, `no cause takes` of the causes that triage knows."""
    largest = {name: cause_share(judged_step(truth), name) for name in CAUSES}
    if found["who"] == "nothing":
        largest |= {name: of_step(truth, name) for name in truth.parts if name != "compute"}
    over = {name: value for name, value in largest.items() if value >= number(found["limit"]) / 100}
    return true(not over, f"but these do: {over}")


CLOCK = "(?: on the (?P<clock>host|device))?"


def _judged(truth: Truth, found: re.Match) -> str:
    """`2 of 3 steps (the first left out), a mean of 18.77 ms each on the device`, `1 step of
    9.288 ms on the host`, `12.55 ms between ...`.
    """
    lengths = [row.length for row in truth.rows if row.step is not None]
    groups = found.groupdict()
    apart = len({row.step for row in truth.rows if row.apart})
    steady = len({row.step for row in truth.steady})
    calls = [call for side in truth.sides if side.work for call in side.work.calls]
    clock = None if truth.on_host else "device" if any(calls) else "host"
    return first(
        true(bool(lengths), "nothing marks a step"),
        true(found["clock"] == clock, f"it is {clock}'s clock"),
        true(int(groups.get("steady") or steady) == steady, f"{steady} count"),
        true(int(groups["steps"]) == truth.steps, f"there are {truth.steps}"),
        true(
            bool(groups.get("first")) == (truth.steps - steady - apart > 0),
            "the first is in, or out",
        ),
        digits(groups["ms"], truth.step_ns / 1e6),
    )


def _between(truth: Truth, found: re.Match) -> str:
    """From the first to the last event; where something of that is left out, the sentence has to
    say so.
    """
    whole = sum(row.end - row.begin for row in truth.rows) / len(truth.rows)
    less = truth.step_ns if found["less"] else whole
    return first(true(not truth.marked, "steps are marked"), digits(found["ms"], less / 1e6))


def _listed(truth: Truth, found: re.Match) -> str:
    """All parts from half a percent on are listed, of the step without the profiler where that is
    another one.
    """
    parts = {PARTS[name] for name in re.findall(rf"(?:, |^)([a-z -]+?) {N} %", found["list"])}
    missing = {name for name in truth.parts if of_step(truth, name) >= 0.006} - parts
    known = lengths(truth)
    return first(
        true(not missing, f"not listed: {missing}"),
        true(bool(found["without"]) == bool(known), f"without the profiler: {known}"),
    )


def _part(truth: Truth, found: re.Match) -> str:
    return share(found["share"], of_step(truth, PARTS[found["part"]]))


def _uneven(truth: Truth, found: re.Match) -> str:
    lengths = [row.length / 1e6 for row in truth.steady]
    return first(digits(found["low"], min(lengths)), digits(found["high"], max(lengths)))


def _apart(truth: Truth, found: re.Match) -> str:
    reasons = {row.step: row.apart for row in truth.rows if row.apart}
    name, spent = reasons.get(int(found["step"]), ("", 0))
    return first(true(name == found["name"], f"it is {name!r}"), digits(found["ms"], spent / 1e6))


def _left_out(truth: Truth, found: re.Match) -> str:
    held = sum(row.parts["earlier"] for row in truth.rows)
    return first(true(held > 0, "nothing waited"), digits(found["ms"], held / 1e6))


NO_PART = rf"{STEP}|Optimizer\..*|enumerate\(DataLoader\).*|{COMPILING}|{COMPILED}"
IN_FILE = {"allocating": ALLOCATING, "waiting": f"(?!({ALLOCATING})$)({SYNCHRONISING}|{COPYING})"}


def _count(name: str) -> Check:
    """Of a step, the mean of all that are there; `in all` is the file, `in this time` the judged
    part of it.
    """

    def check(truth: Truth, found: re.Match) -> str:
        count = truth.counts[name]
        if found["unit"] == "in all" and name in IN_FILE:
            count = len(named(truth.events("call"), IN_FILE[name])) / len(truth.sides)
        return first(true((found["unit"] == "a step") == truth.marked, f"marked: {truth.marked}"),
                     digits(found["count"], count))  # fmt: skip

    return check


def _silence(truth: Truth, found: re.Match) -> str:
    step = judged_step(truth)
    return first(
        share(found["share"], step.share("silent")),
        digits(found["ms"], step.parts["silent"] / 1e6),
        true((found["unit"] == "a step") == truth.marked, f"marked: {truth.marked}"),
    )


def _silent_in(truth: Truth, found: re.Match) -> str:
    """Most of the silence lies in one Python function; where there is none, nothing does."""
    if truth.share("silent") < 0.005:
        return "there is no silence"
    side = max(truth.sides, key=lambda one: one.axis.length(one.sets["silent"]))
    runs, spent = side.axis.runs(side.sets["silent"]), 0
    for one in side.rank.functions:
        if one.name == found["name"]:
            spent += sum(max(min(one.end, end) - max(one.start, begin), 0) for begin, end in runs)
    return true(2 * spent >= sum(end - begin for begin, end in runs), "it covers less than half")


def _loading_in(truth: Truth, found: re.Match) -> str:
    """Most of the wait for data lies in it, and most of it in the wait for data."""
    side = max(truth.sides, key=lambda one: one.axis.length(one.sets["data_wait"]))
    runs, inside, whole = side.axis.runs(side.sets["data_wait"]), 0, 0
    for one in side.rank.functions:
        if one.name == found["name"]:
            inside += sum(max(min(one.end, end) - max(one.start, begin), 0) for begin, end in runs)
            whole += one.end - one.start
    return first(
        true(2 * inside >= sum(end - begin for begin, end in runs) > 0, "it covers less than half"),
        true(2 * inside >= whole, "it is around more"),
    )


def _silent_part(truth: Truth, found: re.Match) -> str:
    """Most of the silence lies in the script's own ranges of one name; those that torch writes are
    none of it.
    """
    side = max(truth.sides, key=lambda one: one.axis.length(one.sets["silent"]))
    runs, own = (
        side.axis.runs(side.sets["silent"]),
        [one for one in side.rank.ranges if one.name == found["name"]],
    )
    spent = sum(
        max(min(one.end, end) - max(one.start, begin), 0) for one in own for begin, end in runs
    )
    return first(
        true(not re.fullmatch(NO_PART, found["name"]), "torch writes such ranges"),
        true(2 * spent >= sum(end - begin for begin, end in runs) > 0, "it covers less than half"),
    )


def _processor(truth: Truth, found: re.Match) -> str:
    """Two clocks of the system tell the times, so that the part can exceed the whole by a little;
    shown is the less.
    """
    off, stolen = truth.processor("off"), truth.processor("stolen")
    wrong = share(found["off"], off)
    if found["stolen"] is None:
        return first(wrong, true(stolen is None, "it was recorded"))
    return first(
        wrong,
        share(found["stolen"], min(stolen, off)),
        true(number(found["stolen"]) <= number(found["off"]), "a part is more than the whole"),
    )


def _others_had(truth: Truth, found: re.Match) -> str:
    """More than half of the time they had the processor while the host waited for it; some of that
    was lost.
    """
    off, stolen = truth.processor("off"), truth.processor("stolen")
    return first(
        share(found["share"], min(stolen, off)),
        true(stolen >= 0.55, "that is no more than half"),
        true(
            sum(cause_share(judged_step(truth), name) for name in CAUSES) + of_step(truth, "taken")
            >= LIMIT,
            "nothing is lost",
        ),
    )


def _others_alone(truth: Truth, found: re.Match) -> str:
    over = [name for name in CAUSES if cause_share(judged_step(truth), name) >= LIMIT]
    return first(
        share(found["share"], of_step(truth, "taken")), true(not over, f"but these do: {over}")
    )


def _compiler(truth: Truth, found: re.Match) -> str:
    return share(found["share"], truth.compiling)


def _slow(truth: Truth, found: re.Match) -> str:
    count, ms, launches, usual = truth.slow
    return first(
        digits(found["count"], count),
        digits(found["all"], launches),
        digits(found["ms"], ms),
        digits(found["usual"], usual),
        true(count > 0, "none is slow"),
    )


def _gap(truth: Truth, found: re.Match) -> str:
    ns, of_all, _, calls, is_first = truth.gap
    return first(
        digits(found["ms"], ns / 1e6),
        share(found["share"], of_all),
        true(not found["call"] or found["call"] in calls, f"half of it is in {calls}"),
        true(is_first or not found["new"], "that ran before"),
        # The stretch that nothing is longer than lies between two events on the device, and the
        # sentence must say so.
        true(
            "between" in found["what"] or not _edges(truth, ns),
            f"idle before the first event: {_edges(truth, ns)}",
        ),
    )


def _edges(truth: Truth, ns: float) -> list[int]:
    """Idle stretches of the steps outside of loading that are longer than the longest gap between
    two events.
    """
    found = []
    for side in truth.sides:
        whole = side.axis.of((row.begin, row.end) for row in side.rows)
        runs = side.axis.runs(side.sets["idle"] & ~side.sets["earlier"] & whole)
        found += [end - begin for begin, end in runs if end - begin > ns]
    return found


def _first_step(truth: Truth, found: re.Match) -> str:
    return (
        true(truth.first_step is not None, "one step")
        or shown(found["times"], truth.first_step)
        or (found["alone"] and shown(found["alone"], truth.first_alone))
        or ""
    )


def _waits(truth: Truth, found: re.Match) -> str:
    """The calls counted are those that synchronise and copy: the one named, and those stood behind,
    are of them.
    """
    step = judged_step(truth)
    wrong = share(found["inside"], step.share("blocked_host")) or share(
        found["behind"], step.share("stalled")
    )
    if wrong or not found["call"]:
        return wrong
    counts = [
        truth.idle_in_calls(side, f"(?!({ALLOCATING})$)({SYNCHRONISING}|{COPYING})")
        for side in truth.sides
    ]
    most = {name for one in counts for name, spent in one.items() if spent == max(one.values())}
    return true(found["call"] in most, f"most is in {sorted(most) or 'none of them'}")


def _memory(truth: Truth, found: re.Match) -> str:
    return share(found["share"], of_step(truth, "allocation"))


def _back(truth: Truth, found: re.Match) -> str:
    step = judged_step(truth)
    return first(
        share(found["share"], step.share("fetching")),
        true(_both_ways(step), "few copies go one way"),
    )


def _search(truth: Truth, found: re.Match) -> str:
    name, ns = truth.search
    return first(
        true(found["name"] == name, f"it is {name or 'none'}"), digits(found["ms"], ns / 1e6)
    )


def _batches(truth: Truth, found: re.Match) -> str:
    return digits(found["count"], truth.counts["batches"])


def _who_loads(truth: Truth, found: re.Match) -> str:
    loaders = named(truth.events("range"), LOADER)
    wanted = "_SingleProcess" if "training process" in found[0] else "_MultiProcessing"
    return true(any(wanted in one.name for one in loaders), "no such loader")


def _starts(truth: Truth, found: re.Match) -> str:
    counts = loader_starts(truth)
    named_ones = [
        (number(one), name) for one, name in re.findall(rf"({N}) ([\w:.]+)", found["list"])
    ]
    top = sorted(counts.values(), reverse=True)[: len(named_ones)]
    most = [float(f"{one:.4g}") for one in top] == [one for one, _ in named_ones]
    wrong = (digits(f"{one}", counts[name]) for one, name in named_ones)
    return first(*wrong, true(most, f"the most are {top}"))


def _looped(truth: Truth, found: re.Match) -> str:
    return share(found["share"], judged_step(truth).small)


def _frequent(truth: Truth, found: re.Match) -> str:
    counts = truth.looped
    return first(
        digits(found["count"], counts[found["name"]]),
        true(counts[found["name"]] == max(counts.values()), f"{counts.most_common(1)}"),
    )


def _own_time(truth: Truth, found: re.Match) -> str:
    """Of several ranks the one in which an operator has the largest share is told of."""
    shares = [
        {name: spent / sum(times.values()) for name, spent in times.items()}
        for times in own_times(truth)
        if sum(times.values())
    ]
    largest = max(max(one.values()) for one in shares)
    stated = max(one.get(found["name"], 0.0) for one in shares)
    where = found["where"]
    return first(
        share(found["share"], largest),
        true(stated == largest, f"it has {stated}"),
        _lies_in(truth, found["name"], where) if where else "",
    )


def _lies_in(truth: Truth, operator: str, function: str) -> str:
    """At least half of the operator's time is time of the function as well, in one rank: the
    function calls the operator, or the operator the function.
    """
    for side in truth.sides:
        begun = [one for one in within(side.rank.operators, judged(side)) if one.name == operator]
        runs = [one for one in side.rank.functions if one.name == function]
        edges = sorted({edge for one in (*begun, *runs) for edge in (one.start, one.end)})
        spent, shared = 0, 0
        for begin, end in itertools.pairwise(edges):
            if any(one.start <= begin < one.end for one in begun):
                spent += end - begin
                shared += (end - begin) * any(one.start <= begin < one.end for one in runs)
        if 2 * shared >= spent > 0:
            return ""
    return f"less than half of it lies in {function}"


def _not_launched(truth: Truth, found: re.Match) -> str:
    several = len(truth.sides) > 1
    value = cause_share(judged_step(truth), "launch-bound")
    return first(
        true(bool(found["whose"]) == several, f"{len(truth.sides)} ranks"),
        share(found["share"], value),
    )


def _under(truth: Truth, found: re.Match) -> str:
    """Operators nest: the innermost is named, and those around it cover no less. So the true share
    is no smaller.
    """
    value = truth.under(found["name"], "launch_bound")
    return true(value >= number(found["share"]) / 100 - 0.01, f"{value:.3f} is")


def _kernel(truth: Truth, found: re.Match) -> str:
    """Names are shortened; the kernel with the most time is meant."""
    time, calls = truth.kernel_time
    (name, spent), *_ = time.most_common(1)
    words = re.findall(r"[A-Za-z]{4,}", found["name"])
    return first(
        shown(found["share"], 100 * spent / sum(time.values())),
        digits(found["calls"], calls[name]),
        true(any(word in name for word in words), f"it is {name}"),
    )


def _like_communication(truth: Truth, found: re.Match) -> str:
    """Their time, of that of all kernels."""
    time, _ = truth.kernel_time
    words = r"dispatch|combine|all_?2?_?(to)?_?all|all_?reduce|all_?gather|reduce_?scatter"
    alike = sum(
        event.end - event.start
        for event in truth.events("kernel")
        if re.search(words, event.name.lower())
    )
    return share(found["share"], alike / max(sum(time.values()), 1))


def _graphs(truth: Truth, found: re.Match) -> str:
    return share(found["share"], truth.graph_share)


def _empty_replays(truth: Truth, found: re.Match) -> str:
    """Half of them or more, with an idle device, leave open when it worked."""
    launches, empty, *_ = truth.replays
    working = ("compute", "exposed_communication", "exposed_copy", "fetching")
    idle = 1 - sum(of_step(truth, name) for name in working)
    stated = (number(found["empty"]), number(found["launches"]))
    unknown = 2 * empty >= launches and idle >= LIMIT
    return first(true(stated == (empty, launches), f"{truth.replays}"),
                 true(unknown or not found["verdict"], f"idle for {idle}"))  # fmt: skip


def _unequal_replays(truth: Truth, found: re.Match) -> str:
    launches, empty, usual, most = truth.replays
    stated = tuple(number(found[name]) for name in ("launches", "usual", "most"))
    return true(
        stated == (launches, usual, most) and not empty and most >= 2 * usual, f"{truth.replays}"
    )


def _one_rank(truth: Truth, found: re.Match) -> str:
    return true(len(truth.ranks) == 1, f"{len(truth.ranks)} ranks are here")


def _few_ranks(truth: Truth, found: re.Match) -> str:
    here, size = len(truth.ranks), truth.recording.world_size
    return true((int(found["here"]), int(found["size"])) == (here, size), f"{here} of {size}")


def _came_last(truth: Truth, found: re.Match) -> str:
    worst = raw_ranks.blamed(truth)
    own, all_costs = raw_ranks.costs(truth)[worst], raw_ranks.costs(truth).values()
    mean = own.caused / (len(all_costs) - 1) / max(own.last, 1)
    return first(
        true(int(found["rank"]) == worst, f"it is rank {worst}"),
        true((int(found["last"]), int(found["all"])) == (own.last, own.compared), f"{own}"),
        shown(found["caused"], 100 * own.caused / sum(one.wait for one in all_costs)),
        shown(found["mean"], mean / 1e6),
    )


def _straggling(what: str) -> Check:
    """Its own milliseconds and the others' median."""

    def check(truth: Truth, found: re.Match) -> str:
        costs = raw_ranks.costs(truth)
        own = getattr(costs.pop(raw_ranks.blamed(truth)), what)
        others = median(getattr(one, what) for one in costs.values())
        return first(shown(found["own"], own / 1e6), shown(found["others"], others / 1e6))

    return check


def _slower(truth: Truth, found: re.Match) -> str:
    """`not slower` up to 1.1 times the others; a run without a GPU has no device."""
    costs = raw_ranks.costs(truth)
    own = costs.pop(raw_ranks.blamed(truth))
    longer = own.computation > 1.1 * median(one.computation for one in costs.values())
    return first(true(("longer" in found[0]) == longer, f"longer: {longer}"),
                 true(("device" in found[0]) != truth.on_host, "no device is here"),
                 shown(found["idle"], 100 * own.idle / own.total))  # fmt: skip


def _idle_late(truth: Truth, found: re.Match) -> str:
    """No word on how long it computes: that would speak against what it does more."""
    costs = raw_ranks.costs(truth)
    own = costs.pop(raw_ranks.blamed(truth))
    longer = own.computation > 1.1 * median(one.computation for one in costs.values())
    _, part = raw_ranks.excess(truth, raw_ranks.blamed(truth))
    return first(
        shown(found["idle"], 100 * own.idle / own.total),
        true(longer != (part == "compute"), "it would not"),
    )


def _excess(truth: Truth, found: re.Match) -> str:
    more, part = raw_ranks.excess(truth, raw_ranks.blamed(truth))
    if found["more"] is None:
        return true(more < 0.01, f"{more:.3f} more")
    return first(
        shown(found["more"], 100 * more), true(PARTS.get(found["part"]) == part, f"most is {part}")
    )


def _waiting(truth: Truth, found: re.Match) -> str:
    return shown(found["share"], 100 * raw_ranks.waiting(truth), 0.1)


def _in_turn(truth: Truth, found: re.Match) -> str:
    costs = raw_ranks.costs(truth)
    most = max(one.caused for one in costs.values())
    if found["rank"] is None:
        return _waiting(truth, found) or true(most == 0, f"one caused {most} ns")
    named = costs[int(found["rank"])].caused
    caused = 100 * most / sum(one.wait for one in costs.values())
    return first(
        _waiting(truth, found), true(named == most, f"not the most: {named}"),
        shown(found["caused"], caused),
    )  # fmt: skip


def _no_straggler(truth: Truth, found: re.Match) -> str:
    step = judged_step(truth)
    return first(share(found["share"], step.waiting), true(_straggler(step) < LIMIT, "one does"))


def _always_last(truth: Truth, found: re.Match) -> str:
    worst = raw_ranks.blamed(truth)
    own = raw_ranks.costs(truth)[worst]
    return true(int(found["rank"]) == worst and own.last == own.compared, f"{worst}: {own}")


def _without_waiting(truth: Truth, found: re.Match) -> str:
    return share(found["share"], _communication(judged_step(truth)))


def _mark(truth: Truth, found: re.Match) -> str:
    """A range that comes three times or more, or where there is none an operator."""
    events = [*truth.events("range"), *truth.events("operator")]
    count = sum(one.name == found["name"] for one in events)
    return first(
        digits(found["count"], count), true(not re.fullmatch(NO_MARK, found["name"]), "no mark")
    )


def _mark_of_steps(truth: Truth, found: re.Match) -> str:
    """Every step begins with one of this name, and the profiler marked none."""
    events = [one for kind in ("range", "operator", "call") for one in truth.events(kind)]
    begins = {one.start for one in events if one.name == found["name"]}
    return first(
        true(
            begins == {begin for side in truth.sides for _, begin, _ in side.host},
            f"{len(begins)} are",
        ),
        true(not named(truth.events("range"), r"ProfilerStep#\d+"), "it marked some"),
    )


def _idle_unknown(truth: Truth, found: re.Match) -> str:
    """Idle although work was queued, without a launch record, or without anything of the host."""
    lacking, heard = re.match(N, found["why"]), truth.events("call") or truth.events("operator")
    expected = "work was queued" if heard else "no call of the host is in them"
    wrong = true(
        truth.unlinked == 0 and found["why"] == expected,
        f"{truth.unlinked:.3f} lack one, or not {expected}",
    )
    wrong = share(lacking[0], truth.unlinked) if lacking else wrong
    return first(share(found["share"], of_step(truth, "other")), wrong)


def _largest(truth: Truth, found: re.Match) -> str:
    return share(found["share"], cause_share(judged_step(truth), found["cause"]))


KNOWING = "What a step takes without it decides: --step-ms MS"
"""How every doubt about the profiler ends."""


def _near(truth: Truth, found: re.Match) -> str:
    """A cause that comes near another, or the limit, takes some of the time."""
    name = found["name"]
    known = name in (*CAUSES, "power-limit", "one-kernel")
    takes = cause_share(judged_step(truth), name) if name in CAUSES else 1.0
    return first(true(known, "no such cause"), true(takes >= 0.1, "it is small"))


CHECKS: list[tuple[str, Check]] = [
    (
        r"; (?P<names>(?:(?:, | and )?rank \d+)+) (?:is|are) missing, not to be read$|"
        r"^(?P<same>(?:(?:, | and )?rank \d+)+) (?:is|are) missing: .*$",
        _missing,
    ),
    # The headline.
    (
        (
            r"^(?P<who>nothing|no (?:known )?cause) takes (?P<limit>\d+) % of the time or more(?:"
            r" from computation)?"
        ),
        _healthy,
    ),
    (
        rf"the (?P<who>device|processor) computes for (?P<share>{N}) % of it",
        lambda t, m: first(
            share(m["share"], of_step(t, "compute")),
            true((m["who"] == "device") != t.on_host, "no"),
        ),
    ),
    (rf"^(?P<cause>[a-z-]+)(?:, not sure)?: .*, up to (?P<share>{N}) % of the time$", _largest),
    (
        (
            rf"(?P<share>{N}) % of the launches were recorded into a graph and not run, so the"
            r" device had nothing to do"
        ),
        lambda t, m: (
            share(m["share"], t.captured) or true(t.share("compute") < 0.01, "it computed")
        ),
    ),
    (
        (
            rf"^ranks wait (?P<share>{N}) % of the time in collectives for the last one to come,"
            r" but no rank has so much more work than the others"
        ),
        _no_straggler,
    ),
    (
        rf"idle for (?P<share>{N}) % of the time, and why is not in the files \((?P<why>[^)]*)\)",
        _idle_unknown,
    ),
    (
        (
            rf"^other programs had the processor for (?P<share>{N}) % of the time, so what the host"
            r" does is open"
        ),
        _others_had,
    ),
    (
        (
            rf"^other programs had the processor while nothing else went on, for (?P<share>{N}) %"
            r" of the time"
        ),
        _others_alone,
    ),
    (
        r"no event on a device lasts",
        lambda t, m: true(all(e.end <= e.start for e in t.device_events), "some do"),
    ),
    (
        r"no device event is in the files, so where time goes is not known",
        lambda t, m: true(not t.device_events, f"{len(t.device_events)} are"),
    ),
    # What was judged.
    (
        r"^judged are (?:(?P<steady>\d+) of )?(?P<steps>\d+) steps"
        rf"(?P<first> \(the first left out\))?, a mean of (?P<ms>{N}) ms"
        rf" each{CLOCK}",
        _judged,
    ),
    (rf"^judged is (?P<steps>1) step of (?P<ms>{N}) ms{CLOCK}", _judged),
    (
        (
            rf"^judged are (?P<ms>{N}) ms between the first and the last (?:device )?event"
            r"(?P<less>, without what is left out)?"
        ),
        _between,
    ),
    (
        r"(?=\(step_budget\)(?P<without>; without the profiler [^:]*, of these)?: (?P<list>.*)$)",
        _listed,
    ),
    (
        rf"without the profiler about (?P<middle>{N}) ms, (?P<low>{N}) to (?P<high>{N}) by what its"
        rf" (?P<events>{N}) "
        "events cost here, of these",
        _known_without,
    ),
    (
        (
            r"^not sure, since the profiler alone may be the difference(?:: (?P<causes>.*?))?\."
            rf" {KNOWING}$"
        ),
        _profiler_alone,
    ),
    (
        r"^not sure, since (?P<name>[a-z-]+) (?:comes near|takes nearly as much as a cause must)$",
        _near,
    ),
    (
        r"^not sure, since rank (?P<rank>\d+) always comes last, and works as much as the others$",
        _always_last,
    ),
    (
        r"^not sure, since (?:time without a known cause|what is named like communication) (?:comes"
        r" near|takes nearly as "
        r"much as a cause must)$",
        lambda t, m: true(bool(t.rows), "nothing was judged"),
    ),
    (
        r"^not sure, since (?:that is little more than a cause must take|the device works for most"
        r" of the step: a batch a "
        r"bit larger ends it|this is one step alone|other programs may have had the processor"
        r" meanwhile|several small "
        r"causes add up)$",
        lambda t, m: true(bool(t.rows), "nothing was judged"),
    ),
    (
        r"^not sure, since kernels of graphs may be missing$",
        lambda t, m: true(t.replays[0] > 0, "no graph is here"),
    ),
    (
        rf"^not sure, since what (?P<tool>.*) itself costs the host is not known\. {KNOWING}$",
        _unknown_cost,
    ),
    (
        r"^steps: from each `(?P<name>.*)` to the next; step\(\) of the profiler was not called",
        _mark_of_steps,
    ),
    (rf"steps are uneven: (?P<low>{N}) to (?P<high>{N}) ms", _uneven),
    (rf"left out, step (?P<step>\d+): `(?P<name>.*)` takes (?P<ms>{N}) ms of it", _apart),
    (
        (
            rf"left out, (?P<ms>{N}) ms: work that was launched before waited for what is not in"
            r" the files"
        ),
        _left_out,
    ),
    (rf"graphs launched (?P<share>{N}) % of all device events(?:: no fault, a fact)?", _graphs),
    (
        rf"(?P<empty>{N}) of (?P<launches>{N}) launches of graphs have no kernel in the file"
        "(?P<verdict>, so when the device worked is not known)?",
        _empty_replays,
    ),
    (
        rf"the largest of (?P<launches>{N}) launches of graphs has (?P<most>{N}) kernels in the"
        r" file, the middle one "
        rf"(?P<usual>{N})",
        _unequal_replays,
    ),
    (
        r"^forward operators run again inside of backward, as with torch\.utils\.checkpoint, for"
        rf" (?P<share>{N}) % of the "
        r"(?P<what>recorded time|device's work) \(events\): that saves memory, and costs so much"
        r" where memory is no need",
        lambda t, m: first(
            share(m["share"], t.again),
            true(("device" in m["what"]) != t.on_host, "no device is here"),
        ),
    ),
    # Causes.
    (
        rf"calls that allocate or free: (?P<count>{N}) (?P<unit>a step|in all|in this time)",
        _count("allocating"),
    ),
    (rf"device idle in them for (?P<share>{N}) % of the time", _memory),
    (
        rf"copies to the device: (?P<count>{N}) (?P<unit>a step|in all|in this time)",
        _count("copies"),
    ),
    (rf"for (?P<count>{N}) calls? of the loader", _batches),
    (rf"copying back to the host (?P<share>{N}) %", _back),
    (
        (
            rf"exposed communication (?P<all>{N}) % of the time \(step_budget\), (?P<share>{N}) %"
            r" without the waiting"
        ),
        lambda t, m: _without_waiting(t, m) or share(m["all"], of_step(t, "exposed_communication")),
    ),
    (
        r"the loader runs in the training process \(num_workers=0\)|worker processes load",
        _who_loads,
    ),
    (rf"loading starts (?P<list>{N} [\w:.]+(?:, {N} [\w:.]+)*) a step", _starts),
    (
        r"(?:idle while the host started nothing|no operator ran) for 1 ms or longer:"
        rf" (?P<share>{N}) % of the time, "
        rf"(?P<ms>{N}) ms (?P<unit>a step|in all|in this time)",
        _silence,
    ),
    (r"most of it in your part `(?P<name>.*?)`(?=;|$)", _silent_part),
    (
        r"^whether data come late: no DataLoader was at work, and no range is called data$",
        lambda t, m: true(not named(t.events("range"), DATA), "one is"),
    ),
    (
        (
            r"^not sure, since a loop without a DataLoader makes its batches there, too: with"
            r" stacks the function is named$"
        ),
        lambda t, m: true(bool(named(t.events("range"), "between steps")), "no range is called so"),
    ),
    (r"most of the loading in (?P<name>.*?)(?:, called from .*)? \(call stacks\)", _loading_in),
    (r"most of it in (?P<name>.*?)(?:, called from .*)? \(call stacks\)", _silent_in),
    (
        r"whether the thread had a processor then was not recorded",
        lambda t, m: true(t.processor("off") is None, "it was"),
    ),
    (
        (
            rf"without a processor for (?P<off>{N}) % of the time(?:, for (?P<stolen>{N}) % because"
            r" other programs had it)?"
        ),
        _processor,
    ),
    (rf"ranges of the compiler (?P<share>{N}) % of the time", _compiler),
    (
        r"compiled kernels or ranges: (?P<which>yes|none)",
        lambda t, m: true(
            t.is_named(COMPILED) == (m["which"] == "yes"), f"compiled: {t.is_named(COMPILED)}"
        ),
    ),
    (rf"calls that wait: (?P<count>{N}) (?P<unit>a step|in all|in this time)", _count("waiting")),
    (
        rf"idle in them (?P<inside>{N}) %(?:, most in (?P<call>\w+))?, from their end to the next "
        rf"work (?P<behind>{N}) % of the time",
        _waits,
    ),
    (rf"(?P<name>aten::\S+) tried out a library's kernels for (?P<ms>{N}) ms", _search),
    (
        rf"(?P<count>{N}) of (?P<all>{N}) launches are slow, each the first of its kernel,"
        rf" (?P<ms>{N}) ms together where "
        rf"the median takes (?P<usual>{N}) µs",
        _slow,
    ),
    (
        rf"the first step took (?P<times>{N}) times the others' median(?: \(step_budget\),"
        rf" (?P<alone>{N}) times without what other programs took of each step)?",
        _first_step,
    ),
    (
        rf"the longest idle interval (?P<what>[a-z ,]*), (?P<ms>{N}) ms, is (?P<share>{N}) % of"
        r" these"
        r"(?:, with the host in (?P<call>\w+))?(?P<new>, and ends with the first event of its"
        r" name)?",
        _gap,
    ),
    (
        r"one step or less is here, and no launch is slow",
        lambda t, m: true(t.first_step is None and (t.on_host or not t.slow[0]), f"{t.first_step}"),
    ),
    (
        rf"in loops over operators below 20 µs, and between these: (?P<share>{N}) % of the time",
        _looped,
    ),
    (rf"the most frequent: (?P<count>{N}) (?P<name>\S+) a step", _frequent),
    (
        rf"^(?P<name>.+?) takes (?P<share>{N}) % of what the operators take"
        r"(?:, mostly in (?P<where>.+) \(call stacks\))?",
        _own_time,
    ),
    (
        rf"idle because nothing was launched, without another reason: (?P<share>{N}) % of the time"
        r"(?P<whose> of the rank that waits least)?",
        _not_launched,
    ),
    (rf"(?P<share>{N}) % (?:of that )?under (?P<name>[^;,]+)", _under),
    (rf"(?P<count>{N}) kernels? (?P<unit>a step|in all|in this time)", _count("kernels")),
    (rf"^(?P<name>.*) has (?P<share>{N}) % of all kernel time, in (?P<calls>{N}) calls", _kernel),
    (
        r"no log of (?:the )?power(?: and its cap is here)?|no power cap is in the log",
        lambda t, m: true(
            not any("power_cap" in name for name in t.recording.samples)
            and ("no log" not in m[0] or not any("power" in one for one in t.recording.samples)),
            "one is",
        ),
    ),
    (
        rf"^(?P<share>{N}) % of all kernel time is in kernels with names like communication, which"
        r" is counted as compute "
        r"since it is not known: (?P<name>.*) for one",
        _like_communication,
    ),
    # Ranks.
    (r"one rank is here, which can't tell waiting for others from transfer", _one_rank),
    (
        r"Rank (?P<rank>\d+) came last in (?P<last>\d+) of (?P<all>\d+) collectives and caused"
        rf" (?P<caused>{N}) % of all "
        rf"waiting: each time the others waited (?P<mean>{N}) ms for it on average",
        _came_last,
    ),
    (
        rf"It waited (?P<own>{N}) ms itself, the others (?P<others>{N}) ms \(median\)",
        _straggling("wait"),
    ),
    (
        rf"It computed for (?P<own>{N}) ms, the others for (?P<others>{N}) ms",
        _straggling("computation"),
    ),
    (
        (
            r"so .*?(?:is not slower: it gets its work later|computes longer) \(idle for"
            rf" (?P<idle>{N}) % of the time\)"
        ),
        _slower,
    ),
    (rf"; it was idle for (?P<idle>{N}) % of the time", _idle_late),
    (
        (
            r"Only (?P<here>\d+) of (?P<size>\d+) ranks are here|^(?P<here_>\d+) of (?P<size_>\d+)"
            r" ranks:"
        ),
        lambda t, m: true(
            (int(m["here"] or m["here_"]), int(m["size"] or m["size_"]))
            == (len(t.ranks), t.recording.world_size),
            f"{len(t.ranks)} of {t.recording.world_size}",
        ),
    ),
    (
        rf"spends (?:(?P<more>{N}) % of its time more|no more time) than the others"
        r"(?: on work and waits of its own, most of it (?P<part>[a-z -]+?)(?: \(|:))?",
        _excess,
    ),
    (rf"Ranks wait for each other in (?P<share>{N}) % of their time only", _waiting),
    (
        rf"Ranks wait for each other in (?P<share>{N}) % of their time, and no single one is to"
        r" blame: (?:none of them came last alone"
        rf"|rank (?P<rank>\d+) caused the most, (?P<caused>{N}) % of it)",
        _in_turn,
    ),
    (r"whether rank (?P<rank>\d+) is slower", _always_last),
    # What the files can't tell.
    (r"no GPU took part", lambda t, m: true(t.on_host, "one did")),
    (
        r"^no device events: no steps, no idle time",
        lambda t, m: true(not t.device_events and not t.rows, "some are"),
    ),
    (
        r"no calls of the host",
        lambda t, m: true(not t.events("call") and not t.events("operator"), "some are"),
    ),
    (
        r"no calls of the runtime",
        lambda t, m: true(not t.events("call") and t.events("operator"), "some are"),
    ),
    (
        rf"no launch record for (?P<share>{N}) % of the device's work",
        lambda t, m: share(m["share"], t.unlinked),
    ),
    (
        r"^a compiled backward: whether it computes parts of forward again, to save memory",
        lambda t, m: true(
            t.is_named(COMPILED) and t.is_named(TRAINING), "nothing is compiled, or trained"
        ),
    ),
    (r"^no steps\b", lambda t, m: true(not t.marked, "some are marked")),
    (rf"--mark '(?P<name>[^']*)', which comes (?P<count>{N}) times", _mark),
    (
        r"^(?P<steps>\d+) of many steps",
        lambda t, m: true(int(m["steps"]) == t.steps, f"{t.steps} are here"),
    ),
    (rf"launches of the kernels in graphs \((?P<share>{N}) % of all\)", _graphs),
    (r"no hardware counters", lambda t, m: true(not t.recording.counters, "some are")),
    (
        r"the counters that are here are not those of a roofline",
        lambda t, m: true(t.recording.counters, "none are"),
    ),
    (
        r"no power cap beside the power of busy devices",
        lambda t, m: true(
            "power_watts" in t.recording.samples and "power_cap_watts" not in t.recording.samples,
            "or is",
        ),
    ),
    (rf"(?P<part>{'|'.join(PARTS)}) (?P<share>{N}) %", _part),
]
"""Expression -> what has to be true. The first that matches a piece of a sentence takes it."""

CLAIM = re.compile(r"\d|\b(no|none|not|nothing|never)\b", re.IGNORECASE)
"""A number or a denial."""


def wrong_in(truth: Truth, text: str) -> list[str]:
    """What is wrong in a sentence, or in it unchecked."""
    found, rest = [], text.replace(", not sure", "")  # the verdict's own doubt
    for pattern, check in CHECKS:
        for match in [*re.finditer(pattern, rest)]:
            if wrong := check(truth, match):
                found.append(f"{match[0] or match[1]!r}: {wrong}")
        rest = re.sub(pattern, "", rest)
    if left := CLAIM.search(rest):
        found.append(f"nobody checks {left[0]!r} in {rest!r}")
    if re.search(r"\ba step\b", text) and not truth.marked:
        found.append("`a step`, and nothing marks one")
    return [f"{text!r}: {one}" for one in found]


def bare(label: str, text: str) -> str:
    """A sentence without the command in brackets at its end, and without the cause's name before
    it.
    """
    if label == "not in the files" and text.endswith(")"):
        depth = 0
        for place in range(len(text) - 1, -1, -1):
            depth += (text[place] == ")") - (text[place] == "(")
            if depth == 0:
                command = text[place - 1] == " " and "%" not in text[place:]
                return text[: place - 1] if command else text
    return text


ADVICE: list[tuple[str, Callable[[Truth], bool]]] = [
    (r"torch\.compile", lambda t: not t.is_named(COMPILED)),
    (r"optimizer", lambda t: t.is_named(TRAINING)),
    (
        r"\bpython\b|prof\.step|torch\.",
        lambda t: bool(t.events("operator")) or t.recording.tool == "torch.profiler",
    ),
    (r"python train\.py", lambda t: t.is_named(TRAINING) or not t.events("operator")),
    (r"\./program", lambda t: not t.events("operator") and t.recording.tool != "torch.profiler"),
    (r"CUDAGraph|hipGraphLaunch", lambda t: not t.graph_share),
    (r"No DataLoader is at work in most of this time", lambda t: (loading_by_loader(t) or 0) < 0.5),
    (r"Time the loader alone", lambda t: bool(named(t.events("range"), DATA))),
    (r"\b((?<!no )GPU|device|rocprof|amd-smi)", lambda t: not t.on_host),
]
"""Words of advice and commands -> what has to be true of the run."""


def wrong_advice(truth: Truth, text: str) -> Iterator[str]:
    """Advice that does not fit the run."""
    for pattern, fits in ADVICE:
        if re.search(pattern, text) and not fits(truth):
            yield f"{text!r} speaks of {pattern}"


__all__ = ["CHECKS", "KNOWING", "bare", "wrong_advice", "wrong_in"]

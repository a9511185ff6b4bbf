"""From signs to a diagnosis, what the files can't tell, and both as lines for people and as JSON
for programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tidyprof.analyses.common import each, four_digits
from tidyprof.diagnosis.causes import (
    CAUSES,
    COUNTERS,
    LIMIT,
    LIMITS,
    TORCH,
    Cause,
    of_vendor,
    one_gap,
    part_in_words,
    percent,
    rank_words,
)
from tidyprof.diagnosis.indicators import Signs, signs_of
from tidyprof.diagnosis.on_device import DEVICE_BUSY_PARTS, SILENT_NS
from tidyprof.diagnosis.processor import BUSY, CPU_STEAL
from tidyprof.diagnosis.profiler_overhead import LEAST_NS, MISSING, MOST_NS, NEARLY, Observer, views
from tidyprof.diagnosis.recordings import AMD, Kind, RecordingSigns, kind_of, recording_signs
from tidyprof.errors import SAME
from tidyprof.tables.contract import Profile

ROCPROFV3 = (
    "rocprofv3 --runtime-trace --output-format csv --output-directory out -- python train.py"
)
MONITOR = "amd-smi monitor -p -t -u -m"

LISTING = (
    "python -m tidyprof summary FILE lists the operators that take the time: fewer, larger or"
    " cheaper ones"
)
"""What to do where a processor computes all the time."""

RECORD_HOST = {
    "torch.profiler": TORCH,
    "rocmProfileData": "runTracer.sh -o trace.rpd python train.py",
}
"""Tool -> how it records the host as well; for others rocprofv3. All hold for ROCm 6.4 to 10.2."""

COMMANDS = (ROCPROFV3, MONITOR, LIMITS, COUNTERS, RECORD_HOST["rocmProfileData"])
"""The commands to type into a shell."""


def always_last(signs: Signs) -> int | None:
    """The rank that came last in every collective; None where ranks take turns, or can't be
    compared.
    """
    table = signs.rank_table
    if table is None or table.attrs["straggler"] is None:
        return None
    worst = table[table["rank"] == table.attrs["straggler"]].iloc[0]
    return int(worst["rank"]) if worst["arrived_last"] == worst["compared"] else None


def missing(signs: Signs) -> tuple[tuple[str, ...], str]:
    """Sentences on what the files can't tell, most important first, and the command for the first
    of them.
    """
    host = RECORD_HOST.get(signs.tool, ROCPROFV3)
    gaps = [*_host(signs, host), *_steps(signs), *_ranks(signs, host), *_compiled(signs)]
    if not signs.on_host:
        gaps += [*_device(signs, host)]
    gaps = [(text, of_vendor(command, signs)) for text, command in gaps]
    sentences = tuple(f"{text} ({command})" if command else text for text, command in gaps)
    first_command = gaps[0][1] if gaps else ""
    return sentences, first_command


Gaps = Iterator[tuple[str, str]]
"""What is not known, and the command that would record it."""


def _host(signs: Signs, host: str) -> Gaps:
    if signs.on_host:
        yield "no GPU took part: how one would do", ""
    elif not signs.shares:
        yield "no device events: no steps, no idle time", ROCPROFV3
    elif not _heard(signs):
        yield "no calls of the host: why the device was idle", host
    elif not signs.calls:
        yield "no calls of the runtime: whether the host waited in them", host
    elif signs.unlinked >= 0.005:
        share = 100 * signs.unlinked
        yield (
            f"no launch record for {share:.0f} % of the device's work: when it was asked for",
            host,
        )


def _steps(signs: Signs) -> Gaps:
    if signs.shares and not signs.marked:
        is_torch = signs.operators or signs.tool.startswith("torch")
        mark = "call prof.step()" if is_torch else "mark each with a range of roctx"
        text = f"no steps: whether something comes once or in each step; {mark}"
        for name, count in signs.offered[:1]:
            text += f", or give --step-marker '{name}', which comes {count:,} times"
        yield text, TORCH if signs.operators else ""
    elif signs.shares and signs.steps < 3:
        yield f"{signs.steps} of many steps: whether others are alike; record three or more", TORCH


def _ranks(signs: Signs, host: str) -> Gaps:
    if signs.world_size and signs.ranks < signs.world_size:
        yield (
            f"{signs.ranks} of {signs.world_size} ranks: who waits for whom; record every rank",
            host,
        )
    if (last := always_last(signs)) is not None:
        where = "processor" if signs.on_host else "GPU"
        text = (
            f"whether rank {last} is slower, or began later once and stays behind: give it another"
            f" {where}, and compare"
        )
        yield text, "" if signs.on_host else host


def _compiled(signs: Signs) -> Gaps:
    if signs.host.compiled and signs.host.trains and not signs.again:
        yield "a compiled backward: whether it computes parts of forward again, to save memory", ""


def _device(signs: Signs, host: str) -> Gaps:
    if signs.graph_share > 0:
        yield f"launches of the kernels in graphs ({100 * signs.graph_share:.0f} % of all)", host
    if signs.roof_share is None:
        what = (
            "the counters that are here are not those of a roofline"
            if signs.counted
            else "no hardware counters"
        )
        yield f"{what}: how near kernels are to their roofs", COUNTERS
    if signs.capped_share is None and signs.has_power:
        yield "no power cap beside the power of busy devices: whether clocks were held back", LIMITS
    elif signs.capped_share is None:
        yield "no log of power: whether clocks were held back", MONITOR


NO_BOTTLENECK, INCONCLUSIVE = "no-bottleneck", "inconclusive"

MARGIN = 1.5
"""A cause is called sure where no other cause that fired comes within this factor of it: budgets of
two tools, or with and without a profiler, differ by less.
"""

CLEAR = 1.25
"""Factor by which a share must pass LIMIT, or stay below it, for the verdict to be sure: shares are
means of a few steps.
"""

ONCE = 0.4
"""Share that a cause must have to be called sure in a recording of one step, which may be an odd
step.
"""

COMPUTING = 0.7
"""A run that no cause limits surely computes if it does so for this share of the time: below it
several small causes may add up.
"""

UNEVEN = 1.25
"""The evidence says that steps differ where the longest steady step is so many times the
shortest.
"""

LINKED = 0.5
"""Up to this share of device work without a launch record, idle time can be given to the host."""

FAR = 30.0
"""No traced step lasts so many times the untraced one; a library's search has made one 6 times as
long.
"""

KEEPS_UP = 0.55
"""Where the device works for this share of the step the host nearly keeps up with it. Launch-bound
is never sure then, since a batch a bit larger, or a processor a bit quicker, ends it.
"""

NAMED = 0.05
"""Kernels with names like communication are mentioned from this share of the time on."""

CAPTURED = 0.5
"""Where this share of the launches was only recorded into a graph, the device's idleness means
nothing.
"""


@dataclass(frozen=True)
class Alternative:
    """Another cause that lengthens the same part, or that takes time, too. why -- what rules it
    out, or its share.
    """

    name: str
    fired: bool
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """What limits a run.

    cause    -- a name of causes.CAUSES, `no-bottleneck` or `inconclusive`; title says it in words,
                share of the time (0 to 1).
    confident -- whether nothing else comes near it. evidence -- sentences with numbers, each naming
                the analysis that they are from.
    alternatives -- other causes, with what rules them out. unknown -- what the files can't tell.
    next_step -- what to do or to record next. origins -- where the numbers come from. signs -- all
                 the numbers.
    """

    cause: str
    title: str
    share: float
    confident: bool
    evidence: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    unknown: tuple[str, ...]
    next_step: str
    origins: tuple[str, ...]
    signs: Signs


class WrongStepError(ValueError):
    """The length that the user gave for a step can't be that of the recorded steps without a
    profiler.
    """


def triage(
    profiles: Profile | Iterable[Profile], mark: str | None = None, step_ms: float | None = None
) -> Diagnosis:
    """Diagnose one run: its profile, those of its ranks, or those of several tools.

    Device events of several tools are not mixed: the profile that knows most of the host is judged,
    with the others of its tool; system logs and counters of all others add to it. `mark` is the
    range or operator with which each step begins, see `tidyprof.steps`; `step_ms` is what a step
    takes without a profiler, from any log. Raises ValueError without a profile, and as
    `step_budget` and `ranks` do; WrongStepError, a ValueError, for a `step_ms` that no step can
    take or that is far from the recorded steps, and where no step is marked.

    >>> found = tidyprof.triage(tidyprof.read("trace.json.gz"))
    >>> found.cause, round(found.share, 2)
    ('launch-bound', 0.56)
    """
    given = list(each(profiles))
    kinds = [kind_of(profile) for profile in given]
    judged = judged_ones(kinds)
    return diagnosis_of(
        [recording_signs(one, kinds[i], i in judged, mark) for i, one in enumerate(given)], step_ms
    )


def diagnosis_of(recordings: Sequence[RecordingSigns], step_ms: float | None) -> Diagnosis:
    """`triage` of profiles that were reduced where they were read, with its errors."""
    if not recordings:
        raise ValueError("there is no profile to diagnose")
    judged = judged_ones([one.kind for one in recordings])
    others = [one for i, one in enumerate(recordings) if i not in judged]
    if step_ms is not None and not LEAST_NS <= 1e6 * step_ms < MOST_NS:
        raise WrongStepError(f"no step takes {step_ms:g} ms")
    signs = signs_of(
        [recordings[i] for i in sorted(judged)], others, None if step_ms is None else 1e6 * step_ms
    )
    if step_ms is not None and signs.shares and not signs.marked:
        raise WrongStepError(
            "no steps are marked, so that the length of one can't be held against any"
        )
    if step_ms is not None and signs.step_ns and not 1 / FAR < 1e6 * step_ms / signs.step_ns < FAR:
        traced = four_digits(signs.step_ns / 1e6)
        raise WrongStepError(
            f"the recorded steps take {traced} ms, which is far from {step_ms:g} ms"
        )
    found = judge(signs, tuple(dict.fromkeys(one.origin for one in recordings)))
    ignored = tuple(dict.fromkeys(line for one in recordings for line in one.ignored))
    return _with_ignored(found, ignored)


def _with_ignored(found: Diagnosis, ignored: tuple[str, ...]) -> Diagnosis:
    """The diagnosis, with the files that were not read among what is unknown; where it can't tell,
    they come first in the next step.
    """
    found = replace(found, unknown=(*ignored, *found.unknown))
    if found.cause == INCONCLUSIVE and any(not line.endswith(f"({SAME})") for line in ignored):
        found = replace(
            found,
            next_step=(
                f"First see to what was not read. If it is no part of the run: {found.next_step}"
            ),
        )
    return found


def without_ranks(found: Diagnosis, broken: Sequence[str]) -> Diagnosis:
    """The diagnosis, saying that these ranks are missing because their files can't be read. broken
    -- such as `rank 3`.
    """
    if not broken:
        return found
    one_left = found.signs.ranks < 2
    lacking = (
        "who waits for whom" if one_left else f"whether the others wait for {' or '.join(broken)}"
    )
    line = f"{_are(broken, 'missing')}: {lacking}; record again, or copy the whole file"
    return replace(
        found, unknown=(line, *found.unknown), signs=replace(found.signs, broken=tuple(broken))
    )


def _are(names: Sequence[str], what: str) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last} are {what}" if first else f"{last} is {what}"


def judged_ones(kinds: Sequence[Kind]) -> set[int]:
    """Numbers of the profiles that are judged: those with a timeline of the tool that knows most of
    the host; where none has device events, those of a run without a GPU.
    """
    timed = [i for i, kind in enumerate(kinds) if kind.has_timeline]
    if not timed:
        return {i for i, kind in enumerate(kinds) if kind.on_host}
    best = max(timed, key=lambda i: kinds[i].host_events)
    # Several files of one tool are taken for ranks of one run, which only their ranks prove.
    same = {i for i in timed if kinds[i].tool == kinds[best].tool}
    return same if all(kinds[i].has_rank for i in same) else {best}


def judge(signs: Signs, origins: tuple[str, ...]) -> Diagnosis:
    """The diagnosis of these signs, for the step without the profiler.

    Where the length of that is a range, a sure diagnosis is the same at both ends of it.
    """
    found, *ends = (_judged(view, origins) for view in views(signs))
    if doubt := _doubt(found, ends):
        return replace(_with_doubt(found, doubt), next_step=_how_to_know(found))
    return found


DOUBT = "not sure, since"
"""Begins the sentence of the evidence which says why the diagnosis is not sure."""


def _with_doubt(found: Diagnosis, reason: str) -> Diagnosis:
    """The diagnosis, not sure for this reason, which replaces an earlier reason; unchanged for an
    empty one.
    """
    if not reason:
        return found
    first, *others = (text for text in found.evidence if not text.startswith(DOUBT))
    return replace(found, confident=False, evidence=(first, f"{DOUBT} {reason}", *others))


def _doubt(found: Diagnosis, ends: Sequence[Diagnosis]) -> str:
    """Why the profiler, or steps that are not typical, leave open what limits the run; empty if
    neither does.
    """
    signs = found.signs
    if signs.untypical:
        return "the recorded steps are not typical: record more of them"
    if signs.observer.long_share >= LIMIT:
        return (
            f"single long steps take {percent(signs.observer.long_share)} of the time, and none is"
            " judged here"
        )
    if signs.observer.unprofiled_step_ns is not None and not ends:
        return ""
    causes = dict.fromkeys(end.cause for end in (*ends, found))
    if len(causes) > 1:
        return f"the profiler alone may be the difference: {' or '.join(causes)}. {KNOWING}"
    if any(not end.confident for end in ends) and found.confident:
        return f"the profiler alone may be the difference. {KNOWING}"
    if found.cause == "launch-bound" and found.confident and signs.observer.is_open:
        return f"what {signs.tool} itself costs the host is not known. {KNOWING}"
    return ""


MORE_STEPS = "such as tidyprof run --steps 20"

KNOWING = "What a step takes without it decides: --step-time-ms MS"


def _how_to_know(found: Diagnosis) -> str:
    if found.signs.untypical:
        return (
            f"Record more steps, {MORE_STEPS}, and see whether the step without the profiler is of"
            " this program, batch and machine."
        )
    if found.signs.observer.long_share >= LIMIT:
        return (
            "Find out what only some steps do, such as a validation or a checkpoint. Then:"
            f" {found.next_step}"
        )
    return (
        "Take the time of a step without a profiler from any log, and give it: --step-time-ms MS."
        f" Then: {found.next_step}"
    )


def _judged(signs: Signs, origins: tuple[str, ...]) -> Diagnosis:
    """The diagnosis of one view of the signs. The largest cause leads; those that describe a
    computing device come last.
    """
    fired = sorted(
        (cause for cause in _known(signs) if cause.share(signs) >= LIMIT),
        key=lambda one: (one.is_rest, -_weight(one, signs)),
    )
    straggling = any(cause.name == "straggler" for cause in fired)
    # Without anything of the host the one gap that is a start-up lies in this part.
    other = signs.shares.get("other", 0.0) - (0.0 if _heard(signs) else one_gap(signs))
    unexplained = max(other, signs.shares.get("unseen", 0.0), 0.0 if straggling else signs.waiting)
    # First what makes the shares themselves worthless: lost kernels, a processor that others had,
    # time without a cause. Only then do causes count.
    if empty := _empty_replays(signs):
        return replace(
            _diagnosis(INCONCLUSIVE, empty, 0.0, False, signs, [], origins),
            next_step=_record_graphs(signs),
        )
    if taken := _taken(signs, fired):
        return replace(
            _diagnosis(INCONCLUSIVE, taken, 0.0, False, signs, [], origins), next_step=QUIET
        )
    if reason := _unclear(signs, fired, unexplained):
        known = [] if signs.captured >= CAPTURED else fired
        found = _diagnosis(INCONCLUSIVE, reason, 0.0, False, signs, known, origins)
        return replace(found, next_step=_record_graphs(signs)) if replay_words(signs) else found
    if not fired:
        title = f"no known cause takes {percent(LIMIT)} of the time or more"
        found = _diagnosis(
            NO_BOTTLENECK, title, signs.shares["compute"], True, signs, fired, origins
        )
        return _with_doubt(found, _unsure_of_health(signs, unexplained))
    found = _diagnosis(
        fired[0].name, fired[0].title, fired[0].share(signs), True, signs, fired, origins, fired[0]
    )
    found = _with_doubt(found, reason := _unsure(signs, fired, unexplained))
    return (
        replace(found, next_step=f"{QUIET} Then: {found.next_step}")
        if reason == OTHERS and signs.stolen
        else found
    )


UNEQUAL = 2
"""Where the largest replay has so many times the kernels of the median one, others may lack theirs:
pieces of one model have had 4, 12 and 15.
"""


def replay_words(signs: Signs) -> str:
    """Which kernels of graphs the file lacks, or may lack; empty where nothing says so."""
    launches, empty, usual, most = signs.replays
    if empty:
        return f"{empty:,} of {launches:,} launches of graphs have no kernel in the file"
    if most >= max(UNEQUAL * usual, 1):
        return (
            f"the largest of {launches:,} launches of graphs has {most:,} kernels in the file, the"
            f" middle one {usual:,}"
        )
    return ""


def _record_graphs(signs: Signs) -> str:
    """What to do where replays of graphs lack their kernels."""
    if signs.vendor != AMD:
        return "Record without graphs."
    return (
        "Record with a torch that records through rocprofiler-sdk (2.12 or newer), or without"
        " graphs: docs/known-issues.md has the fault, sgl-project/sglang#35390."
    )


def _empty_replays(signs: Signs) -> str:
    """Why nobody knows when the device worked; empty where it was busy, or where most replays have
    kernels.
    """
    idle = 1 - sum(signs.shares.get(part, 0.0) for part in DEVICE_BUSY_PARTS)
    if not signs.replays.empty or 2 * signs.replays.empty < signs.replays.launches or idle < LIMIT:
        return ""
    return f"{replay_words(signs)}, so when the device worked is not known"


QUIET = (
    "Record again on a quiet machine, or on processors of your own: top shows who else has them."
)
"""What to do where other programs had the processor."""

OTHERS = "other programs may have had the processor meanwhile"
"""Why the host is not surely to blame."""


def _taken(signs: Signs, fired: Sequence[Cause]) -> str:
    """Why other programs leave open what the host does itself; empty if they don't, or if the host
    loses no time.
    """
    lost = signs.shares.get(CPU_STEAL, 0.0)
    blamed = lost >= LIMIT or any(not cause.is_rest for cause in fired)
    stolen = signs.stolen or 0.0
    if stolen >= BUSY and blamed:
        share = stolen if signs.off is None else min(stolen, signs.off)
        return (
            f"other programs had the processor for {percent(share)} of the time, so what the host"
            " does is open"
        )
    if lost >= LIMIT and not fired:
        return (
            f"other programs had the processor while nothing else went on, for {percent(lost)} of"
            " the time"
        )
    return ""


def _weight(cause: Cause, signs: Signs) -> float:
    """A share to rank causes by.

    Shares of steady steps count for the time of these steps, where a first step took more. Without
    steps, idleness in the one long interval of a start-up is no other cause as well. And a host
    that waits can't run ahead: as long as it waits launches are late, so waiting ranks before late
    launches.
    """
    share = cause.share(signs)
    if cause.name == "startup":
        return share
    if cause.name == "sync-bound" and share >= LIMIT:
        share = max(share, signs.shares.get("launch_bound", 0.0))
    if not signs.marked:
        once = one_gap(signs)
        return share - once if once >= LIMIT and cause.part == "idle" else share
    if signs.first_step is None or signs.steady == signs.steps:
        return share
    return share * (signs.steps - 1) / (signs.steps - 1 + signs.first_step)


MEANWHILE = ("outside-torch", "input-bound", "launch-bound")
"""Causes that a thread which stands in line for a processor looks like."""

BETWEEN = "between steps"
"""The range into which `tidyprof run` puts what a loop does from its optimizer's step to the call
of its model.
"""

UNKNOWN, LOOKALIKE = "time without a known cause", "what is named like communication"
"""What can come near a cause without being one."""


def _unsure(signs: Signs, fired: Sequence[Cause], unexplained: float) -> str:
    """Why the largest cause is not sure; empty if nothing else comes near it or can explain it."""
    best, *rest = fired
    share = best.share(signs)
    others = [
        (_weight(other, signs), other.name) for other in rest if not other.is_rest or best.is_rest
    ]
    near, name = max([(unexplained, UNKNOWN), (_like_communication(signs), LOOKALIKE), *others])
    if share < MARGIN * near:
        return f"{name} comes near"
    if share < CLEAR * LIMIT:
        return "that is little more than a cause must take"
    if (
        best.name == "launch-bound"
        and sum(signs.shares[part] for part in DEVICE_BUSY_PARTS) >= KEEPS_UP
    ):
        return "the device works for most of the step: a batch a bit larger ends it"
    if (
        signs.shares
        and not best.is_rest
        and best.name != "startup"
        and signs.steady < 2
        and share < ONCE
    ):
        return "this is one step alone"
    if replay_words(signs) and best.part == "idle":
        return "kernels of graphs may be missing"
    untraced = signs.observer.unprofiled_step_ns
    if best.name == "outside-torch" and untraced is not None and untraced < SILENT_NS:
        return "without the profiler a whole step is shorter than the silence that counts"
    if (
        best.name == "outside-torch"
        and signs.host.silent_part == BETWEEN
        and not _knows_loading(signs)
    ):
        return (
            "a loop without a DataLoader makes its batches there, too: with stacks the function is"
            " named"
        )
    if best.name in MEANWHILE:
        # What other programs took besides may all lie in this part.
        silent = signs.on_host and best.name == "outside-torch"
        taken = signs.off if signs.stolen is None and silent else signs.stolen
        if taken is None and silent:
            return OTHERS
        if share - max((taken or 0.0) - signs.shares.get(CPU_STEAL, 0.0), 0.0) < CLEAR * LIMIT:
            return OTHERS
    if best.name == "straggler" or always_last(signs) is None or signs.waiting < LIMIT:
        return ""
    return f"rank {always_last(signs)} always comes last, and works as much as the others"


def _unsure_of_health(signs: Signs, unexplained: float) -> str:
    """Why a run without a cause is not surely healthy; empty if it is."""
    lost = {cause.name: cause.share(signs) for cause in _known(signs) if not cause.is_rest}
    lost |= {UNKNOWN: unexplained, LOOKALIKE: _like_communication(signs)}
    name = max(lost, key=lambda one: lost[one])
    if CLEAR * lost[name] > LIMIT:
        return f"{name} takes nearly as much as a cause must"
    if signs.shares["compute"] < COMPUTING:
        return "several small causes add up"
    return ""


def _like_communication(signs: Signs) -> float:
    """Share of the time in kernels whose names look like communication that tidyprof does not
    know.
    """
    return signs.alike.amount * signs.shares.get("compute", 0.0)


def _known(signs: Signs) -> list[Cause]:
    """The causes that this kind of run can have."""
    return [cause for cause in CAUSES if ("host" if signs.on_host else "device") in cause.where]


def _unclear(signs: Signs, fired: Sequence[Cause], unexplained: float) -> str:
    """Why nobody can tell what limits the run; empty if somebody can."""
    if not signs.shares:
        return "" if any(cause.is_rest for cause in fired) else _no_device(signs)
    if not signs.step_ns:
        return "no event on a device lasts, so there is no time to divide up"
    if signs.captured >= CAPTURED:
        return (
            f"{percent(signs.captured)} of the launches were recorded into a graph and not run, so"
            " the device had nothing to do"
        )
    largest = max((cause.share(signs) for cause in fired if cause.part != "device"), default=0.0)
    if (unseen := signs.shares.get("unseen", 0.0)) >= LIMIT and unseen > largest:
        return (
            f"{percent(unseen)} of a step without the profiler have no counterpart in the recorded"
            " steps"
        )
    if unexplained >= LIMIT and unexplained > max(largest, signs.shares.get("other", 0.0)):
        return (
            f"ranks wait {percent(unexplained)} of the time in collectives for the last one to"
            " come, but no rank has so much more work than the others: they are late in turn, or"
            " one lags since its start"
        )
    if unexplained >= LIMIT and unexplained > largest:
        if signs.unlinked:
            why = f"{percent(signs.unlinked)} of the device's work has no launch record"
        else:
            why = "work was queued" if _heard(signs) else "no call of the host is in them"
        return (
            f"the device is idle for {percent(unexplained)} of the time, and why is not in the"
            f" files ({why})"
        )
    if signs.unlinked > LINKED and unexplained >= LIMIT:
        return (
            f"{percent(signs.unlinked)} of the device's work has no launch record, so idle time has"
            " no owner"
        )
    return ""


def _no_device(signs: Signs) -> str:
    if signs.foreign:
        category, count = signs.foreign
        return (
            f"{count:,} events of the category {category} are of an accelerator that tidyprof does"
            " not know"
        )
    return "no device event is in the files, so where time goes is not known"


def _diagnosis(
    name: str,
    title: str,
    share: float,
    confident: bool,
    signs: Signs,
    fired: Sequence[Cause],
    origins: tuple[str, ...],
    cause: Cause | None = None,
) -> Diagnosis:
    evidence = (cause.finding(signs),) if cause else ()
    evidence += tuple(_time_words(signs)) if signs.shares else ()
    if name in (NO_BOTTLENECK, "operator-overhead") and signs.largest_operator.name:
        evidence += (_operator_words(signs),)
    if signs.rank_table is not None and (cause is None or cause.part != "communication"):
        evidence += (rank_words(signs),)
    alternatives = tuple(
        Alternative(other.name, other in fired, other.finding(signs))
        for other in _known(signs)
        if other is not cause
        and (other in fired or (cause is not None and _ruled_out(other, cause, signs)))
    )
    unknown, command = missing(signs)
    if name == "outside-torch" and not _knows_loading(signs):
        unknown = (
            "whether data come late: no DataLoader was at work, and no range is called data",
            *unknown,
        )
    command = LISTING if signs.on_host else command
    advice = (
        cause.advice(signs)
        if cause
        else (command or "Measure the run as it is before you change it: tidyprof gate.")
    )
    return Diagnosis(
        name, title, share, confident, evidence, alternatives, unknown, advice, origins, signs
    )


def _heard(signs: Signs) -> bool:
    return signs.on_host or bool(signs.calls or signs.operators)


def _ruled_out(other: Cause, cause: Cause, signs: Signs) -> bool:
    """Whether a cause that did not fire is a rival that the files rule out: without the host's
    calls they can't, without a loader in them nobody knows when data were made, and one rank alone
    does not say for whom it waits.
    """
    if other.name == "input-bound" and not _knows_loading(signs):
        return False
    if other.name == "straggler" and signs.rank_table is None:
        return False
    return other.part == cause.part and (other.part != "idle" or signs.on_host or signs.calls > 0)


def _knows_loading(signs: Signs) -> bool:
    """Whether the files say when the host was loading data, or what it did instead."""
    return signs.host.loading is not None or bool(signs.host.silent_in)


def _operator_words(signs: Signs) -> str:
    """Where a processor that only computes spends its time, which nothing else in the report of a
    healthy run says.
    """
    name, share, where = signs.largest_operator
    inside = f", mostly in {where} (call stacks)" if where else ""
    return f"{name} takes {percent(share)} of what the operators take{inside} (operators)"


def _time_words(signs: Signs) -> Iterator[str]:
    """What was judged, its parts, and what is odd about the steps and the work."""
    yield _judged_words(signs)
    yield from _step_words(signs)
    yield from _work_words(signs)


def _judged_words(signs: Signs) -> str:
    """How many steps were judged, how long they are, and their parts."""
    parts = sorted(signs.shares.items(), key=lambda item: -item[1])
    listed = ", ".join(
        f"{part_in_words(part)} {percent(value)}" for part, value in parts if value >= 0.005
    )
    length = f"{four_digits((signs.observer.traced_ns or signs.step_ns) / 1e6)} ms"
    left = signs.steps - signs.steady - len(signs.apart)
    which = (
        f"{signs.steady} of {signs.steps} steps"
        if signs.steady < signs.steps
        else f"{signs.steps} steps"
    )
    which += " (the first left out)" if left else ""
    steps = f"{which}, a mean of {length} each" if signs.steps > 1 else f"1 step of {length}"
    if not signs.on_host:  # the host ends a step when it has launched it
        steps += " on the device" if signs.by_launch else " on the host"
    ends = "event" if signs.on_host else "device event"
    judged = (
        steps
        if signs.marked
        else f"{length} between the first and the last {ends}"
        + (", without what is left out" if signs.earlier_ns else "")
    )
    without = _without_profiler(signs)
    verb = "is" if signs.marked and signs.steps == 1 else "are"
    return (
        f"judged {verb} {judged} (step_budget){without and f'; {without}'}: {listed or 'nothing'}"
    )


def _step_words(signs: Signs) -> Iterator[str]:
    """What marks the steps, how they differ, and which parts of the recording are not judged."""
    if signs.observer.is_traced_one:
        yield (
            "--step-time-ms is as long as the recorded steps, so it was left out: give that of a"
            " step without the profiler"
        )
    yield from _data_before(signs)
    if signs.mark and signs.mark != "ProfilerStep#N":
        yield (
            f"steps: from each `{signs.mark}` to the next; step() of the profiler was not called"
            " (steps)"
        )
    if signs.steady > 1 and signs.longest_ns > UNEVEN * signs.shortest_ns:
        shortest, longest = (
            four_digits(value / 1e6) for value in (signs.shortest_ns, signs.longest_ns)
        )
        yield f"steps are uneven: {shortest} to {longest} ms (step_budget)"
    yield from (
        f"left out, {words}, a range that most others lack (steps, phases)" for words in signs.apart
    )
    if signs.earlier_ns:
        yield (
            f"left out, {four_digits(signs.earlier_ns / 1e6)} ms: work that was launched before"
            " waited for what is not in the files, such as the batch before (gaps: earlier work)"
        )


def _work_words(signs: Signs) -> Iterator[str]:
    """What is odd about the work itself: names, graphs, and what runs again."""
    if _like_communication(signs) >= NAMED:
        name, share = signs.alike
        yield (
            f"{percent(share)} of all kernel time is in kernels with names like communication,"
            f" which is counted as compute since it is not known: {name} for one (kernels)"
        )
    if lacking := replay_words(signs):
        lost = (
            "ROCTracer of some releases loses them"
            if signs.vendor == AMD
            else "the profiler lost them"
        )
        yield (
            f"{lacking}: {lost}{'' if signs.replays.empty else ', or the others are other graphs'}"
            " (launches)"
        )
    if signs.again >= 0.01:
        of_what = "recorded time" if signs.on_host else "device's work"
        yield (
            "forward operators run again inside of backward, as with torch.utils.checkpoint, for"
            f" {percent(signs.again)} of the {of_what} (events): that saves memory, and costs so"
            " much where memory is no need"
        )
    if signs.graph_share >= 0.01:
        yield (
            f"graphs launched {percent(signs.graph_share)} of all device events: no fault, a fact"
            " (launches)"
        )


def _without_profiler(signs: Signs) -> str:
    """How long the step is without the profiler, and how that is known; empty where the profiler
    makes no difference.
    """
    observer = signs.observer
    if observer.unprofiled_step_ns is not None:
        return (
            f"without the profiler {four_digits(observer.unprofiled_step_ns / 1e6)} ms"
            f" ({observer.source}), of these"
        )
    if observer.estimated_ns is None or observer.estimated_ns.low >= NEARLY * observer.traced_ns:
        return ""
    low, middle, high = (four_digits(value / 1e6) for value in observer.estimated_ns)
    events = four_digits(observer.events)
    return (
        f"without the profiler about {middle} ms, {low} to {high} by what its {events} events cost"
        " here, of these"
    )


def _data_before(signs: Signs) -> Iterator[str]:
    """How much longer the host was in its phase `data` before the recording, where that makes a
    difference.
    """
    observer = signs.observer
    if observer.shift_ns is None or observer.unprofiled_step_ns is None:
        return
    if abs(observer.shift_ns) >= MISSING * observer.unprofiled_step_ns:
        more = "longer" if observer.shift_ns > 0 else "shorter"
        length = four_digits(abs(observer.shift_ns) / 1e6)
        than = f"{length} ms {more} in `data` than those in it"
        yield f"steps before the recording, which count, were {than} (meta: untraced)"


Facts = list[tuple[str, str]]
"""Label and text of each line. Lines that belong together have their label before the first, and
an empty one before the others.
"""


def headline(diagnosis: Diagnosis) -> str:
    """The verdict in one sentence."""
    broken = diagnosis.signs.broken
    return _verdict(diagnosis) + (f"; {_are(broken, 'missing')}, not to be read" if broken else "")


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.cause == INCONCLUSIVE:
        return f"{INCONCLUSIVE}: {diagnosis.title}"
    doubt = "" if diagnosis.confident else ", not sure"
    if diagnosis.cause == NO_BOTTLENECK:
        who = "the processor" if diagnosis.signs.on_host else "the device"
        return (
            f"{NO_BOTTLENECK}{doubt}: {diagnosis.title}; {who} computes for"
            f" {percent(diagnosis.share)} of it"
        )
    return (
        f"{diagnosis.cause}{doubt}: {diagnosis.title}, up to {percent(diagnosis.share)} of the time"
    )


BRACKETS = (
    "in brackets",
    (
        "the table that says so: tidyprof.step_budget(profile), tidyprof.gaps(profile),"
        " profile.events and so on"
    ),
)
"""The last line, which explains the words in brackets behind numbers."""


def facts(diagnosis: Diagnosis) -> Facts:
    """The lines below the headline."""
    fired = [
        f"{alternative.name}: {alternative.why}"
        for alternative in diagnosis.alternatives
        if alternative.fired
    ]
    out = [
        f"{alternative.name}: {alternative.why}"
        for alternative in diagnosis.alternatives
        if not alternative.fired
    ]
    groups = {
        "evidence": diagnosis.evidence,
        "takes time, too": fired,
        "ruled out": out,
        "not in the files": diagnosis.unknown,
        "next": (diagnosis.next_step,),
        "origin": diagnosis.origins,
    }
    return [
        ("" if number else label, text)
        for label, texts in groups.items()
        for number, text in enumerate(texts)
    ]


def observer_ms(observer: Observer) -> dict[str, Any]:
    """The step with and without the profiler in ms, None where unknown, and the number of events
    that it recorded.
    """
    estimated, untraced = observer.estimated_ns, observer.unprofiled_step_ns
    return {
        "traced_step_ms": observer.traced_ns / 1e6 or None,
        "unprofiled_step_ms": None if untraced is None else untraced / 1e6,
        "estimated_step_ms": estimated and [estimated.low / 1e6, estimated.high / 1e6],
        "events_a_step": observer.events,
    }


def as_json(diagnosis: Diagnosis) -> str:
    """The whole diagnosis. Shares (0 to 1) are of the step without the profiler. Times are in ns,
    those of `observer` in ms. Tables of the signs are left out; what has names in them has the same
    here.
    """
    named = ("cause", "title", "share", "confident", "evidence", "unknown", "next_step", "origins")
    written = {name: getattr(diagnosis, name) for name in named}
    written["alternatives"] = [vars(alternative) for alternative in diagnosis.alternatives]
    written["observer"] = observer_ms(diagnosis.signs.observer)
    signs = {one.name: getattr(diagnosis.signs, one.name) for one in fields(diagnosis.signs)}
    signs.pop("rank_table")
    signs["observer"] = vars(diagnosis.signs.observer)
    signs["host"] = vars(diagnosis.signs.host)
    return json.dumps(written | {"signs": _with_names(signs)}, indent=1, default=float) + "\n"


def _with_names(value: Any) -> Any:
    """The value, with a dictionary in place of each named tuple, which JSON would make a list."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _with_names(one) for name, one in value.items()}
    return value

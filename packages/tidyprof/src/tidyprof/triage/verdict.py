"""Diagnose a run. The diagnosis names the largest part of a step that a rule explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from tidyprof.analyses.common import each, four_digits
from tidyprof.errors import SAME
from tidyprof.tables.contract import Profile
from tidyprof.triage.confidence import (
    INCONCLUSIVE,
    NO_BOTTLENECK,
    blamed_rows,
    capital,
    doubts_of_cause,
    doubts_of_health,
    why_inconclusive,
)
from tidyprof.triage.facts import Fact, percent
from tidyprof.triage.host_activity import WORKERS
from tidyprof.triage.profiler_overhead import (
    EQUAL,
    HOST_COMPUTE,
    MAX_STEP_NS,
    MIN_STEP_NS,
    Overhead,
    Step,
    steps_to_judge,
)
from tidyprof.triage.recording import Recording, judged_ones, kind_of, recording_of
from tidyprof.triage.remarks import (
    missing,
    next_step,
    notes_of,
    step_note,
    why_no_cause,
    why_no_timeline,
)
from tidyprof.triage.rules import (
    DOMINANT_KERNEL,
    LIMIT,
    Part,
    Row,
    Rule,
    View,
    rows_of,
    text_of,
    with_startup,
)
from tidyprof.triage.run_facts import Run, run_of

MAX_STEP_RATIO = 30.0
"""The limit for the ratio of a traced step to an unprofiled step. The largest known ratio is 6,
because of a library search.
"""

KNOWING = "To decide, pass the step time without the profiler: --step-time-ms MS"

SHOWN = 0.005
"""The minimum share of a part in the table of parts."""


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a run, with all numbers that a report shows.

    - cause: the cause of a rule, NO_BOTTLENECK or INCONCLUSIVE.
    - share: the cause's share of the step (0 to 1).
    - headline, why, next_step, lesson: sentences and the lesson number for the report.
    - doubts: the reasons to doubt the cause. A confident verdict has no doubts.
    - parts: the table of parts, with the largest part first.
    - step_ns, step_note: the sum of the parts, and the source of this time.
    - notes: notes for every reader.
    - unknown: facts that the files can't show.
    - broken: the ranks that are missing because their files can't be read.
    - alternatives: the other causes that limit the run, the largest first.
    - facts, overhead, origins, rank_table: the data behind the diagnosis.
    """

    cause: str
    headline: str
    share: float
    doubts: tuple[str, ...]
    why: str
    next_step: str
    lesson: str
    parts: tuple[Part, ...]
    step_ns: float
    step_note: str
    notes: tuple[str, ...]
    alternatives: tuple[str, ...]
    unknown: tuple[str, ...]
    facts: tuple[Fact, ...]
    overhead: Overhead
    origins: tuple[str, ...]
    rank_table: pd.DataFrame | None
    broken: tuple[str, ...] = ()

    @property
    def confident(self) -> bool:
        """True if there are no doubts about the cause."""
        return not self.doubts


class WrongStepError(ValueError):
    """An error for a step time from the user that doesn't match the traced steps."""


def diagnose(
    profiles: Profile | Iterable[Profile],
    mark: str | None = None,
    step_time_ms: float | None = None,
) -> Diagnosis:
    """Diagnose one run from its profile, its ranks' profiles, or profiles from several tools.

    Device events from different tools aren't mixed. The diagnosis judges the profile with the most
    host events and other profiles from the same tool. The remaining profiles contribute only system
    logs and counters.

    `mark` is the range or operator that starts each step; see `tidyprof.steps`. `step_time_ms` is
    the mean step time without a profiler, from any log.

    Raises ValueError without a profile, and as `step_budget` and `ranks` do. Raises WrongStepError,
    a ValueError, if no step is marked, or if `step_time_ms` is impossible or too far from the
    traced steps.

    >>> found = tidyprof.diagnose(tidyprof.read("trace.json.gz"))
    >>> found.cause, round(found.share, 2), found.confident
    ('launch-bound', 0.53, True)
    """
    given = list(each(profiles))
    kinds = [kind_of(profile) for profile in given]
    judged = judged_ones(kinds)
    return diagnosis_of(
        [recording_of(one, kinds[i], i in judged, mark) for i, one in enumerate(given)],
        step_time_ms,
    )


def diagnosis_of(recordings: Sequence[Recording], step_time_ms: float | None) -> Diagnosis:
    """Diagnose profiles from their recordings. Raises the same errors as `diagnose`."""
    if not recordings:
        raise ValueError("pass at least one profile to diagnose")
    judged = judged_ones([one.kind for one in recordings])
    others = [one for i, one in enumerate(recordings) if i not in judged]
    step_ns = None if step_time_ms is None else 1e6 * step_time_ms
    if step_ns is not None and not MIN_STEP_NS <= step_ns < MAX_STEP_NS:
        raise WrongStepError(f"a step can't take {step_time_ms:g} ms")
    run = run_of([recordings[i] for i in sorted(judged)], others, step_ns)
    _refuse_wrong_step(run, step_ns)
    found = judge(run, tuple(dict.fromkeys(one.origin for one in recordings)))
    ignored = tuple(dict.fromkeys(line for one in recordings for line in one.ignored))
    if found.cause == INCONCLUSIVE and any(not line.endswith(f"({SAME})") for line in ignored):
        step = f"Check the files that weren't read. Then: {found.next_step}"
        found = replace(found, next_step=step)
    return replace(found, unknown=(*ignored, *found.unknown))


def _refuse_wrong_step(run: Run, step_ns: float | None) -> None:
    if step_ns is None or not run.parts:
        return
    if not run.marked:
        raise WrongStepError(
            "the trace has no marked steps, so it can't be compared with a step time"
        )
    traced, estimated = run.overhead.traced_ns, run.overhead.estimated
    is_traced = abs(step_ns - traced) <= (1 - EQUAL) * traced
    if is_traced and estimated and estimated.likely < EQUAL * traced:
        raise WrongStepError("the traced steps take as long, although the profiler slows them down")
    if traced and not 1 / MAX_STEP_RATIO < step_ns / traced < MAX_STEP_RATIO:
        lengths = f"{four_digits(traced / 1e6)} ms, which is far from {step_ns / 1e6:g} ms"
        raise WrongStepError(f"the traced steps take {lengths}")


def without_ranks(found: Diagnosis, broken: Sequence[str]) -> Diagnosis:
    """Add the names of ranks whose files can't be read, such as `rank 3`, to the diagnosis."""
    if not broken:
        return found
    line = f"{' and '.join(broken)}: the file can't be read. Record again, or copy the whole file."
    return replace(found, unknown=(line, *found.unknown), broken=tuple(broken))


def judge(run: Run, origins: tuple[str, ...]) -> Diagnosis:
    """Return the diagnosis of a run for the unprofiled step.

    If the step time is a range, a confident diagnosis is the same at both ends of the range.
    """
    workers = run.facts["loader"] == WORKERS
    steps = steps_to_judge(run.parts, run.overhead, workers) if run.parts else []
    views = [with_startup(View(run, step)) for step in steps]
    if not views:
        return _without_timeline(run, origins)
    found, *ends = (_judged(view, origins) for view in views)
    doubts = [*_doubts_of_overhead(found, ends, run), *found.doubts]
    return replace(found, doubts=tuple(dict.fromkeys(doubts)))


def _doubts_of_overhead(found: Diagnosis, ends: Sequence[Diagnosis], run: Run) -> Iterator[str]:
    """Yield doubts due to profiler overhead or atypical steps."""
    overhead = run.overhead
    if overhead.rare_share >= LIMIT:
        share = percent(overhead.rare_share)
        yield f"Rare long steps take {share} of the run, but the verdict ignores these steps."
    if found.cause == INCONCLUSIVE:
        return
    causes = list(dict.fromkeys(one.cause for one in (found, *ends)))
    if len(causes) > 1:
        yield (
            "Profiling slows the program by an unknown amount. Depending on this amount, the"
            f" verdict is {' or '.join(causes)}. {KNOWING}."
        )
    elif found.confident and any(not one.confident for one in ends):
        yield f"Profiling slows the program by an unknown amount. {KNOWING}."
    elif found.cause == "launch-bound" and overhead.is_open and overhead.measured_ns is None:
        yield f"The overhead of {run.facts['tool']} is unknown. {KNOWING}."


def _judged(view: View, origins: tuple[str, ...]) -> Diagnosis:
    """Return the diagnosis for one view of a run."""
    rows = rows_of(view)
    blamed = blamed_rows(view, rows)
    if reason := why_inconclusive(view, blamed):
        return _diagnosis(view, rows, origins, INCONCLUSIVE, reason)
    if not blamed:
        share = view.share(*(HOST_COMPUTE if view.run.on_host else ("compute",)))
        who = "the CPU" if view.run.on_host else "the GPU"
        headline = (
            f"{who} computes for {percent(share)} of {view.whole}, and no known cause takes"
            f" {percent(LIMIT)}"
        )
        doubts = tuple(doubts_of_health(view, rows))
        return _diagnosis(view, rows, origins, NO_BOTTLENECK, headline, share, doubts)
    best = blamed[0]
    assert best.rule is not None
    share = best.ns / view.step.length_ns
    doubts = tuple(doubts_of_cause(view, rows, blamed, share))
    headline = best.rule.headline.format(percent(share)).replace("the step", view.whole)
    return _diagnosis(view, rows, origins, best.rule.cause, headline, share, doubts, best)


def _diagnosis(
    view: View,
    rows: Sequence[Row],
    origins: tuple[str, ...],
    cause: str,
    headline: str,
    share: float = 0.0,
    doubts: tuple[str, ...] = (),
    best: Row | None = None,
) -> Diagnosis:
    run, rule = view.run, best.rule if best else None
    parts = _parts(view, rows, rule)
    if rule:
        why, fix, lesson = text_of(view, rule.why), text_of(view, rule.fix), rule.lesson
    elif parts:
        why, fix, lesson = why_no_cause(view, cause, parts), next_step(view, cause), ""
    else:
        (_, why, fix), lesson = why_no_timeline(run), ""
    causes = [row.rule.cause for row in blamed_rows(view, rows) if row.rule]
    if cause == INCONCLUSIVE:
        doubts = (f"{capital(headline)}.",)
    return Diagnosis(
        cause=cause,
        headline=headline,
        share=share,
        doubts=doubts,
        why=why,
        next_step=fix,
        lesson=lesson,
        parts=parts,
        step_ns=view.step.length_ns,
        step_note=step_note(view) if parts else "",
        notes=tuple(notes_of(view)),
        alternatives=tuple(one for one in causes if one != cause),
        unknown=missing(run),
        facts=run.facts.listed(),
        overhead=run.overhead,
        origins=origins,
        rank_table=run.rank_table,
    )


def _parts(view: View, rows: Sequence[Row], best: Rule | None) -> tuple[Part, ...]:
    """Return the table of parts. Compute time is divided into rows only if computation is the
    cause.
    """
    sums: dict[str, float] = {}
    caused = best.row if best else ""
    for row in rows:
        split = row.rule is not DOMINANT_KERNEL or best is DOMINANT_KERNEL
        name = row.name if split else "compute"
        sums[name] = sums.get(name, 0.0) + row.ns
    length = max(view.step.length_ns, 1e-9)
    order = sorted(sums, key=lambda name: -sums[name])
    parts = [Part(name, sums[name], sums[name] / length, name == caused) for name in order]
    shown = [part for part in parts if part.share >= SHOWN or part.is_cause]
    rest = sum(part.ns for part in parts if part not in shown)
    return (*shown, *([Part("everything else", rest, rest / length, False)] if rest else []))


def _without_timeline(run: Run, origins: tuple[str, ...]) -> Diagnosis:
    """Return the diagnosis of files without a timeline, such as counters or logs."""
    view = View(run, Step({}, False))
    share = DOMINANT_KERNEL.fraction(view)
    if share < LIMIT:
        return _diagnosis(view, [], origins, INCONCLUSIVE, why_no_timeline(run)[0])
    headline = f"one kernel takes {percent(share)} of all kernel time"
    row = Row(DOMINANT_KERNEL.row, 0.0, DOMINANT_KERNEL)
    return _diagnosis(view, [], origins, DOMINANT_KERNEL.cause, headline, share, (), row)

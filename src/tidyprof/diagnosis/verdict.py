"""From signs to a diagnosis: the likely cause, what rules its rivals out, and what the files can't tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from tidyprof.analyses.common import each, four_digits
from tidyprof.diagnosis.causes import CAUSES, LIMIT, Cause, percent, rank_words, waiting
from tidyprof.diagnosis.missing import LISTING, always_last, missing
from tidyprof.diagnosis.recordings import Kind, kind_of, recording_signs
from tidyprof.diagnosis.signs import Signs, signs_of
from tidyprof.tables.contract import Profile

HEALTHY, UNCLEAR = "healthy", "can't tell"

MARGIN = 1.5
"""A cause is called sure where no other that fired comes within this factor of it: budgets of two tools, or with and
without a profiler, differ by less."""

PART_WORDS = {"silent": "host silent", "stalled": "behind a waiting call"}
"""What to call a part, where its name does not tell."""

LINKED = 0.5
"""Share of device work without a launch record up to which idle time can be given to the host."""


@dataclass(frozen=True)
class Rival:
    """Another cause that lengthens the same part, or also takes time. why -- what rules it out, or its share."""

    name: str
    fired: bool
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """What limits a run.

    cause    -- a name of causes.CAUSES, `healthy` or `can't tell`; title says it in words, share of the time (0 to 1).
    sure     -- whether nothing else comes near it. evidence -- sentences with numbers, each with its analysis.
    rivals   -- other causes, with what rules them out. unknown -- what the files can't tell.
    next_step -- what to do or to record next. origins -- where the numbers come from. signs -- all the numbers.
    """

    cause: str
    title: str
    share: float
    sure: bool
    evidence: tuple[str, ...]
    rivals: tuple[Rival, ...]
    unknown: tuple[str, ...]
    next_step: str
    origins: tuple[str, ...]
    signs: Signs


def triage(profiles: Profile | Iterable[Profile] | pd.DataFrame, mark: str | None = None) -> Diagnosis:
    """Diagnose one run: its profile, those of its ranks, or those of several tools.

    Device events of several tools are not mixed: the profile that knows most of the host is judged, with those of its
    tool; system logs and counters of the others add to it. `mark` is the range or operator with which each step
    begins, see `tidyprof.steps`. A table of `triage_signs`, of profiles that were reduced elsewhere, stands for them.
    Raises ValueError without a profile, and as `step_budget` and `ranks` do.
    """
    if isinstance(profiles, pd.DataFrame):
        recordings = profiles["signs"].tolist()
        judged = judged_ones([one.kind for one in recordings])
    else:
        given = list(each(profiles))
        kinds = [kind_of(profile) for profile in given]
        judged = judged_ones(kinds)
        recordings = [recording_signs(one, kinds[i], i in judged, mark) for i, one in enumerate(given)]
    if not recordings:
        raise ValueError("there is no profile to diagnose")
    others = [one for i, one in enumerate(recordings) if i not in judged]
    signs = signs_of([recordings[i] for i in sorted(judged)], others)
    return judge(signs, tuple(dict.fromkeys(one.origin for one in recordings)))


def judged_ones(kinds: Sequence[Kind]) -> set[int]:
    """Which of the profiles are judged: those with a timeline of the tool that knows most of the host.

    Where no device event is in any, those of a run without a GPU.
    """
    timed = [i for i, kind in enumerate(kinds) if kind.has_timeline]
    if not timed:
        return {i for i, kind in enumerate(kinds) if kind.on_host}
    best = max(timed, key=lambda i: kinds[i].host_events)
    same = {i for i in timed if kinds[i].tool == kinds[best].tool}
    return same if all(kinds[i].has_rank for i in same) else {best}


def judge(signs: Signs, origins: tuple[str, ...]) -> Diagnosis:
    """The diagnosis of these signs: what comes once before what comes in each step, then by share, what remains last.

    A start-up has the time of others in it, which can't be told from a single occurrence.
    """
    fired = sorted(
        (cause for cause in _known(signs) if cause.share(signs) >= LIMIT),
        key=lambda one: (one.is_rest, one.name != "start-up", -one.share(signs)),
    )
    straggling = any(cause.name == "straggler" for cause in fired)
    unexplained = max(signs.shares.get("other", 0.0), 0.0 if straggling else waiting(signs))
    if reason := _unclear(signs, fired, unexplained):
        return _diagnosis(UNCLEAR, reason, 0.0, False, signs, fired, origins)
    if not fired:
        title = f"nothing takes {percent(LIMIT)} of the time or more from computation"
        return _diagnosis(HEALTHY, title, signs.shares["compute"], True, signs, fired, origins)
    best, *rest = fired
    rivals = [other for other in rest if not (other.is_rest and not best.is_rest and other.part == "device")]
    near = max([unexplained, *(other.share(signs) for other in rivals)])
    sure = best.share(signs) >= MARGIN * near and (signs.steps > 1 or not signs.shares)
    sure = sure and not (best.name != "straggler" and always_last(signs) is not None and waiting(signs) >= LIMIT)
    return _diagnosis(best.name, best.title, best.share(signs), sure, signs, fired, origins, best)


def _known(signs: Signs) -> list[Cause]:
    """The causes that this kind of run can have."""
    return [cause for cause in CAUSES if not (signs.on_host and cause.needs_device)]


def _unclear(signs: Signs, fired: Sequence[Cause], unexplained: float) -> str:
    """Why nobody can tell, empty if one can."""
    if not signs.shares:
        known = any(not cause.is_rest or cause.name in ("power-limit", "one-kernel") for cause in fired)
        return "" if known else "no device event is in the files, so where time goes is not known"
    if not signs.step_ns:
        return "no event on a device lasts, so there is no time to divide up"
    largest = max((cause.share(signs) for cause in fired if cause.part != "device"), default=0.0)
    if unexplained >= LIMIT and unexplained > max(largest, signs.shares["other"]):
        return f"ranks wait for each other in {percent(unexplained)} of their time, for none that does more than others"
    if unexplained >= LIMIT and unexplained > largest:
        why = (
            f"{percent(signs.unlinked)} of the device's work has no launch record"
            if signs.unlinked
            else "work was queued"
        )
        return f"the device is idle for {percent(unexplained)} of the time, and why is not in the files ({why})"
    if signs.unlinked > LINKED and unexplained >= LIMIT:
        return f"{percent(signs.unlinked)} of the device's work has no launch record, so idle time has no owner"
    return ""


def _diagnosis(
    name: str, title: str, share: float, sure: bool, signs: Signs, fired: Sequence[Cause], origins: tuple[str, ...],
    cause: Cause | None = None,
) -> Diagnosis:  # fmt: skip
    evidence = (cause.finding(signs),) if cause else ()
    if signs.shares:
        parts = sorted(signs.shares.items(), key=lambda item: -item[1])
        named = ((PART_WORDS.get(part, part.replace("_", " ")), value) for part, value in parts if value >= 0.005)
        listed = ", ".join(f"{words} {percent(value)}" for words, value in named)
        length = f"{four_digits(signs.step_ns / 1e6)} ms"
        which = f"{signs.steady} of {signs.steps} steps (the first left out)"
        which = which if signs.steady < signs.steps else f"{signs.steps} steps"
        steps = f"{which}, {length} each" if signs.steps > 1 else f"1 step of {length}"
        ends = "event" if signs.on_host else "device event"
        judged = steps if signs.marked else f"the {length} between the first and the last {ends}"
        evidence += (f"of {judged} (step_budget): {listed or 'nothing'}",)
    if signs.rank_table is not None and (cause is None or cause.part != "communication"):
        evidence += (rank_words(signs),)
    rivals = tuple(
        Rival(other.name, other in fired, other.finding(signs))
        for other in _known(signs)
        if other is not cause and (other in fired or (cause is not None and other.part == cause.part))
    )
    unknown, command = missing(signs)
    command = LISTING if signs.on_host else command
    advice = cause.advice if cause else (command or "Measure the run as it is before you change it: tidyprof gate.")
    return Diagnosis(name, title, share, sure, evidence, rivals, unknown, advice, origins, signs)

"""A diagnosis as lines for people and as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import fields

from tidyprof.diagnosis.causes import percent
from tidyprof.diagnosis.verdict import HEALTHY, UNCLEAR, Diagnosis

Facts = list[tuple[str, str]]
"""Label and text of each line; a label of lines that belong together stands before the first."""


def headline(diagnosis: Diagnosis) -> str:
    """The verdict in one sentence."""
    if diagnosis.cause == UNCLEAR:
        return f"{UNCLEAR}: {diagnosis.title}"
    doubt = "" if diagnosis.sure else ", not sure"
    if diagnosis.cause == HEALTHY:
        who = "the processor" if diagnosis.signs.on_host else "the device"
        return f"{HEALTHY}{doubt}: {diagnosis.title}; {who} computes for {percent(diagnosis.share)} of it"
    return f"{diagnosis.cause}{doubt}: {diagnosis.title}, up to {percent(diagnosis.share)} of the time"


def facts(diagnosis: Diagnosis) -> Facts:
    """What stands below the headline."""
    fired = [f"{rival.name}: {rival.why}" for rival in diagnosis.rivals if rival.fired]
    out = [f"{rival.name}: {rival.why}" for rival in diagnosis.rivals if not rival.fired]
    groups = {
        "evidence": diagnosis.evidence,
        "takes time, too": fired,
        "ruled out": out,
        "not in the files": diagnosis.unknown,
        "next": (diagnosis.next_step,),
        "origin": diagnosis.origins,
    }
    return [("" if number else label, text) for label, texts in groups.items() for number, text in enumerate(texts)]


def as_json(diagnosis: Diagnosis) -> str:
    """All of it; shares from 0 to 1, times in ns. Tables of the signs are left out."""
    named = ("cause", "title", "share", "sure", "evidence", "unknown", "next_step", "origins")
    written = {name: getattr(diagnosis, name) for name in named}
    written["rivals"] = [vars(rival) for rival in diagnosis.rivals]
    signs = {one.name: getattr(diagnosis.signs, one.name) for one in fields(diagnosis.signs)}
    signs.pop("rank_table")
    signs["host"] = vars(diagnosis.signs.host)
    return json.dumps(written | {"signs": signs}, indent=1, default=float) + "\n"

"""Programs with a known fault on a real GPU: their truths, and when a diagnosis of them is
right.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import tidyprof
from tidyprof_tests.conftest import STRANGERS

PROGRAMS = STRANGERS / "gpu"
TRUTH = json.loads((PROGRAMS / "truth.json").read_text())
FORMS = [(name, form) for name, truth in TRUTH.items() for form in truth["untraced_ms"]]

KEPT_BUSY, NEARLY_BUSY = 0.75, 0.55
"""Shares of the untraced step that a device works: from the first on a cured form is healthy or has
one large kernel, from the second on it may be launch-bound, but not surely, below that it is
launch-bound.
"""

HOST_LIMITED = [
    (name, form)
    for name, form in FORMS
    if TRUTH[name]["device_busy_ms_a_step"][form] < 0.9 * TRUTH[name]["untraced_ms"][form]
    and (
        form == "cured" or TRUTH[name]["cause"] in ("launch-bound", "sync-bound", "allocator-churn")
    )
]
"""Forms whose steps last as long as the host takes: neither the device nor another process limits
them.
"""


@cache
def profiles(name: str, form: str) -> list[tidyprof.Profile]:
    return [tidyprof.read(path) for path in sorted((PROGRAMS / name / form).glob("*.zst"))]


@cache
def triaged(name: str, form: str, how: str) -> tidyprof.Diagnosis:
    """The diagnosis with the untraced step of an own clock, or by what the trace holds but for the
    block's.
    """
    found = profiles(name, form)
    stated = [profile.meta.pop("untraced", None) for profile in found]
    diagnosis = tidyprof.triage(
        found, step_ms=TRUTH[name]["untraced_ms"][form] if how == "given" else None
    )
    for profile, untraced in zip(found, stated, strict=True):
        if untraced:
            profile.meta["untraced"] = untraced
    return diagnosis


def is_right(name: str, form: str, facts: dict[str, Any]) -> bool:
    """Return True if the cause is right by the truth of a program, see `facts.facts_of`."""
    truth, cause, confident = TRUTH[name], facts["cause"], facts["confident"]
    if form == "sick":
        named = truth["cause"] == "input-bound" and facts.get("signs.host.silent_part")
        return cause == truth["cause"] or bool(named and cause == "outside-torch")
    busy = truth["device_busy_ms_a_step"][form] / truth["untraced_ms"][form]
    if busy >= KEPT_BUSY:
        return cause in ("no-bottleneck", "dominant-kernel")
    if cause == "no-bottleneck":
        return busy >= NEARLY_BUSY
    return cause == "launch-bound" and not (confident and busy >= NEARLY_BUSY)

"""Programs with a known fault on a real GPU: their truths, and when a diagnosis of them is
right.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import tidyprof
from tidyprof_tests.conftest import REPOSITORY, THIRD_PARTY

PROGRAMS = THIRD_PARTY / "gpu"
OTHER_RECORDINGS = REPOSITORY.parent / "shared/gpu/ward"
"""The first thirteen programs, recorded another time; a folder next to the checkout."""

KEPT_BUSY, NEARLY_BUSY = 0.75, 0.55
"""Shares of the unprofiled step that a device works: from the first on a fixed variant has no
bottleneck or a dominant kernel. From the second on it may be launch-bound without confidence, and
below that it is launch-bound.
"""


def variants_of(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the truths of each program and variant that was recorded into a folder."""
    truths = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    return {
        (name, variant): truth
        | {key: of[variant] for key, of in truth.items() if isinstance(of, dict)}
        for name, truth in truths.items()
        for variant in truth["untraced_ms"]
    }


TRUTH = variants_of(PROGRAMS)


@cache
def profiles(folder: Path, name: str, variant: str) -> list[tidyprof.Profile]:
    return [tidyprof.read(path) for path in sorted((folder / name / variant).glob("trace*"))]


@cache
def triaged(name: str, variant: str, how: str, folder: Path = PROGRAMS) -> tidyprof.Diagnosis:
    """Return the diagnosis with the unprofiled step by another clock (`given`), or by what the
    trace contains except the steps that the script timed (`alone`).
    """
    given = profiles(folder, name, variant)
    stated = [profile.meta.pop("untraced", None) for profile in given]
    step = TRUTH[name, variant]["untraced_ms"] if how == "given" else None
    found = tidyprof.diagnose(given, step_time_ms=step)
    for profile, untraced in zip(given, stated, strict=True):
        if untraced:
            profile.meta["untraced"] = untraced
    return found


def accepted_causes(name: str, variant: str) -> tuple[str, ...]:
    """Return the causes that are right by the truth of a program, see `is_right`."""
    truth = TRUTH[name, variant]
    if variant == "sick":
        own_loop = ("outside-torch",) if truth["cause"] == "input-bound" else ()
        return (truth["cause"], *own_loop)
    busy = truth["device_busy_ms_a_step"] / truth["untraced_ms"]
    if busy >= KEPT_BUSY:
        return ("no-bottleneck", "dominant-kernel")
    return ("launch-bound", "no-bottleneck") if busy >= NEARLY_BUSY else ("launch-bound",)


def is_right(name: str, variant: str, facts: dict[str, Any]) -> bool:
    """Return True if the cause is accepted, see `facts.facts_of`. Slow loading in the loop's own
    code may also be `outside-torch` in a named part, and a nearly busy device may be `launch-bound`
    only without confidence.
    """
    causes, cause = accepted_causes(name, variant), facts["cause"]
    if causes == ("input-bound", "outside-torch") and cause == "outside-torch":
        return bool(facts.get("fact outside_part"))
    if causes == ("launch-bound", "no-bottleneck") and cause == "launch-bound":
        return not facts["confident"]
    return cause in causes

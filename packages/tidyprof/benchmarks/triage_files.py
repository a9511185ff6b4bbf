"""What `tidyprof triage` says of files whose truth somebody wrote down first, as tables for the
pages on triage.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import tidyprof
from tests.public_recordings import Mirror
from tidyprof.diagnosis.observer import NEARLY
from tidyprof.diagnosis.verdict import UNCLEAR, Diagnosis, triage
from tidyprof_tests.triage.gpu_programs import FORMS, HOST_LIMITED, TRUTH, is_right, triaged
from tools.mirror import mirror_folder

HOUSE = Path(__file__).resolve().parents[1]
TESTS = HOUSE / "tests"
BY_HAND, STRANGERS = TESTS / "tidyprof_tests/triage/expected.toml", TESTS / "strangers"
SOURCES = {
    "public recordings": BY_HAND,
    "scripts after a reviewer's descriptions": STRANGERS / "truth_review.toml",
    "new scripts": STRANGERS / "truth.toml",
}
"""What strangers made -> where somebody wrote down what limits it, before triage saw it."""


@dataclass(frozen=True)
class Judged:
    """What triage says of a stranger's file, beside what somebody else wrote down first, and
    why.
    """

    name: str
    truth: tuple[str, ...]
    cause: str
    sure: bool
    why: str

    @property
    def right(self) -> bool:
        """Whether it is one of the answers that an expert takes for right."""
        return self.cause in self.truth


def judged(name: str, path: Path, truth: dict[str, Any]) -> Judged:
    """Read and diagnose one file."""
    answers = (truth["cause"], *truth.get("also", ()))
    try:
        found = triage(tidyprof.read(path))
    except tidyprof.ProfileReadError:
        return Judged(name, answers, "refused", False, truth["why"])
    return Judged(name, answers, found.cause, found.sure, truth["why"])


def strangers() -> dict[str, list[Judged]]:
    """Public recordings and other people's scripts, by what they are."""
    found = {}
    for what, file in SOURCES.items():
        folder = Mirror(mirror_folder()) if file == BY_HAND else STRANGERS / "traces"
        truths = tomllib.loads(file.read_text(encoding="utf-8")).items()
        found[what] = [judged(name, folder / name, truth) for name, truth in truths]
    return found


def rates(found: dict[str, list[Judged]]) -> str:
    """How many are right, refused, wrong and sure, as Markdown."""
    lines = [
        "| | judged | right | refused with the reason, among these"
        " | sure, among the other right ones | wrong | wrong and sure |",
        "| --- |" + " --: |" * 6,
    ]
    for what, own in found.items():
        right = [one for one in own if one.right]
        refused = [one for one in right if one.cause in (UNCLEAR, "refused")]
        sure = sum(one.sure for one in right)
        wrong = [one for one in own if not one.right]
        cells = (
            len(own),
            len(right),
            len(refused),
            f"{sure} of {len(right) - len(refused)}",
            len(wrong),
        )
        lines.append(
            f"| {what} | " + " | ".join(map(str, cells)) + f" | {sum(one.sure for one in wrong)} |"
        )
    return "\n".join(lines) + "\n"


def listed(own: list[Judged]) -> str:
    """All of one sort, as Markdown; what is wrong is bold."""
    lines = ["| | truth | triage | sure | how it is known |", "| --- | --- | --- | --- | --- |"]
    for one in own:
        cause = one.cause if one.right else f"**{one.cause}**"
        lines.append(
            f"| {one.name} | {' or '.join(one.truth)} | {cause} | {'yes' if one.sure else ''} |"
            f" {one.why} |"
        )
    return "\n".join(lines) + "\n"


WAYS = {"given": "with the untraced step given", "alone": "by the trace alone"}
"""How a form on a GPU is triaged -> in words."""


def gpu_rates() -> str:
    """How many forms of the programs on a GPU are right, and what recording cost them, as
    Markdown.
    """
    lines = [
        "| | forms | right | sure, among these | wrong | wrong and sure |",
        "| --- |" + " --: |" * 5,
    ]
    for how, words in WAYS.items():
        found = {one: triaged(*one, how) for one in FORMS}
        right = [found[one] for one in FORMS if is_right(*one, found[one])]
        wrong = [found[one] for one in FORMS if not is_right(*one, found[one])]
        cells = (len(found), len(right), *(sum(one.sure for one in own) for own in (right, wrong)))
        lines.append(
            "| {} | {} | {} | {} | {} | {} |".format(words, *cells[:3], len(wrong), cells[3])
        )
    return "\n".join([*lines, "", _recording_cost()]) + "\n"


def _recording_cost() -> str:
    """How much longer traced steps are than others, and how well the trace alone tells the length
    of these.
    """
    alone = {one: triaged(*one, "alone").signs.observer for one in FORMS}
    untraced = {(name, form): 1e6 * TRUTH[name]["untraced_ms"][form] for name, form in FORMS}
    longer = {one: alone[one].traced_ns / untraced[one] for one in FORMS}
    each = [
        (alone[one].traced_ns - untraced[one]) / alone[one].events / 1e3 for one in HOST_LIMITED
    ]
    ranges = {one: (alone[one].estimated_ns.low, alone[one].estimated_ns.high) for one in FORMS}
    inside = sum(ranges[one][0] <= untraced[one] <= ranges[one][1] for one in HOST_LIMITED)
    widths = [ranges[one][1] / ranges[one][0] for one in HOST_LIMITED]
    device = [longer[one] for one in FORMS if ranges[one][0] >= NEARLY * alone[one].traced_ns]
    return (
        f"The host limits {len(HOST_LIMITED)} of these forms. Traced, their steps took"
        f" {_span([longer[one] for one in HOST_LIMITED])} times as long, {median(each):.1f} µs for"
        " each recorded event (median). The range that triage estimates by the trace alone holds"
        f" the untraced step in {inside} of them; its high end is {_span(widths)} times its low"
        f" end. In {len(device)} other forms the device worked in nearly all of the traced step:"
        f" these took {_span(device)} times as long."
    )


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f} (median {median(values):.2f})"


def gpu_forms() -> str:
    """Each form of the programs on a GPU, as Markdown; what is wrong is bold."""
    lines = [
        (
            "| program | form | its fault | untraced, ms | traced, ms | device busy | triage, step"
            " given | triage, trace alone |"
        ),
        "| --- | --- | --- |" + " --: |" * 3 + " --- | --- |",
    ]
    for name, form in FORMS:
        truth, found = TRUTH[name], {how: triaged(name, form, how) for how in WAYS}
        step, busy = truth["untraced_ms"][form], truth["device_busy_ms_a_step"][form]
        fault = "none" if truth["cause"] == "healthy" else truth["cause"]
        traced = found["alone"].signs.observer.traced_ns / 1e6
        verdicts = " | ".join(_verdict(one, is_right(name, form, one)) for one in found.values())
        numbers = f"{step:.1f} | {traced:.1f} | {100 * busy / step:.0f} %"
        lines.append(f"| {name} | {form} | {fault} | {numbers} | {verdicts} |")
    return "\n".join(lines) + "\n"


def _verdict(found: Diagnosis, right: bool) -> str:
    return (found.cause if right else f"**{found.cause}**") + ("" if found.sure else ", not sure")

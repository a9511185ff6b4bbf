"""What `tidyprof triage` says of files whose truth somebody wrote down first, as tables for the pages on triage."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidyprof
from tidyprof.diagnosis.verdict import UNCLEAR, triage

COURSE = Path(__file__).resolve().parents[1]
BY_HAND, STRANGERS = COURSE / "tests/tidyprof/triage/expected.toml", COURSE / "tests/strangers"
SOURCES = {
    "public recordings": BY_HAND,
    "scripts after a reviewer's descriptions": STRANGERS / "truth_review.toml",
    "new scripts": STRANGERS / "truth.toml",
}
"""What strangers made -> where somebody wrote down what limits it, before triage saw it."""
RECORDINGS = Path(os.environ.get("PROFLAB_RECORDINGS", COURSE.parent / "shared/recordings"))


@dataclass(frozen=True)
class Judged:
    """What triage says of a stranger's file, beside what somebody else wrote down first, and why."""

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
        folder = RECORDINGS if file == BY_HAND else STRANGERS / "traces"
        truths = tomllib.loads(file.read_text(encoding="utf-8")).items()
        found[what] = [judged(name, folder / name, truth) for name, truth in truths]
    return found


def rates(found: dict[str, list[Judged]]) -> str:
    """How many are right, refused, wrong and sure, as Markdown."""
    lines = ["| | judged | right | refused with the reason, among these | sure, among the other right ones | wrong | "
             "wrong and sure |", "| --- |" + " --: |" * 6]  # fmt: skip
    for what, own in found.items():
        right = [one for one in own if one.right]
        refused = [one for one in right if one.cause in (UNCLEAR, "refused")]
        sure = sum(one.sure for one in right)
        wrong = [one for one in own if not one.right]
        cells = (len(own), len(right), len(refused), f"{sure} of {len(right) - len(refused)}", len(wrong))
        lines.append(f"| {what} | " + " | ".join(map(str, cells)) + f" | {sum(one.sure for one in wrong)} |")
    return "\n".join(lines) + "\n"


def listed(own: list[Judged]) -> str:
    """All of one sort, as Markdown; what is wrong is bold."""
    lines = ["| | truth | triage | sure | how it is known |", "| --- | --- | --- | --- | --- |"]
    for one in own:
        cause = one.cause if one.right else f"**{one.cause}**"
        lines.append(f"| {one.name} | {' or '.join(one.truth)} | {cause} | {'yes' if one.sure else ''} | {one.why} |")
    return "\n".join(lines) + "\n"

"""What triage finds in each stored trace, as numbers and names: `facts.json`, and how to make it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import tidyprof
from tidyprof.triage.printers import as_dict
from tidyprof_tests.conftest import THIRD_PARTY
from tidyprof_tests.triage.gpu_programs import TRUTH

FACTS = Path(__file__).with_name("facts.json")
TRUTHS = {
    what: tomllib.loads(file.read_text(encoding="utf-8"))
    for what, file in {
        "public traces": FACTS.with_name("expected.toml"),
        "described scripts": THIRD_PARTY / "truth_review.toml",
        "new scripts": THIRD_PARTY / "truth.toml",
    }.items()
}
"""Collection -> its truths, which people wrote down before triage read the files."""
EXPECTED = TRUTHS["public traces"]
PUBLIC = [name for name in EXPECTED if EXPECTED[name]["cause"] != "refused"]
SCRIPTS = sorted(path.name for path in (THIRD_PARTY / "traces").iterdir())
PROGRAMS = [f"{name}/{variant}/{how}" for name, variant in TRUTH for how in ("given", "alone")]

DIGITS = 4
"""Significant digits in the file."""


def facts_of(found: tidyprof.Diagnosis) -> dict[str, Any]:
    """Return the numbers and names of a diagnosis."""
    shown = as_dict(found)
    values = {name: shown[name] for name in ("cause", "confident", "share")}
    values |= {f"part {part['name']}": part["percent"] for part in shown["parts"]}
    low, high = shown["overhead"]["estimated_step_ms"] or (None, None)
    values |= {"estimated low": low, "estimated high": high}
    values |= {f"fact {one.name}": one.value for one in found.facts if one.source != "meta"}
    return {
        name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None
    }


def read_facts() -> dict[str, dict[str, Any]]:
    return json.loads(FACTS.read_text(encoding="utf-8"))


def write_facts(facts: dict[str, dict[str, Any]]) -> None:
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(facts.items())]
    FACTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

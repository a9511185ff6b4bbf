"""What triage finds in each stored trace, as numbers and names: `facts.json`, and how to make it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tidyprof
from tidyprof.diagnosis.verdict import as_json
from tidyprof_tests.conftest import STRANGERS
from tidyprof_tests.triage.gpu_programs import FORMS

FACTS = Path(__file__).with_name("facts.json")
TRUTHS = {
    what: tomllib.loads(file.read_text(encoding="utf-8"))
    for what, file in {
        "public recordings": FACTS.with_name("expected.toml"),
        "scripts after a reviewer's descriptions": STRANGERS / "truth_review.toml",
        "new scripts": STRANGERS / "truth.toml",
    }.items()
}
"""Sort of file -> its truths, which somebody wrote down before triage saw it."""
EXPECTED = TRUTHS["public recordings"]
PUBLIC = [name for name in EXPECTED if EXPECTED[name]["cause"] != "refused"]
SCRIPTS = sorted(path.name for path in (STRANGERS / "traces").iterdir())
PROGRAMS = [f"{name}/{form}/{how}" for name, form in FORMS for how in ("given", "alone")]
WORDS = {"rank_files", "source", "loader", "apart", "foreign", "offered"}
"""Signs that are sentences, or paths of this machine."""


def facts_of(found: tidyprof.Diagnosis) -> dict[str, Any]:
    """Return the numbers and names of a diagnosis, without what is zero or empty."""
    told = json.loads(as_json(found))
    facts = {name: told[name] for name in ("cause", "share", "confident")}
    facts |= dict(_flat("", {"signs": told["signs"]}))
    for alternative in told["alternatives"]:
        facts[f"alternative {alternative['name']}"] = [
            float(alternative["fired"]),
            *_numbers(alternative["why"]),
        ]
    return facts | {f"evidence {i}": _numbers(text) for i, text in enumerate(told["evidence"])}


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            if key not in WORDS:
                yield from _flat(f"{name}.{key}".lstrip("."), one)
    elif value:
        yield name, float(f"{value:.7g}") if isinstance(value, float) else value


def _numbers(text: str) -> list[float]:
    """Return the numbers of a sentence; those within names, such as `aten::conv2d`, are none."""
    return [float(one.replace(",", "")) for one in re.findall(r"(?<![\w.#`:])\d[\d,]*\.?\d*", text)]


def read_facts() -> dict[str, dict[str, Any]]:
    return json.loads(FACTS.read_text(encoding="utf-8"))


def write_facts(facts: dict[str, dict[str, Any]]) -> None:
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in facts.items()]
    FACTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

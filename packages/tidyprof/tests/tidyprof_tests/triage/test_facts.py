"""The numbers that triage finds in each stored trace, against `facts.json`.

A person looked through the file when it was written. If you change a rule on purpose, write the
file again and review what moved:

    WRITE_FACTS=1 pytest packages/tidyprof/tests/tidyprof_tests/triage/test_facts.py
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof.diagnosis.verdict import as_json
from tidyprof_tests.conftest import STRANGERS
from tidyprof_tests.triage.gpu_programs import FORMS, triaged

FACTS = Path(__file__).with_name("facts.json")
EXPECTED = tomllib.loads((Path(__file__).parent / "expected.toml").read_text(encoding="utf-8"))
PUBLIC = [name for name in EXPECTED if EXPECTED[name]["cause"] != "refused"]
SCRIPTS = sorted(path.name for path in (STRANGERS / "traces").iterdir())
PROGRAMS = [f"{name}/{form}/{how}" for name, form in FORMS for how in ("given", "alone")]
WORDS = {"rank_files", "source", "loader", "apart", "foreign", "offered"}
"""Signs that are sentences, or paths of this machine."""


def facts_of(found: tidyprof.Diagnosis) -> dict[str, Any]:
    """Return the numbers and names of a diagnosis, without what is zero or empty."""
    told = json.loads(as_json(found))
    facts = {name: told[name] for name in ("cause", "share", "sure")}
    facts |= dict(_flat("", {"signs": told["signs"]}))
    for rival in told["rivals"]:
        facts[f"rival {rival['name']}"] = [float(rival["fired"]), *_numbers(rival["why"])]
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


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, str | None) or isinstance(found, str | None):
        return expected == found
    return found == pytest.approx(expected, rel=1e-4)


def read_facts() -> dict[str, dict[str, Any]]:
    return json.loads(FACTS.read_text(encoding="utf-8"))


def found_in(path: Path) -> tidyprof.Diagnosis:
    return tidyprof.triage(tidyprof.read(path, python_functions=True))


def check(name: str, found: tidyprof.Diagnosis) -> None:
    facts = facts_of(found)
    if "WRITE_FACTS" in os.environ:
        lines = [
            f" {json.dumps(key)}: {json.dumps(one)}"
            for key, one in (read_facts() | {name: facts}).items()
        ]
        FACTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    expected = read_facts()[name]
    moved = {
        key: (expected.get(key), facts.get(key))
        for key in expected.keys() | facts.keys()
        if not _same(expected.get(key), facts.get(key))
    }
    assert not moved
    shares = found.signs.shares
    assert all(0 <= share <= 1 + 1e-9 for share in (found.share, *shares.values()))
    assert not found.signs.step_ns or sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_recording_has_its_numbers(name: str, recordings: Path) -> None:
    check(name, found_in(recordings / name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_a_third_party_has_its_numbers(name: str) -> None:
    check(name, found_in(STRANGERS / "traces" / name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_a_gpu_has_its_numbers(name: str) -> None:
    check(name, triaged(*name.split("/")))

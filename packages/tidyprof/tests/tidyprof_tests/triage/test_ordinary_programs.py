"""Truths about ordinary programs in packages/tidyprof/tests/strangers/ordinary: each names what is
there, in words that triage has.

No test runs the programs: each takes half a minute, and the truths are for a tool that runs them
whole.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.one_word import programs
from tidyprof_tests.conftest import REPOSITORY, STRANGERS

ORDINARY = STRANGERS / "ordinary"
ODD = ORDINARY / "odd"
LAUNCHERS = ("python", "torchrun --nproc-per-node 2")


def truths(folder: Path) -> dict[str, dict]:
    return tomllib.loads((folder / "truth.toml").read_text(encoding="utf-8"))


def verdicts() -> set[str]:
    """The words of the table of rules in docs/triage.md, and the one for no verdict."""
    rules = (
        (REPOSITORY / "docs/triage.md")
        .read_text(encoding="utf-8")
        .split("\n## The rules\n")[1]
        .split("\n## ")[0]
    )
    return {*re.findall(r"^\| `([a-z-]+)` \|", rules, re.MULTILINE), "can't tell"}


@pytest.mark.parametrize("name", truths(ORDINARY))
def test_truth_of_an_ordinary_program_is_whole(name: str):
    truth = truths(ORDINARY)[name]
    source = (ORDINARY / truth["program"]).read_text(encoding="utf-8")
    options = [word for word in truth["arguments"] if word.startswith("--")]
    assert truth["launcher"] in LAUNCHERS
    assert [f'"{option}"' in source for option in options] == [True] * len(options)
    assert {*truth["cause"], *truth["wrong"]} <= verdicts()
    assert truth["cause"]
    assert not {*truth["cause"]} & {*truth["wrong"]}
    assert truth["steps"] >= 60
    assert 0 < truth["step_ms"][0] < truth["step_ms"][1]
    assert all(truth[word] for word in ("why", "step"))
    assert bool(truth["cure"]) == (truth["cause"][0] != "healthy")
    assert [0 <= low < high <= 1 for low, high in [truth["share"]]] if "share" in truth else True


def test_each_ordinary_program_has_a_truth_and_most_have_two():
    programs = [truth["program"] for truth in truths(ORDINARY).values()]
    assert {*programs} == {path.name for path in ORDINARY.glob("*.py")}
    assert sum(programs.count(program) > 1 for program in {*programs}) >= 10


def test_each_ordinary_program_has_a_command_with_its_launcher():
    commands = {program.name: program.command for program in programs()}
    assert {*truths(ORDINARY)} <= {*commands}
    assert commands["ddp_even"][1:-1] == (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    )


@pytest.mark.parametrize("path", sorted(ORDINARY.glob("*.py")), ids=lambda path: path.stem)
def test_an_ordinary_program_says_nothing_about_profiling(path: Path):
    assert re.findall(r"profil|perf_counter|tidyprof", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", truths(ODD))
def test_truth_of_an_odd_program_is_whole(name: str):
    truth = truths(ODD)[name]
    started = [word for word in truth["command"] if (ODD / word).exists()]
    assert len(started) == 1
    assert 0 <= truth["exit"] < 256
    assert all(truth[word] for word in ("command", "why", "right"))
    assert truth["steps"] >= 0
    assert isinstance(truth["output"], list)


def test_each_odd_program_has_a_truth():
    started = {Path(word).name for truth in truths(ODD).values() for word in truth["command"]}
    assert {
        path.name for path in ODD.iterdir() if path.name not in ("truth.toml", "__pycache__")
    } <= started

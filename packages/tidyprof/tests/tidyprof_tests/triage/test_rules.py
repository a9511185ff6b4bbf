"""Each rule on facts that are written down here: it has its cause, and its alternatives don't."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tidyprof.tables.contract import EVENT_DTYPES, Profile
from tidyprof.triage import device_parts, host_parts
from tidyprof.triage.confidence import INCONCLUSIVE, NO_BOTTLENECK
from tidyprof.triage.facts import AMD, DEFINITIONS, NVIDIA, OTHER, Facts, Gap
from tidyprof.triage.printers import as_json
from tidyprof.triage.profiler_overhead import Estimate, Overhead
from tidyprof.triage.recording import vendor_of
from tidyprof.triage.rules import RULES
from tidyprof.triage.run_facts import Run, comes_once
from tidyprof.triage.verdict import Diagnosis, diagnose, judge
from tidyprof_tests.triage.traces import MS, blamed, check_laws, verdict

RULE_CASES = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
CAUSES = RULE_CASES["causes"]
RANKS = pd.DataFrame({"rank": [0, 1], "wait_ns": [40.0, 0.0]})
Made = dict[str, Any]
"""Parts, facts and fields of a run, as rules.toml has them."""


def run(made: Made) -> Run:
    """Return a run with steps of 100 ms, which compute for what these parts leave over."""
    late = made.get("late_rank", False)
    made = RULE_CASES["usual"] | (RULE_CASES["late_rank"] if late else {}) | made
    names = host_parts.PARTS if made.get("on_host") else device_parts.PARTS
    others = {*names, "unseen", "waiting_straggler", "waiting_launch", "waiting_ranks"}
    parts = dict.fromkeys(names, 0.0)
    parts |= {name: value * MS for name, value in made.items() if name in others}
    parts["compute"] = 100 * MS - sum(parts.values())
    known = {name: made[name] for name in made.keys() & DEFINITIONS.keys() - {made.get("unknown")}}
    overhead = Overhead(100 * MS, **made.get("overhead", {}))
    if overhead.estimated:
        overhead = replace(overhead, estimated=Estimate(*overhead.estimated))
    return Run(
        Facts(known),
        parts,
        overhead,
        on_host=made.get("on_host", False),
        marked=made.get("marked", True),
        rank_table=RANKS if late else None,
    )


def judged(**made: Any) -> Diagnosis:
    found = judge(run(made), ("measured",))
    check_laws(found)
    return found


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_is_told_from_its_alternatives(cause: str) -> None:
    found = judged(**CAUSES[cause])
    assert (*verdict(found), blamed(found)) == (cause, True, {cause})
    assert found.why
    assert found.next_step


def test_every_rule_has_a_case() -> None:
    assert {rule.cause for rule in RULES} | {NO_BOTTLENECK} == set(CAUSES)


@pytest.mark.parametrize("made", RULE_CASES["open"], ids=str)
def test_what_leaves_the_cause_open_is_inconclusive(made: dict[str, Made]) -> None:
    found = judged(**made["run"])
    assert verdict(found) == (INCONCLUSIVE, False)
    assert found.next_step
    assert judged(**made["run"] | made["control"]).cause != INCONCLUSIVE


def test_a_step_without_length_is_inconclusive() -> None:
    assert judge(Run(Facts({}), {"compute": 0.0}), ()).cause == INCONCLUSIVE


@pytest.mark.parametrize("made", RULE_CASES["doubt"], ids=str)
def test_a_doubt_takes_the_confidence_and_not_the_cause(made: dict[str, Made]) -> None:
    found, sound = judged(**made["run"]), judged(**made["run"] | made["control"])
    assert (found.cause, found.confident, sound.confident) == (sound.cause, False, True)


@pytest.mark.parametrize("cause", RULE_CASES["leading"])
def test_the_larger_cause_leads(cause: str) -> None:
    for made in RULE_CASES["leading"][cause]:
        assert judged(**made).cause == cause, made


def test_one_time_work_of_other_steps_counts() -> None:
    assert judged(start_up=30, startup_share=0.7).share == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("share", "over_second", "once"), [(0.9, 20, True), (0.4, 20, False), (0.9, 2.9, False)]
)
def test_an_idle_interval_that_stands_out_comes_once(
    share: float, over_second: float, once: bool
) -> None:
    assert comes_once(Gap(8e7, share, over_second, {})) == once


@pytest.mark.parametrize(
    ("made", "advised"),
    [
        ({"vendor": NVIDIA}, {"batch", "torch.compile", "optimizer", "graphs"}),
        ({}, {"batch", "torch.compile", "optimizer"}),
        ({"compiled": True}, {"batch", "optimizer"}),
        ({"vendor": NVIDIA, "graph_share": 0.5}, {"batch", "torch.compile", "optimizer"}),
        ({"tool": "rocprofv3", "operators": 0}, {"graphs", "fewer kernels"}),
    ],
)
def test_advice_is_what_the_program_can_do(made: Made, advised: set[str]) -> None:
    known = {"batch", "torch.compile", "optimizer", "graphs", "fewer kernels"}
    advice = judged(launch_bound=70, **made).next_step
    assert {word for word in known if word in advice} == advised


NO_EVENTS = pd.DataFrame(columns=list(EVENT_DTYPES)).astype(EVENT_DTYPES)
AMD_ONLY = re.compile("rocprof|amd-smi")


@pytest.mark.parametrize("vendor", [NVIDIA, OTHER])
def test_no_tool_of_another_vendor_is_advised(vendor: str) -> None:
    open_ones = [made["run"] for made in RULE_CASES["open"]]
    for made in (*CAUSES.values(), *open_ones):
        assert not AMD_ONLY.search(as_json(judged(**made, vendor=vendor)))
    without_timeline = Run(Facts({"tool": "torch.profiler", "vendor": vendor}))
    assert not AMD_ONLY.search(as_json(judge(without_timeline, ())))
    assert AMD_ONLY.search(as_json(judged(**CAUSES[NO_BOTTLENECK])))


@pytest.mark.parametrize(
    ("meta", "vendor"),
    [
        ({"backend": "cuda"}, NVIDIA),
        ({"gpu": "Tesla V100-SXM2-32GB"}, NVIDIA),
        ({"gpu": "NVIDIA H200", "backend": "cpu"}, NVIDIA),
        ({"backend": "xpu"}, OTHER),
        ({"gpu": "AMD Instinct MI100"}, AMD),
        ({"gpu": "AMD Radeon AI PRO R9700"}, AMD),
        ({}, AMD),
    ],
)
def test_the_vendor_of_the_gpu(meta: dict[str, str], vendor: str) -> None:
    assert vendor_of(Profile(NO_EVENTS, meta={"events_by_category": {}} | meta)) == vendor


def test_no_profile_is_an_error() -> None:
    with pytest.raises(ValueError, match="profile"):
        diagnose([])


def test_a_loop_is_a_round_that_comes_twenty_times_in_a_row() -> None:
    others = np.arange(1000, 1100)
    rounds = np.tile([1, 2, 3], host_parts.ROUNDS)
    found = host_parts.in_loops(np.concatenate((others, rounds, others + 100)))
    assert np.flatnonzero(found).tolist() == list(range(100, 100 + len(rounds)))
    assert not host_parts.in_loops(np.concatenate((others, rounds[:-3], others + 100))).any()

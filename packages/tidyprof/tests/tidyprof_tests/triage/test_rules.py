"""Each rule on facts that are written down here: it has its cause, and its alternatives don't."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tidyprof.tables.contract import COUNTER_DTYPES, EVENT_DTYPES, Profile
from tidyprof.triage import device_parts, host_parts
from tidyprof.triage.confidence import INCONCLUSIVE, NO_BOTTLENECK
from tidyprof.triage.facts import AMD, NVIDIA, OTHER, Facts, Gap, Most
from tidyprof.triage.printers import as_json
from tidyprof.triage.profiler_overhead import Estimate, Overhead
from tidyprof.triage.recording import vendor_of
from tidyprof.triage.rules import RULES
from tidyprof.triage.run_facts import Run, comes_once
from tidyprof.triage.verdict import Diagnosis, diagnose, judge
from tidyprof_tests.triage.traces import MS, blamed, check_laws, facts, verdict

USUAL = {
    "tool": "torch.profiler",
    "vendor": AMD,
    "rocm": "7.1",
    "steps": 5,
    "judged_steps": 4,
    "first_step_ratio": 1.0,
    "calls": 1000,
    "operators": 500,
    "kernels": 1000,
    "copies_to_device": 2,
    "waiting_calls": 1,
    "trains": True,
    "loading_share": 0.0,
    "top_kernel": "gemm",
    "top_kernel_share": 0.3,
    "top_kernel_calls": 10,
    "top_kernel_category": "GEMM",
}
RUN_FIELDS = ("on_host", "marked", "overhead", "rank_table")
Made = dict[str, Any]
"""Parts of the step in ms, fields of Run, and facts."""


def run(made: Made) -> Run:
    """Return a run with steps of 100 ms, which compute for what these parts leave over."""
    names = host_parts.PARTS if made.get("on_host") else device_parts.PARTS
    parts = dict.fromkeys(names, 0.0)
    others = {*parts, "unseen", "waiting_straggler", "waiting_launch", "waiting_ranks"}
    parts |= {name: value * MS for name, value in made.items() if name in others}
    if "compute" not in made:
        parts["compute"] = 100 * MS - sum(parts.values())
    known = {name: made[name] for name in made if name not in {*others, *RUN_FIELDS}}
    overhead = replace(made.get("overhead", Overhead()), traced_ns=100 * MS)
    return Run(
        Facts(USUAL | known),
        parts,
        overhead,
        made.get("on_host", False),
        made.get("marked", True),
        made.get("rank_table"),
    )


def judged(**made: Any) -> Diagnosis:
    found = judge(run(made), ("measured",))
    check_laws(found)
    return found


RANKS = {
    "ranks": 2,
    "world_size": 2,
    "straggler": 1,
    "straggler_excess": 0.4,
    "straggler_part": "compute",
    "rank_table": pd.DataFrame({"rank": [0, 1], "wait_ns": [40.0, 0.0]}),
}
CASES: dict[str, Made] = {
    "exposed-copies": {"exposed_copy": 40},
    "allocator-churn": {"allocation": 40, "allocations": 200},
    "input-bound": {"data_wait": 40},
    "recompilation": {"compiling": 40},
    "outside-torch": {"silent": 90},
    "sync-bound": {"blocked_host": 40, "stalled": 10, "fetching": 5, "allocation": 10},
    "startup": {"launch_bound": 10, "first_step_ratio": 9.0},
    "straggler": {"waiting_straggler": 40, **RANKS},
    "exposed-communication": {"exposed_communication": 40, "world_size": 8},
    "operator-overhead": {"on_host": True, "small": 60, "between": 20},
    "launch-bound": {"launch_bound": 60, "waiting_launch": 10},
    "power-capped": {"capped_share": 0.9},
    "dominant-kernel": {"top_kernel_share": 0.8, "top_kernel_roof_share": 0.1},
    NO_BOTTLENECK: {"launch_bound": 10, "data_wait": 10},
}


@pytest.mark.parametrize("cause", CASES)
def test_a_cause_is_told_from_its_alternatives(cause: str) -> None:
    found = judged(**CASES[cause])
    assert (*verdict(found), blamed(found)) == (cause, True, {cause})
    assert found.why
    assert found.next_step


def test_every_rule_has_a_case() -> None:
    assert {rule.cause for rule in RULES} | {NO_BOTTLENECK} == set(CASES)


REPLAYS = {"graph_share": 0.9, "graph_replays": 6}
NOT_HEARD = {"calls": 0, "operators": 0, "marked": False}


@pytest.mark.parametrize(
    ("made", "control"),
    [
        (dict.fromkeys(device_parts.PARTS, 0), {}),
        ({"cpu_steal_share": 0.6}, {"cpu_steal_share": 0.5}),
        ({"launch_bound": 98, "captured_share": 1.0}, {"captured_share": 0.4}),
        ({"launches": 90, "launches_without_work": 31}, {"launches_without_work": 29}),
        ({"clock_conflict_share": 0.4, "clock_offset_ns": 2e7}, {"clock_conflict_share": 0.3}),
        ({"blocked_host": 50, **REPLAYS, "empty_replays": 3}, {"empty_replays": 2}),
        ({"launch_bound": 50, "unlinked_share": 0.4}, {"unlinked_share": 0.3}),
        ({"other": 30, **NOT_HEARD}, {"other": 19}),
        ({"other": 30, **REPLAYS, "largest_replay": 390, "median_replay": 14}, {"other": 19}),
        ({"unseen": 30}, {"unseen": 19}),
        ({"other_programs": 30}, {"other_programs": 19}),
        ({"waiting_ranks": 30}, {"waiting_ranks": 19}),
        ({"waiting_ranks": 30, "launch_bound": 29, **RANKS}, {"waiting_ranks": 28}),
    ],
)
def test_what_leaves_the_cause_open_is_inconclusive(made: Made, control: Made) -> None:
    found = judged(**made)
    assert verdict(found) == (INCONCLUSIVE, False)
    assert found.next_step
    assert judged(**(made | control) if control else {}).cause != INCONCLUSIVE


ESTIMATED = Overhead(cost_ns=3e7, estimated=Estimate(6e7, 7e7, 8e7, (6e7, 8e7)))
LONGER = Overhead(measured_ns=1.3e8)
OF_HOST = {"on_host": True, "off_cpu_share": 0.0}


@pytest.mark.parametrize(
    ("made", "control"),
    [
        ({"data_wait": 30, "blocked_host": 25}, {"blocked_host": 15}),
        ({"data_wait": 30, "other": 25}, {"other": 15}),
        ({"data_wait": 21}, {"data_wait": 27}),
        ({"launch_bound": 70, "waiting_calls": 100}, {"waiting_calls": 50}),
        ({"launch_bound": 43}, {"launch_bound": 47}),
        ({"data_wait": 30, "judged_steps": 1}, {"data_wait": 60}),
        ({"data_wait": 60, "overhead": LONGER}, {"overhead": replace(LONGER, measured_ns=1e8)}),
        ({"launch_bound": 60, **REPLAYS, "empty_replays": 1}, {"empty_replays": 0}),
        ({"launch_bound": 60, **REPLAYS, "largest_replay": 390, "median_replay": 190},
         {"median_replay": 200}),
        ({"silent": 70, "outside_part": "between steps", "loading_share": None},
         {"outside_function": "train.py(3): save"}),
        (
            {"silent": 70, "compiled": True, "outside_part": "forward"},
            {"outside_part": "validation"},
        ),
        ({"silent": 70, "cpu_steal_share": 0.5}, {"cpu_steal_share": 0.4}),
        ({"silent": 70, **OF_HOST, "off_cpu_share": None}, {"off_cpu_share": 0.4}),
        ({"silent": 70, **OF_HOST, "off_cpu_share": 0.7}, {"cpu_steal_share": 0.0}),
        ({"silent": 70, **OF_HOST, "cpu_steal_share": 0.5}, {"cpu_steal_share": 0.4}),
        ({"waiting_launch": 60, "always_last": 2}, {"always_last": None}),
        ({"data_wait": 60, "measured_data_share": 0.3}, {"measured_data_share": 0.5}),
        ({"data_wait": 60, "launches": 90, "launches_without_work": 5},
         {"launches_without_work": 4}),
        ({"data_wait": 60, "clock_conflict_share": 0.05}, {"clock_conflict_share": 0.04}),
        ({"launch_bound": 60, "least_busy_device": 0.1, "most_busy_device": 0.5},
         {"least_busy_device": 0.3}),
        ({"launch_bound": 60, "overhead": Overhead(rare_share=0.3)}, {"overhead": Overhead()}),
        ({"launch_bound": 60, "overhead": Overhead(is_open=True)}, {"overhead": Overhead()}),
        ({"launch_bound": 45, "overhead": ESTIMATED}, {"launch_bound": 80}),
    ],
)  # fmt: skip
def test_a_doubt_takes_the_confidence_and_not_the_cause(made: Made, control: Made) -> None:
    found, sound = judged(**made), judged(**made | control)
    assert (found.cause, found.confident, sound.confident) == (sound.cause, False, True)


@pytest.mark.parametrize(
    ("made", "control"),
    [
        ({"data_wait": 19}, {"data_wait": 15}),
        ({"data_wait": 12, "exposed_copy": 12, "launch_bound": 12}, {"data_wait": 5}),
        (
            {"unknown_collective": Most("all2all", 0.2)},
            {"unknown_collective": Most("all2all", 0.1)},
        ),
        ({"least_busy_device": 0.5, "most_busy_device": 1.0}, {"least_busy_device": 0.8}),
        ({"launches": 90, "launches_without_work": 5}, {"launches_without_work": 4}),
        ({"clock_conflict_share": 0.05}, {"clock_conflict_share": 0.04}),
        ({"on_host": True, "other_programs": 30}, {"other_programs": 15}),
        ({"on_host": True, "measured_data_share": 0.3}, {"measured_data_share": 0.1}),
        ({"on_host": True, "measured_between_share": 0.3}, {"measured_between_share": 0.1}),
    ],
)
def test_a_run_that_may_have_a_cause_is_healthy_without_confidence(
    made: Made, control: Made
) -> None:
    assert verdict(judged(**made)) == (NO_BOTTLENECK, False)
    assert verdict(judged(**made | control)) == (NO_BOTTLENECK, True)


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        ({"exposed_communication": 21, "launch_bound": 38}, "launch-bound"),
        ({"exposed_communication": 38, "launch_bound": 21}, "exposed-communication"),
        ({"blocked_host": 30, "launch_bound": 50}, "launch-bound"),
        ({"blocked_host": 30, "launch_bound": 50, "waiting_calls": 100}, "sync-bound"),
        ({"launch_bound": 25, "top_kernel_share": 0.9}, "launch-bound"),
        ({"allocation": 40, "allocations": 0.5}, NO_BOTTLENECK),
        ({"exposed_copy": 12, "fetching": 12}, "exposed-copies"),
        ({"exposed_copy": 2, "fetching": 22}, "sync-bound"),
        ({"data_wait": 60, "copies_to_device": 64}, "exposed-copies"),
        ({"data_wait": 60, "copies_to_device": 64, "batches": 2}, "exposed-copies"),
        ({"data_wait": 60, "copies_to_device": 25, "batches": 6}, "input-bound"),
        ({"data_wait": 60, "copies_to_device": 80, "marked": False}, "input-bound"),
        ({"graph_share": 0.9}, NO_BOTTLENECK),
        ({"top_kernel_share": 0.9, "top_kernel_category": "collective"}, NO_BOTTLENECK),
    ],
)
def test_the_larger_cause_leads(made: Made, cause: str) -> None:
    assert judged(**made).cause == cause


def test_one_time_work_of_other_steps_counts() -> None:
    assert judged(start_up=30, startup_share=0.7).share == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("gap", "heard", "once"),
    [
        ({}, True, True),
        ({"share": 0.4}, True, False),
        ({"over_second": 2.9}, True, False),
        ({}, False, False),
        ({"is_first": True}, False, True),
    ],
)
def test_an_idle_interval_that_stands_out_comes_once(gap: Made, heard: bool, once: bool) -> None:
    alone = Gap(8e7, 0.9, 20.0, "hipModuleLoadData", False, {})
    assert comes_once(alone._replace(**gap), heard) == once


OF_ROCPROF = {"tool": "rocprofv3", "operators": 0, "trains": False}


@pytest.mark.parametrize(
    ("made", "advised"),
    [
        ({}, {"batch", "torch.compile", "optimizer", "graphs"}),
        ({"trains": False}, {"batch", "torch.compile", "graphs"}),
        ({"compiled": True, "trains": False}, {"batch", "graphs"}),
        ({"graph_share": 0.5}, {"batch", "torch.compile", "optimizer"}),
        (OF_ROCPROF, {"graphs", "fewer kernels"}),
    ],
)
def test_advice_is_what_the_program_can_do(made: Made, advised: set[str]) -> None:
    known = {"batch", "torch.compile", "optimizer", "graphs", "fewer kernels"}
    advice = judged(launch_bound=70, **made).next_step
    assert {word for word in known if word in advice} == advised


@pytest.mark.parametrize(
    ("releases", "vendor", "safe"),
    [
        (("7.2.0", "7.2.1", "7.2.3", "7.2.3-81", "", "7.2", "7"), AMD, False),
        (("6.4", "7.1", "7.1.3", "7.2.4", "7.2.10", "7.14", "10.0", "10"), AMD, True),
        (("", "7.2.1"), NVIDIA, True),
    ],
)
def test_graphs_are_no_advice_where_they_compute_wrongly(
    releases: tuple[str, ...], vendor: str, safe: bool
) -> None:
    for release in releases:
        found = judged(launch_bound=70, rocm=release, vendor=vendor)
        assert ("graphs" in found.next_step) == safe, release


def test_only_what_the_files_can_show_is_ruled_out() -> None:
    def alternatives(**made: Any) -> set[str]:
        return {one.cause for one in judged(**made).alternatives}

    heard = {"exposed-copies", "allocator-churn", "sync-bound", "startup", "launch-bound"}
    assert heard < alternatives(data_wait=60)
    for operators in (0, 500):
        assert not heard & alternatives(data_wait=60, calls=0, operators=operators)
    assert "straggler" not in alternatives(exposed_communication=60)
    assert "straggler" in alternatives(exposed_communication=60, **RANKS)
    assert "input-bound" not in alternatives(launch_bound=60, loading_share=None)
    assert "power-capped" not in alternatives(launch_bound=60)


AMD_ONLY = re.compile("rocprof|amd-smi")


@pytest.mark.parametrize("vendor", [NVIDIA, OTHER])
def test_no_tool_of_another_vendor_is_advised(vendor: str) -> None:
    open_ones = ({"other": 50, **NOT_HEARD}, {"other": 50, **NOT_HEARD, "power_log": True})
    for made in (*CASES.values(), *open_ones):
        assert not AMD_ONLY.search(as_json(judged(**made, vendor=vendor)))
    without_timeline = Run(Facts({"tool": "torch.profiler", "vendor": vendor}))
    assert not AMD_ONLY.search(as_json(judge(without_timeline, ())))
    assert AMD_ONLY.search(as_json(judged(**CASES[NO_BOTTLENECK])))


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
    profile = power_log([745], 100)
    known = profile.meta | {"events_by_category": {}} | meta
    assert vendor_of(replace(profile, meta=known)) == vendor


def power_log(power: list[float], busy: float, *caps: float) -> Profile:
    """A sample per second of one device."""
    samples = {"power": power, "gpu_busy": [busy] * len(power), "power_cap": caps}
    rows = [
        (second, 0, name, value, "")
        for name, values in samples.items()
        for second, value in enumerate(values)
    ]
    table = pd.DataFrame(rows, columns=list(COUNTER_DTYPES)).astype(COUNTER_DTYPES)
    no_events = pd.DataFrame(columns=list(EVENT_DTYPES)).astype(EVENT_DTYPES)
    return Profile(no_events, table, {"tool": "system monitor"})


@pytest.mark.parametrize(
    ("log", "cause", "share"),
    [
        (power_log([745, 748, 750, 500], 100, 750), "power-capped", 0.75),
        (power_log([745, 500, 500, 500], 100, 750), INCONCLUSIVE, 0.25),
        (power_log([745, 748, 750, 500], 50, 750), INCONCLUSIVE, None),
        (power_log([745, 748, 750, 500], 100), INCONCLUSIVE, None),
    ],
    ids=["at the cap", "rarely", "not busy", "cap not known"],
)
def test_only_busy_samples_at_a_known_cap_count(
    log: Profile, cause: str, share: float | None
) -> None:
    found = diagnose(log)
    assert (found.cause, facts(found).get("capped_share")) == (cause, share)


def test_no_profile_is_an_error() -> None:
    with pytest.raises(ValueError, match="no profile"):
        diagnose([])


def test_a_loop_is_a_round_that_comes_twenty_times_in_a_row() -> None:
    others = np.arange(1000, 1100)
    rounds = np.tile([1, 2, 3], host_parts.ROUNDS)
    found = host_parts.in_loops(np.concatenate((others, rounds, others + 100)))
    assert np.flatnonzero(found).tolist() == list(range(100, 100 + len(rounds)))
    assert not host_parts.in_loops(np.concatenate((others, rounds[:-3], others + 100))).any()


@pytest.mark.parametrize(("roof", "word"), [(0.1, "far"), (0.9, "near"), (1.45, "wrong")])
def test_a_kernel_above_its_roof_is_not_praised(roof: float, word: str) -> None:
    why = judged(top_kernel_share=0.8, top_kernel_roof_share=roof).why
    assert [one for one in ("far", "near", "wrong") if f" {one}" in why] == [word]

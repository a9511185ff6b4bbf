"""Each rule on signs made by hand: it fires, its rival does not, and where nothing is known nothing
is said.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tidyprof.diagnosis import on_device, on_host
from tidyprof.diagnosis.causes import CAUSES, LIMIT, _kernel_words
from tidyprof.diagnosis.host_facts import HostFacts, Most
from tidyprof.diagnosis.indicators import Excess, Signs
from tidyprof.diagnosis.on_device import SlowLaunches
from tidyprof.diagnosis.recordings import AMD, NVIDIA, OTHER, vendor_of
from tidyprof.diagnosis.verdict import COMMANDS, INCONCLUSIVE, NO_BOTTLENECK, as_json, judge, triage
from tidyprof.tables.contract import COUNTER_DTYPES, EVENT_DTYPES, Profile

HOST = HostFacts(1000, 500, "", None, 0, False, True, "")
GEMM = {"short_name": "gemm", "percent": 30.0, "calls": 10, "category": "GEMM"}


def made_signs(shares: dict[str, float] | None = None, **more: object) -> Signs:
    """A run of five steps of 100 ms that computes for what the shares leave over."""
    parts = on_host.PARTS if more.get("on_host") else on_device.PARTS
    shares = dict.fromkeys(parts, 0.0) | (shares or {})
    shares["compute"] = 1 - sum(value for name, value in shares.items() if name != "compute")
    counts = {
        "kernels": 1000,
        "copies_to_device": 2,
        "batches": 0,
        "waiting_calls": 1,
        "allocations": 0,
    }
    known = {
        "steps": 5,
        "steady": 4,
        "marked": True,
        "step_ns": 1e8,
        "calls": 1000,
        "operators": 500,
        "first_step": 1.0,
    }
    known |= {"top_kernel": GEMM, "host": HOST}
    counts |= more.pop("per_step", {})
    if (table := more.get("rank_table")) is not None:
        known["waiting"] = float(table["wait_ns"].sum() / table["total_ns"].sum())
    return replace(Signs("torch.profiler", "7.2"), shares=shares, per_step=counts, **(known | more))


def rank_table(waits: tuple[float, ...], transfer: float, straggler: int | None) -> pd.DataFrame:
    table = pd.DataFrame(
        {"rank": range(len(waits)), "wait_ns": waits, "transfer_ns": transfer, "total_ns": 100.0}
    )
    table["compared"], table["arrived_last"] = 5, 1
    table.loc[table["rank"] == straggler, "arrived_last"] = 5
    table.attrs |= {"straggler": straggler, "evidence": "Who waits for whom."}
    return table


SEVERAL = {"ranks": 4, "world_size": 4}
CASES = {
    "allocator-churn": made_signs({"allocation": 0.4}, per_step={"allocations": 200}),
    "sync-bound": made_signs({"blocked_host": 0.4, "allocation": 0.1, "stalled": 0.2}),
    "input-bound": made_signs({"data_wait": 0.4}),
    "exposed-copies": made_signs({"data_wait": 0.4}, per_step={"copies_to_device": 64}),
    "recompilation": made_signs({"silent": 0.9}, step_ns=5e9, host=replace(HOST, compiled=True)),
    "outside-torch": made_signs({"silent": 0.9}, step_ns=5e9),
    "startup": made_signs({"launch_bound": 0.1}, first_step=9.0, first_alone=9.0),
    "launch-bound": made_signs({"launch_bound": 0.7}),
    "exposed-communication": made_signs({"exposed_communication": 0.4}, world_size=8),
    "straggler": made_signs(
        {"exposed_communication": 0.4},
        rank_table=rank_table((40, 40, 40, 0), 1, 3),
        excess=Excess(0.35, "silent"),
        **SEVERAL,
    ),
    "operator-overhead": made_signs({"between": 0.3}, on_host=True, small=0.6),
    "dominant-kernel": made_signs(top_kernel=GEMM | {"percent": 80.0}, roof_share=0.1),
    "power-capped": made_signs(capped_share=0.9),
    NO_BOTTLENECK: made_signs({"launch_bound": 0.1, "data_wait": 0.1}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cause_is_told_from_its_rivals(name: str):
    diagnosis = judge(CASES[name], ("measured",))
    assert (diagnosis.cause, diagnosis.confident) == (name, True)
    assert [alternative.name for alternative in diagnosis.alternatives if alternative.fired] == []
    assert diagnosis.next_step


def test_every_cause_has_a_case():
    assert {cause.name for cause in CAUSES} | {NO_BOTTLENECK} == set(CASES)


@pytest.mark.parametrize("rank_lateness", [0.0, LIMIT - 0.01])
def test_a_rank_that_is_late_but_does_no_more_than_others_is_not_blamed(rank_lateness: float):
    table = rank_table((30, 30, 30, 0), 1, 3)
    shares = {"exposed_communication": 0.3, "launch_bound": 0.5}
    diagnosis = judge(
        made_signs(shares, rank_table=table, excess=Excess(rank_lateness, "compute"), **SEVERAL), ()
    )
    assert diagnosis.cause == "launch-bound"


def test_the_rank_that_waits_least_sets_the_pace():
    shares = {"exposed_communication": 0.5, "launch_bound": 0.15}
    late = made_signs(shares, rank_table=rank_table((60, 60, 60, 0), 1, 3), **SEVERAL)
    assert judge(replace(late, pace=0.75), ()).cause == "launch-bound"
    assert judge(replace(late, pace=0.10), ()).cause == INCONCLUSIVE


def test_ranks_that_wait_for_changing_ones_are_no_slow_network():
    table = rank_table((30, 30, 30, 30), 1, None)
    diagnosis = judge(made_signs({"exposed_communication": 0.35}, rank_table=table, **SEVERAL), ())
    assert diagnosis.cause == INCONCLUSIVE
    assert diagnosis.title == (
        "ranks wait 30 % of the time in collectives for the last one to come, but no rank has so"
        " much more work than the others: they are late in turn, or one lags since its start"
    )
    slow = rank_table((1, 1, 1, 1), 40, None)
    assert (
        judge(made_signs({"exposed_communication": 0.35}, rank_table=slow, **SEVERAL), ()).cause
        == "exposed-communication"
    )


def test_two_causes_that_are_about_equal_are_not_sure():
    diagnosis = judge(made_signs({"data_wait": 0.30, "blocked_host": 0.25}), ())
    assert (diagnosis.cause, diagnosis.confident) == ("input-bound", False)
    assert [alternative.name for alternative in diagnosis.alternatives if alternative.fired] == [
        "sync-bound"
    ]


def test_ranges_of_the_compiler_hide_no_silent_host():
    assert judge(made_signs({"silent": 0.5}, compiling=0.01), ()).cause == "outside-torch"
    assert judge(made_signs({"silent": 0.5}, compiling=0.6), ()).cause == "recompilation"


def test_one_step_is_sure_of_large_causes_alone():
    one = {"steps": 1, "steady": 1, "first_step": None}
    assert not judge(made_signs({"data_wait": 0.3}, **one), ()).confident
    assert judge(made_signs({"data_wait": 0.6}, **one), ()).confident


@pytest.mark.parametrize(
    ("share", "cause", "confident"),
    [
        (0.10, NO_BOTTLENECK, True),
        (0.19, NO_BOTTLENECK, False),
        (0.21, "input-bound", False),
        (0.27, "input-bound", True),
    ],
)
def test_near_the_limit_nothing_is_sure(share: float, cause: str, confident: bool):
    diagnosis = judge(made_signs({"data_wait": share}), ())
    assert (diagnosis.cause, diagnosis.confident) == (cause, confident)


def test_several_small_causes_are_no_sure_health():
    small = made_signs(dict.fromkeys(("data_wait", "exposed_copy", "launch_bound"), 0.12))
    assert (judge(small, ()).cause, judge(small, ()).confident) == (NO_BOTTLENECK, False)


def test_the_larger_cause_leads():
    assert (
        judge(made_signs({"exposed_communication": 0.21, "launch_bound": 0.38}), ()).cause
        == "launch-bound"
    )
    assert (
        judge(made_signs({"exposed_communication": 0.38, "launch_bound": 0.21}), ()).cause
        == "exposed-communication"
    )
    one_kernel = made_signs({"launch_bound": 0.25}, top_kernel=GEMM | {"percent": 90.0})
    assert judge(one_kernel, ()).cause == "launch-bound", "what a computing device does comes last"


def test_a_host_that_waits_can_not_run_ahead():
    diagnosis = judge(made_signs({"blocked_host": 0.3, "launch_bound": 0.5}), ())
    assert (diagnosis.cause, diagnosis.confident) == ("sync-bound", False)


def test_graphs_are_a_fact_beside_the_verdict():
    diagnosis = judge(made_signs(graph_share=0.9), ())
    assert diagnosis.cause == NO_BOTTLENECK
    assert (
        "torch.cuda.CUDAGraph"
        not in judge(made_signs({"launch_bound": 0.5}, graph_share=0.9), ()).next_step
    )


def test_recorded_launches_of_a_graph_tell_nothing():
    diagnosis = judge(made_signs({"launch_bound": 0.98}, captured=1.0), ())
    assert diagnosis.cause == INCONCLUSIVE


def test_copies_are_counted_for_each_batch():
    shares = {"data_wait": 0.6}
    five = made_signs(shares, per_step={"copies_to_device": 25, "batches": 6})
    assert judge(five, ()).cause == "input-bound"
    assert (
        judge(made_signs(shares, per_step={"copies_to_device": 128, "batches": 2}), ()).cause
        == "exposed-copies"
    )
    whole = made_signs(
        shares, per_step={"copies_to_device": 80}, marked=False, steps=1, steady=1, first_step=None
    )
    assert judge(whole, ()).cause == "input-bound", "of how many batches nobody knows"


@pytest.mark.parametrize(("off", "stolen", "confident"), [
    (None, None, False), (0.0, None, True), (0.7, None, False), (0.7, 0.0, True), (0.7, 0.5, False),
])  # fmt: skip
def test_silence_is_sure_where_no_other_program_had_the_processor(
    off: float, stolen: float, confident: bool
):
    diagnosis = judge(made_signs({"silent": 0.7}, on_host=True, off=off, stolen=stolen), ())
    assert (diagnosis.cause, diagnosis.confident) == ("outside-torch", confident)
    assert ("quiet machine" in diagnosis.next_step) == (not confident and bool(stolen))


@pytest.mark.parametrize(("host", "tool", "word"), [
    (HOST, "torch.profiler", "fused optimizer"),
    (replace(HOST, trains=False), "torch.profiler", "torch.compile"),
    (replace(HOST, compiled=True, trains=False), "torch.profiler", "graphs"),
    (HostFacts(10, 0, "", None, 0, False, False, ""), "rocprofv3", "fewer kernels"),
])  # fmt: skip
def test_advice_is_of_the_trade_of_the_file(host: HostFacts, tool: str, word: str):
    signs = replace(
        made_signs({"launch_bound": 0.5}, host=host, operators=host.operators), tool=tool
    )
    advice = judge(signs, ()).next_step
    assert word in advice
    assert ("optimizer" in advice) == host.trains
    assert ("torch.compile" in advice) == (bool(host.operators) and not host.compiled)
    kernel = replace(
        made_signs(top_kernel=GEMM | {"percent": 90.0}, host=host, operators=host.operators),
        tool=tool,
    )
    assert ("python" in judge(kernel, ()).next_step) == bool(host.operators)


@pytest.mark.parametrize(
    ("tool", "how"), [("torch.profiler", "torch.cuda.CUDAGraph"), ("rocprofv3", "hipGraphLaunch")]
)
@pytest.mark.parametrize(
    ("release", "vendor", "advised", "warned"),
    [
        *(
            (release, AMD, False, True)
            for release in ("7.2.0", "7.2.1", "7.2.2", "7.2.3", "7.2.3-81")
        ),
        *((release, AMD, True, True) for release in ("", "7.2", "7")),
        *(
            (release, AMD, True, False)
            for release in ("6.4", "7.1", "7.1.3", "7.2.4", "7.2.10", "7.14", "10.0", "10")
        ),
        *((release, NVIDIA, True, False) for release in ("", "7.2.1")),
    ],
)
def test_graphs_are_no_advice_where_they_compute_wrongly(
    release: str, vendor: str, advised: bool, warned: bool, tool: str, how: str
):
    host = HOST if tool == "torch.profiler" else HostFacts(10, 0, "", None, 0, False, False, "")
    signs = made_signs(
        {"launch_bound": 0.5}, release=release, vendor=vendor, host=host, operators=host.operators
    )
    advice = judge(replace(signs, tool=tool), ()).next_step
    assert (f"graphs ({how})" in advice, "ROCm/clr#279" in advice) == (advised, warned)
    assert "ROCm/clr#279" not in judge(replace(signs, tool=tool, graph_share=0.5), ()).next_step


def test_a_single_gap_comes_once_only_where_other_steps_show_it():
    one_gap = {
        "gap": on_device.Gap(8e7, 0.9, 20.0, "hipModuleLoadData"),
        "first_step": None,
        "step_ns": 1e8,
        "steady": 1,
    }
    silent = made_signs({"silent": 0.8}, **one_gap)
    assert judge(replace(silent, marked=False, steps=1), ()).cause == "startup"
    assert judge(replace(silent, steps=1), ()).cause == "outside-torch"
    for gap in (None, one_gap["gap"]._replace(share=0.4), one_gap["gap"]._replace(over_second=2.9)):
        assert judge(replace(silent, marked=False, steps=1, gap=gap), ()).cause == "outside-torch"


def test_slow_first_launches_add_up():
    slow = made_signs({"start_up": 0.3}, start_up=0.7, slow=SlowLaunches(9, 1.085e9, 150, 5353.0))
    diagnosis = judge(slow, ())
    assert diagnosis.cause == "startup"
    assert diagnosis.share == pytest.approx(0.7)


def test_idleness_without_a_reason_in_the_file_has_no_cause():
    diagnosis = judge(
        made_signs({"other": 0.7}, calls=0, operators=0, unlinked=1.0, marked=False), ()
    )
    assert (diagnosis.cause, diagnosis.confident) == (INCONCLUSIVE, False)
    assert diagnosis.next_step in COMMANDS or "profile(" in diagnosis.next_step


def test_one_rank_alone_rules_out_no_straggler():
    found = judge(made_signs({"exposed_communication": 0.6, "compute": 0.4}), ())
    assert found.cause == "exposed-communication"
    assert "straggler" not in {alternative.name for alternative in found.alternatives}


def test_what_needs_calls_is_not_ruled_out_without_them():
    for calls, operators in ((0, 0), (0, 500)):
        diagnosis = judge(made_signs({"data_wait": 0.6}, calls=calls, operators=operators), ())
        assert diagnosis.cause == "input-bound"
        assert not diagnosis.alternatives
    assert "sync-bound" in {
        alternative.name for alternative in judge(made_signs({"data_wait": 0.6}), ()).alternatives
    }


@pytest.mark.parametrize(
    ("share", "confident", "told"), [(0.02, True, False), (0.1, True, True), (0.6, False, True)]
)
def test_a_name_like_communication_is_told_and_makes_unsure(
    share: float, confident: bool, told: bool
):
    diagnosis = judge(made_signs(alike=Most("my_all2all_kernel", share)), ())
    assert (diagnosis.cause, diagnosis.confident) == (NO_BOTTLENECK, confident)
    assert any("my_all2all_kernel" in sentence for sentence in diagnosis.evidence) == told


AMD_ONLY = re.compile("rocprof|amd-smi")


@pytest.mark.parametrize("vendor", [NVIDIA, OTHER])
def test_no_tool_of_another_vendor_is_advised(vendor: str):
    for signs in (
        *CASES.values(),
        Signs("torch.profiler", ""),
        made_signs(calls=0, operators=0, graph_share=0.5),
    ):
        for known in (signs, replace(signs, has_power=True)):
            text = as_json(judge(replace(known, vendor=vendor), ()))
            assert not AMD_ONLY.search(text)
            assert json.loads(text)["next_step"]
    assert AMD_ONLY.search(as_json(judge(CASES[NO_BOTTLENECK], ())))


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
def test_the_vendor_of_the_gpu(meta: dict[str, str], vendor: str):
    profile = power_log([745], busy=100)
    assert (
        vendor_of(replace(profile, meta={**profile.meta, "events_by_category": {}, **meta}))
        == vendor
    )


def test_without_device_events_nothing_is_said():
    diagnosis = judge(Signs("system monitor", ""), ("recorded",))
    assert (diagnosis.cause, diagnosis.evidence) == (INCONCLUSIVE, ())
    with pytest.raises(ValueError, match="there is no profile to diagnose"):
        triage([])


def power_log(power: list[float], busy: float, cap: float | None = 750.0) -> Profile:
    """A sample a second of one device."""
    found = {"power": power, "gpu_busy": [busy] * len(power)} | (
        {} if cap is None else {"power_cap": [cap]}
    )
    rows = [
        (second, 0, name, value, "")
        for name, values in found.items()
        for second, value in enumerate(values)
    ]
    table = pd.DataFrame(rows, columns=list(COUNTER_DTYPES)).astype(COUNTER_DTYPES)
    return Profile(
        pd.DataFrame(columns=list(EVENT_DTYPES)).astype(EVENT_DTYPES),
        table,
        {"tool": "system monitor"},
    )


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (power_log([745, 748, 750, 500], busy=100), "power-capped"),
        (power_log([745, 500, 500, 500], busy=100), INCONCLUSIVE),
        (power_log([745, 748, 750, 500], busy=50), INCONCLUSIVE),
        (power_log([745, 748, 750, 500], busy=100, cap=None), INCONCLUSIVE),
    ],
    ids=["at the cap", "seldom", "not busy", "cap not known"],
)
def test_only_busy_samples_at_a_known_cap_speak_of_power(log: Profile, cause: str):
    assert triage(log).cause == cause


def test_a_loop_is_a_round_that_comes_twenty_times_in_a_row():
    others = np.arange(1000, 1100)
    rounds = np.tile([1, 2, 3], on_host.ROUNDS)
    found = on_host.in_loops(np.concatenate((others, rounds, others + 100)))
    assert np.flatnonzero(found).tolist() == list(range(100, 100 + len(rounds)))
    assert not on_host.in_loops(np.concatenate((others, rounds[:-3], others + 100))).any()


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.1, "far from its roof"),
        (0.9, "near its roof"),
        (1.45, "145 %"),
        (None, "counters"),
    ],
)
def test_a_kernel_above_its_roof_is_told_and_not_praised(share: float | None, words: str) -> None:
    signs = made_signs(top_kernel=GEMM | {"percent": 80.0}, roof_share=share)
    assert words in _kernel_words(signs)
    assert ("near its roof" in _kernel_words(signs)) == (share == 0.9)

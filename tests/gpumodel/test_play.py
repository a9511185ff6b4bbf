"""Played runs: hand-worked queues and meetings, and what must hold in every run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cifar_train.config import TrainConfig, parse
from gpumodel import MatrixProduct, Run, ShardedStep, Training, simulate, step_rates
from gpumodel.devices import model_error
from gpumodel.play.costs import PROFILERS
from gpumodel.play.waits import (
    GATHER,
    IMAGE_NS,
    SCATTER,
    START_NS,
    Loader,
    in_order,
    meet,
    transfer_factor,
)
from gpumodel.run import TABLES
from gpumodel.simulation import RECOMPILE_LIMIT
from gpumodel.truth import profile_of
from gpumodel.workload import Sampling
from gpumodel.writers.common.files import identity
from tidyprof.analyses.budget import step_budget
from tidyprof.analyses.collectives import collectives
from tidyprof.analyses.ranks import ranks
from tidyprof.errors import UserError

BASE = Training(TrainConfig(max_steps=4), ranks=2, stacks=Sampling(by_wall_clock=500))


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(BASE)


@pytest.fixture(scope="module")
def single() -> Run:
    return simulate(Training(TrainConfig(max_steps=21)))


def with_fault(name: str, **changes) -> Training:
    return Training(TrainConfig(max_steps=3, pathology=name, **changes), ranks=2)


def ends(table: pd.DataFrame) -> pd.Series:
    return table["start_ns"] + table["duration_ns"]


def step_ns(run: Run, rank: int = 0) -> list[int]:
    marked = run.ranks[rank].annotations
    return marked.loc[marked["name"].str.startswith("ProfilerStep"), "duration_ns"].tolist()


def test_work_starts_when_it_is_ready_and_the_stream_is_free():
    ready = np.array([[0, 0, 20, 21]])
    starts = in_order(ready, np.array([[5, 5, 5, 5]]), np.array([2]))
    assert starts.tolist() == [[2, 7, 20, 25]]


@given(
    arrays(np.int64, (2, 12), elements=st.integers(0, 1000)),
    arrays(np.int64, (2, 12), elements=st.integers(1, 300)),
    arrays(np.int64, 2, elements=st.integers(0, 500)),
)
@settings(max_examples=60)
def test_a_stream_never_overlaps_and_is_never_idle_without_reason(ready, duration, free):
    starts = in_order(ready, duration, free)
    before = np.concatenate([free[:, None], (starts + duration)[:, :-1]], axis=1)
    assert (starts == np.maximum(ready, before)).all()


def test_nobody_leaves_an_all_reduce_before_the_last_has_entered():
    end, waited = meet(
        "allreduce", np.array([100, 400, 250]), np.array([50, 60, 40]), np.array([0, 3, 7])
    )
    assert waited.tolist() == [300, 0, 150]
    assert end.tolist() == [460, 463, 467]


def test_the_root_of_a_broadcast_waits_for_nobody_and_the_others_for_the_root():
    end, waited = meet(
        "broadcast", np.array([200, 400, 100]), np.array([10, 10, 10]), np.array([0, 0, 0])
    )
    assert waited.tolist() == [0, 0, 100]
    assert end.tolist() == [210, 410, 210]


def test_eight_ranks_send_seven_quarters_over_seven_links_where_four_send_six_quarters_over_three():
    assert transfer_factor("allreduce", 8) == pytest.approx((1.75 / 7) / (1.5 / 3))
    assert transfer_factor("allreduce", 2) == pytest.approx((1 / 1) / (1.5 / 3))
    assert (
        transfer_factor(GATHER, 8)
        == transfer_factor(SCATTER, 8)
        == pytest.approx((0.875 / 7) / (1.5 / 3))
    )
    assert transfer_factor("broadcast", 8) == 1


SMALL = {
    "layers": 4,
    "width": 1024,
    "hidden": 4096,
    "vocabulary": 8192,
    "tokens": 4096,
    "sequence": 2048,
    "heads": 8,
}


def sharded(**knobs) -> Run:
    return simulate(ShardedStep(**{**SMALL, "ranks": 4, **knobs}))


def test_a_sharded_step_gathers_each_layer_twice_but_the_last_and_scatters_it_once():
    work = sharded().ranks[0].device_work
    kinds = work.loc[work["collective"] != "", "collective"].value_counts()
    assert kinds.to_dict() == {GATHER: 1 + 4 + 3, SCATTER: 4 + 1}
    kept = sharded(reshard=False).ranks[0].device_work
    assert (kept["collective"] == GATHER).sum() == 1 + 4


def test_parameters_are_gathered_while_the_layer_before_computes_and_used_when_they_are_there():
    work = sharded().ranks[0].device_work
    ends = work["start_ns"] + work["duration_ns"]
    gathers = work[work["collective"] == GATHER]
    out = work[work["name"].str.contains("DtoD")]
    for number in range(5):
        assert out["start_ns"].iloc[number] >= ends[gathers.index[number]]
    # The host is ahead: the second layer's are under way before the first has been computed.
    assert gathers["start_ns"].iloc[2] < ends[work[work["name"].str.contains("Cijk")].index[4]]


def test_without_prefetch_parameters_wait_behind_the_gradients():
    def exposed(**knobs) -> float:
        return ranks(profile_of(sharded(**knobs)))["exposed_communication_ns"].mean()

    assert exposed(prefetch=False) > 1.2 * exposed()


def test_two_workers_make_batches_in_turn_and_only_as_many_as_are_asked_for():
    loader = Loader(TrainConfig(num_workers=2, batch_size=100), start_ns=0)
    batch = 100 * IMAGE_NS
    first = loader.wait_ns(100, 0)
    assert first == START_NS + batch
    # The second worker has finished its batch at the same time.
    assert loader.wait_ns(100, START_NS + batch) == 0
    # Worker 0's second batch takes as long again.
    assert loader.wait_ns(100, START_NS + batch) == batch
    # Long after, all that was asked for is there.
    assert loader.wait_ns(100, START_NS + 9 * batch) == 0


def test_without_workers_the_trainer_makes_every_batch_itself():
    loader = Loader(TrainConfig(num_workers=0, batch_size=10), start_ns=0)
    assert [loader.wait_ns(10, now) for now in (0, 10**12)] == [10 * IMAGE_NS] * 2


def test_tables_are_sorted_and_lie_within_the_run(run):
    for own in run.ranks:
        for name in TABLES:
            table = getattr(own, name)
            time = table["time_ns" if name in ("counters", "samples") else "start_ns"]
            assert time.is_monotonic_increasing, name
            assert time.min() >= run.start_ns
        for table in (own.device_work, own.calls, own.operators, own.annotations):
            assert (table["duration_ns"] > 0).all()
            assert ends(table).max() <= run.end_ns


def test_every_device_event_starts_after_its_own_call_began(run):
    for own in run.ranks:
        assert own.calls["correlation_id"].is_unique
        assert own.device_work["correlation_id"].is_unique
        joined = own.device_work.merge(
            own.calls, on="correlation_id", suffixes=("", "_call"), validate="1:1"
        )
        assert len(joined) == len(own.device_work)
        assert (joined["start_ns"] > joined["start_ns_call"]).all()
        assert (joined["operator_id"] == joined["operator_id_call"]).all()


def test_dispatches_are_numbered_in_the_order_of_their_calls(run):
    for own in run.ranks:
        work = own.device_work.sort_values("dispatch_id")
        assert work["dispatch_id"].tolist() == list(range(1, len(work) + 1))
        assert work["correlation_id"].is_monotonic_increasing


def test_streams_do_their_work_one_after_the_other_and_in_order(run):
    for own in run.ranks:
        for _, work in own.device_work.groupby("stream"):
            assert (work["start_ns"].to_numpy()[1:] >= ends(work).to_numpy()[:-1]).all()
            assert work["dispatch_id"].is_monotonic_increasing


def test_children_and_calls_lie_within_their_operator_on_its_thread(run):
    for own in run.ranks:
        table = own.operators.assign(end_ns=ends(own.operators)).set_index("operator_id")
        children = table[table["parent_id"].notna()]
        parents = table.loc[children["parent_id"].astype(int)]
        calls = own.calls[own.calls["operator_id"].notna()].assign(end_ns=lambda t: ends(t))
        above = table.loc[calls["operator_id"].astype(int)]
        for inner, outer in ((children, parents), (calls, above)):
            assert (inner["start_ns"].to_numpy() >= outer["start_ns"].to_numpy()).all()
            assert (inner["end_ns"].to_numpy() <= outer["end_ns"].to_numpy()).all()
            assert (inner["thread_id"].to_numpy() == outer["thread_id"].to_numpy()).all()


def test_a_thread_does_one_thing_at_a_time(run):
    for own in run.ranks:
        outermost = own.operators[own.operators["parent_id"].isna()]
        for _, table in outermost.groupby("thread_id"):
            assert (table["start_ns"].to_numpy()[1:] >= ends(table).to_numpy()[:-1]).all()


def test_phases_fill_the_step_in_order(run):
    for own in run.ranks:
        for _, table in own.annotations.groupby("step"):
            step, phases = table.iloc[0], table.iloc[1:]
            assert phases["name"].tolist() == ["data", "forward", "loss", "backward", "optimizer"]
            assert (phases["start_ns"].to_numpy()[1:] == ends(phases).to_numpy()[:-1]).all()
            assert step["start_ns"] <= phases["start_ns"].min()
            assert ends(phases).max() <= step["start_ns"] + step["duration_ns"]


def test_the_host_waits_for_the_number_that_it_reads_back(run):
    own = run.ranks[0]
    copies = own.device_work[own.device_work["copy_direction"] == "DeviceToHost"]
    calls = own.calls.set_index("correlation_id").loc[copies["correlation_id"]]
    assert len(copies) == 4
    assert (ends(calls).to_numpy() > ends(copies).to_numpy()).all()


def test_ranks_leave_an_all_reduce_together(run):
    tables = [own.device_work[own.device_work["collective"] == "allreduce"] for own in run.ranks]
    assert len(tables[0]) == 5 * 4
    last_entry = np.maximum(*(table["start_ns"].to_numpy() for table in tables))
    out = [ends(table).to_numpy() for table in tables]
    assert (np.minimum(*out) > last_entry).all()
    assert (abs(out[0] - out[1]) < 10_000).all()


def test_one_rank_runs_no_collective_and_still_copies_gradients_into_buckets(single):
    work = single.ranks[0].device_work
    assert "collective" not in set(work["kind"])
    assert (work["copy_direction"] == "DeviceToDevice").sum() == 322 * 21


def test_the_same_workload_gives_the_same_run_and_another_seed_another(run):
    again, other = simulate(BASE), simulate(replace(BASE, seed=1))
    for first, second, third in zip(run.ranks, again.ranks, other.ranks, strict=True):
        for name in TABLES:
            pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name))
        assert not first.device_work["start_ns"].equals(third.device_work["start_ns"])
        assert (
            first.device_work["name"]
            .value_counts()
            .equals(third.device_work["name"].value_counts())
        )


def test_a_steady_step_takes_as_long_as_published_and_its_kernels_half_of_it(single):
    steady = step_ns(single)[5:]
    assert np.median(steady) == pytest.approx(20.0e6, rel=0.03)
    work = single.ranks[0].device_work
    assert work["duration_ns"].sum() / 21 == pytest.approx(9.8e6, rel=0.25)


def test_the_printed_rate_is_images_by_the_time_between_a_steps_marks_on_the_stream(single):
    own = single.ranks[0]
    assert len(own.images_per_second) == 21
    work = own.device_work.assign(end_ns=ends(own.device_work))
    begins = own.annotations[own.annotations["name"].str.startswith("ProfilerStep")][
        "start_ns"
    ].to_numpy()
    done = work.groupby("step")["end_ns"].max().to_numpy()
    # Step 7 begins with an idle stream or behind step 6, and is over when its last work is.
    begin = max(begins[7], done[6])
    assert own.images_per_second[7] == pytest.approx(256 / (done[7] - begin) * 1e9, rel=0.02)


def test_rates_are_the_same_without_tables():
    skewed = Training(
        config=parse(["--max-steps", "3", "--pathology", "rank-skew"]), ranks=2, seed=3
    )
    assert step_rates(skewed) == simulate(skewed).ranks[0].images_per_second
    with pytest.raises(UserError, match="not one node"):
        step_rates(replace(skewed, ranks=99))


def test_the_first_step_holds_the_set_up(single):
    steps = step_ns(single)
    assert steps[0] > 15 * np.median(steps)


def test_a_watched_step_costs_the_host_more():
    config = TrainConfig(
        max_steps=8, torch_profile=True, profile_wait=4, profile_warmup=1, profile_active=2
    )
    steps = step_ns(simulate(Training(config, profiler="torch")))
    assert min(steps[5:7]) > 1.5 * max(steps[2], steps[3], steps[7])
    assert PROFILERS["torch"].factor > PROFILERS["rocprofv3"].factor


def test_a_slow_loader_is_waited_for_in_the_data_phase():
    run = simulate(with_fault("slow-loader", batch_size=64))
    waited = run.steps[1].loader_ns[0]
    assert waited == 64 * (5_000_000 + IMAGE_NS)
    assert step_budget(profile_of(run)).loc[1, "data_wait_ns"] > 0.9 * waited


def test_a_late_rank_is_the_straggler_and_the_other_one_waits_for_it():
    run = simulate(with_fault("rank-skew"))
    found = collectives(profile_of(run), per_rank=True)
    # Not the first of the 3 steps, in which set-up times differ more.
    waits = found[found["step"] > 0].groupby("rank")["wait_ns"].sum()
    assert waits[0] > 1.5 * 50_000_000
    assert waits[1] < 0.2 * waits[0]


def test_reading_back_every_step_makes_the_device_wait_for_the_host(single):
    slow = simulate(with_fault("sync-every-step"))
    assert (slow.ranks[0].device_work["copy_direction"] == "DeviceToHost").sum() == 3 * 162
    assert step_ns(slow)[-1] > 1.4 * np.median(step_ns(single))


def test_memory_grows_by_the_largest_gradient_each_step():
    changes = {"max_steps": 8, "batch_size": 64}
    grown, healthy = (
        simulate(Training(TrainConfig(pathology=fault, **changes)), counter_interval_ns=10_000_000)
        for fault in ("memory-growth", None)
    )

    def used(run: Run) -> pd.Series:
        counters = run.ranks[0].counters
        return counters.loc[counters["name"] == "memory_used", "value"]

    # 512 x 512 x 3 x 3 float32 in each of 8 steps.
    assert used(grown).max() - used(healthy).max() == 8 * 512 * 512 * 9 * 4


def test_a_compiler_that_recompiles_stalls_until_it_gives_up():
    config = TrainConfig(
        max_steps=RECOMPILE_LIMIT + 2, pathology="recompile", compile=True, batch_size=64
    )
    run = simulate(Training(config))
    stalled = [duration > 1e9 for duration in step_ns(run)]
    assert stalled == [True] * RECOMPILE_LIMIT + [False] * 2
    compiled = (
        run.ranks[0]
        .device_work.groupby("step")["name"]
        .apply(lambda own: own.str.startswith("triton").any())
    )
    assert compiled.tolist() == stalled


def test_the_last_batch_of_an_epoch_is_short():
    run = simulate(Training(TrainConfig(max_steps=99, max_epochs=1, batch_size=4936), ranks=8))
    # 40,000 images on 8 ranks are 5,000 each.
    batches = (
        run.ranks[0].operators.query("name == 'aten::miopen_convolution'").groupby("step").first()
    )
    assert [shapes[0][0] for shapes in batches["input_shapes"]] == [4936, 64]


def test_counters_show_an_idle_device_before_and_a_busy_one_during_the_run(single):
    table = single.ranks[0].counters.pivot(index="time_ns", columns="name", values="value")
    assert (np.diff(table.index) == 100_000_000).all()
    assert (table["gfx_activity"].iloc[0], table["power"].iloc[0]) == (0, single.device.idle_watt)
    assert 35 < table["gfx_activity"].iloc[-1] < 70
    assert single.device.idle_watt < table["power"].iloc[-1] < single.device.power_watt
    assert table["memory_used"].iloc[-1] > table["memory_used"].iloc[0]


def test_stacks_name_the_trainer_the_operator_and_the_wait(run):
    own = run.ranks[0]
    frames = {frame for stack in own.samples["stack"] for frame in stack}
    assert {
        "train (loop.py)",
        "DistributedDataParallel.forward",
        "hipLaunchKernel",
        "pthread_cond_wait",
    } <= frames
    assert set(own.samples["thread_id"]) == {own.main_thread_id, own.autograd_thread_id}
    slow = (
        simulate(replace(with_fault("slow-loader", batch_size=64), stacks=BASE.stacks))
        .ranks[0]
        .samples
    )
    assert slow["stack"].apply(lambda stack: "read_slowly (pathologies.py)" in stack).mean() > 0.5


def test_by_cpu_time_a_sleeping_thread_gives_no_samples():
    slow = replace(with_fault("slow-loader", batch_size=64), ranks=1)

    def sampled(**rates: float) -> pd.DataFrame:
        table = simulate(replace(slow, stacks=Sampling(**rates))).ranks[0].samples
        return table.assign(
            asleep=table["stack"].map(lambda stack: stack[-1] in ("sleep", "pthread_cond_wait"))
        )

    by_clock, by_cpu_time = sampled(by_wall_clock=500), sampled(by_cpu_time=500)
    assert by_clock["asleep"].mean() > 0.5
    assert not by_cpu_time["asleep"].any()
    awake = (~by_clock["asleep"]).sum()
    assert len(by_cpu_time) == pytest.approx(awake, abs=4 * awake**0.5)
    assert len(sampled(by_wall_clock=1000)) == pytest.approx(2 * len(by_clock), rel=0.05)
    both = sampled(by_wall_clock=500, by_cpu_time=500)
    assert len(both) > len(by_clock)
    assert both["time_ns"].is_monotonic_increasing


def test_a_matrix_product_is_two_copies_up_one_kernel_and_one_copy_down():
    run = simulate(MatrixProduct(50_000, 10_000, 800, repeat=2))
    work = run.ranks[0].device_work
    assert (
        work["copy_direction"].tolist() == ["HostToDevice", "HostToDevice", "", "DeviceToHost"] * 2
    )
    # 50,000 x 10,000 float32 at the published 12.9 GB/s.
    assert work["duration_ns"].iloc[0] == pytest.approx(2e9 / 12.9, rel=0.15)
    kernel = work.iloc[2]
    assert kernel["name"].startswith("Cijk_")
    assert kernel["flops"] == 2 * 50_000 * 10_000 * 800
    assert run.command[:3] == ("python", "-m", "cifar_train.matmul")


def test_a_run_states_the_models_error(run):
    assert run.error == model_error()


def test_one_kernel_longer_or_a_lower_clock_change_what_they_say(run):
    before = run.ranks[0].device_work.set_index("dispatch_id")
    name, factor, clock = "MIOpenBatchNormBwdSpatial", 1.5, 0.5
    after = (
        simulate(replace(BASE, longer=((name, factor),)))
        .ranks[0]
        .device_work.set_index("dispatch_id")
    )
    ratio = after["duration_ns"] / before["duration_ns"]
    named = before["name"].str.contains(name)
    assert ratio[named].to_numpy() == pytest.approx(factor, rel=1e-3)
    own = ~named & (before["kind"] == "kernel")
    assert (ratio[own] == 1).all()
    slow = simulate(replace(BASE, clock=clock))
    assert identity(slow, slow.ranks[0]) != identity(run, run.ranks[0])
    after = slow.ranks[0].device_work.set_index("dispatch_id")
    ratio = after["duration_ns"] / before["duration_ns"]
    assert slow.device.clock_mhz == clock * run.device.clock_mhz
    assert (ratio[own & (after["bound_by"] == "memory")] == 1).all()
    assert ratio[own & (before["bound_by"] == "compute")].between(1.2, 1 / clock).all()


def test_the_command_line_names_what_differs_from_the_defaults():
    run = simulate(
        Training(TrainConfig(max_steps=2, model="vit", batch_size=8, fused_optimizer=True))
    )
    words = ("--model", "vit", "--batch-size", "8", "--max-steps", "2", "--fused-optimizer")
    assert run.command == ("python", "-m", "cifar_train", *words)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Training(profiler="nsys"), "nsys"),
        (Training(ranks=9), "9 ranks"),
        (Training(solutions="direct"), "direct"),
        (Training(device="MI999"), "MI999"),
        (Training(clock=1.2), "a share of the peak"),
        (Training(longer=(("no_such_kernel", 2.0),)), "no_such_kernel"),
        (Training(TrainConfig(batch_size=30_000), ranks=2), "30000"),
        (MatrixProduct(rows=0), "at least 1"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(workload, words):
    with pytest.raises(UserError, match=words) as caught:
        simulate(workload)
    assert "\n" not in str(caught.value)

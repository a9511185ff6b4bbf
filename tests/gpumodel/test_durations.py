"""Durations: by hand, and what must hold for any launch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumodel.devices import at_clock, device
from gpumodel.kernels.durations import CostClass, cost_classes, duration_in, duration_ns
from gpumodel.kernels.launch import KernelLaunch

MI300X = device("MI300X")
COSTS = CostClass(floor_ns=1000.0, compute_efficiency=0.5, memory_efficiency=0.25, step_ns=2.0)

launches = st.builds(
    KernelLaunch,
    name=st.just("k"),
    flops=st.floats(0, 1e13),
    data_type=st.sampled_from(["float16", "bfloat16", "float32"]),
    matrix_cores=st.booleans(),
    bytes_read=st.floats(0, 1e10),
    bytes_written=st.floats(0, 1e10),
    serial_steps=st.floats(0, 1e5),
    parallelism=st.floats(0.05, 1),
    cost_class=st.sampled_from(sorted(cost_classes())),
)


def test_arithmetic_takes_flops_over_peak_times_efficiency_and_parallelism():
    # 1307.4e12 FLOP/s * 0.5 * 0.5 = 326.85e12; 326.85e9 FLOPs take 1 ms; the floor adds 1 us.
    launch = KernelLaunch(
        "k", flops=326.85e9, data_type="float16", matrix_cores=True, parallelism=0.5
    )
    assert duration_in(launch, MI300X, COSTS) == (pytest.approx(1_001_000), "compute")


def test_traffic_takes_bytes_over_bandwidth_times_efficiency():
    # 5324.8e9 B/s * 0.25 = 1331.2e9; 13.312 MB take 10 us; the floor adds 1 us.
    launch = KernelLaunch("k", bytes_read=10.0e6, bytes_written=3.312e6)
    assert duration_in(launch, MI300X, COSTS) == (pytest.approx(11_000), "memory")


def test_a_chain_of_steps_bounds_like_arithmetic():
    assert duration_in(KernelLaunch("k", serial_steps=5000), MI300X, COSTS) == (
        pytest.approx(11_000),
        "compute",
    )


def test_at_half_the_clock_a_chain_of_steps_takes_twice_as_long():
    chain, traffic = KernelLaunch("k", serial_steps=5000), KernelLaunch("k", bytes_read=13.312e6)
    slow = at_clock("MI300X", 0.5)
    assert duration_in(chain, slow, COSTS) == (pytest.approx(21_000), "compute")
    assert duration_in(traffic, slow, COSTS) == duration_in(traffic, MI300X, COSTS)


def test_a_launch_smaller_than_its_floor_is_bound_by_the_floor():
    launch = KernelLaunch("k", bytes_read=1331.2)  # 1 ns of traffic
    assert duration_in(launch, MI300X, COSTS) == (pytest.approx(1001), "floor")


def test_operand_bound_kernels_take_twice_as_long_in_float32():
    half = KernelLaunch(
        "k", flops=1e12, data_type="float16", matrix_cores=True, cost_class="igemm_data_spatial"
    )
    floor = cost_classes()["igemm_data_spatial"].floor_ns
    full = replace(half, data_type="float32")
    assert duration_ns(full, MI300X)[0] - floor == pytest.approx(
        2 * (duration_ns(half, MI300X)[0] - floor)
    )


@settings(max_examples=60)
@given(launches, st.floats(1, 10))
def test_more_work_never_takes_less_time(launch, factor):
    more = replace(
        launch,
        flops=launch.flops * factor,
        bytes_read=launch.bytes_read * factor,
        serial_steps=launch.serial_steps * factor,
    )
    assert duration_ns(more, MI300X)[0] >= duration_ns(launch, MI300X)[0]


@settings(max_examples=60)
@given(launches)
def test_no_launch_is_shorter_than_its_floor_or_than_the_peaks_allow(launch):
    time, bound = duration_ns(launch, MI300X)
    assert time >= cost_classes()[launch.cost_class].floor_ns > 0
    assert bound in ("compute", "memory", "floor")


def test_every_class_states_its_source_and_stays_below_the_peaks():
    for name, costs in cost_classes().items():
        assert costs.source, name
        assert 0 <= costs.compute_efficiency < 1, name
        assert 0 <= costs.memory_efficiency < 1, name
        assert (costs.measured > 0) or "taken from" in costs.source or "MI350X" in costs.source, (
            name
        )

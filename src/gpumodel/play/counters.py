"""What a system monitor reads from the device during a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cifar_train.config import TrainConfig
from gpumodel.devices import Device
from gpumodel.kernels.launch import nbytes
from gpumodel.recording.operators import Operator
from gpumodel.run import COUNTERS, RankRun, empty
from tidyprof.tables.intervals import Intervals

CONTEXT_BYTES = 700_000_000
"""Taken by the driver and the libraries before the first tensor: an assumption."""

IDLE_MEMORY_BYTES = 297_000_000
"""In use on an idle MI300X (public rocm-smi log of a vLLM benchmark; amd-smi's listing in its
change log: 283 MB).
"""

IDLE_CLOCK_MEGAHERTZ = 132.0
IDLE_TEMPERATURE = 40.0
FULL_TEMPERATURE = 69.0
"""An idle MI300X: the clock is an assumption near the 114 MHz of a public amd-smi listing, and
other listings show 40 to 50 degrees Celsius. At the board's limit it has 69 degrees.
"""

BUSY_SHARE = 0.25
"""Share of the power above idle that any kernel takes; the rest grows with how far the kernel uses
arithmetic or memory. An assumption: no measurement of this workload's power is public. Both ends
are measured: idle, and the board's limit in a stress test.
"""


@dataclass(frozen=True)
class Memory:
    """Memory in use on the device, in bytes.

    idle -- before training. fixed -- with parameters and optimizer. peak -- at the peak of a step.
    growth -- what each step adds for good.
    """

    idle: float
    fixed: float
    peak: float
    growth: float


def memory_of(config: TrainConfig, operators: tuple[Operator, ...]) -> Memory:
    """The memory of a training, from the shapes of a step: its parameters four times (themselves,
    gradients, Adam's two states), and its activations.
    """
    sizes = parameter_bytes(operators)
    parameters, largest = sum(sizes), max(sizes, default=0)
    kept = sum(
        nbytes(tensor)
        for o in operators
        if o.phase == "forward" and o.on_device
        for tensor in o.outputs
    )
    growth = largest if config.pathology == "memory-growth" else 0
    return Memory(
        idle=IDLE_MEMORY_BYTES,
        fixed=IDLE_MEMORY_BYTES + CONTEXT_BYTES + 4 * parameters,
        peak=IDLE_MEMORY_BYTES + CONTEXT_BYTES + 4 * parameters + kept,
        growth=growth,
    )


def parameter_bytes(operators: Sequence[Operator]) -> list[int]:
    """Bytes of each parameter, from the first list of the optimizer's operator; empty without such
    an operator.
    """
    updated = next(
        (o for o in operators if o.name in ("aten::_foreach_lerp_", "aten::_fused_adam_")), None
    )
    if updated is None:
        return []
    return [
        round(nbytes(tensor))
        for tensor in updated.inputs[: updated.scalars["lists"][0]]
        if tensor is not None
    ]


def sample(
    run: RankRun, device: Device, memory: Memory, begin_ns: int, end_ns: int, interval_ns: int
) -> pd.DataFrame:
    """COUNTERS of a rank: means over each interval, which have the time of its end.

    Power and temperature rise with the load (see BUSY_SHARE). That the clock is at its peak from
    half busy on is an assumption.
    """
    times = np.arange(begin_ns + interval_ns, end_ns + 1, interval_ns, dtype=np.int64)
    if not len(times):
        return empty("counters")
    work = run.device_work
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["duration_ns"].to_numpy(np.int64)
    before = times - interval_ns
    busy = Intervals.union(start, end).covered_within(before, times) / interval_ns
    traffic = (work["bytes_read"] + work["bytes_written"]).to_numpy()
    memory_share = _amount_within(end, traffic, before, times) / (
        interval_ns * 1e-9 * device.memory_bandwidth
    )
    arithmetic = _amount_within(end, work["flops"].to_numpy(), before, times) / (interval_ns * 1e-9)
    used = np.clip(np.maximum(memory_share, arithmetic / max(device.peak_flops.values())), 0.0, 1.0)
    load = np.where(busy > 0, BUSY_SHARE * busy + (1 - BUSY_SHARE) * used, 0.0)
    quantities = {
        ("gfx_activity", "percent"): np.rint(100 * busy),
        ("memory_activity", "percent"): np.rint(100 * np.minimum(memory_share, 1.0)),
        ("power", "watt"): np.rint(
            device.idle_watt + load * (device.power_watt - device.idle_watt)
        ),
        ("gfx_clock", "megahertz"): np.rint(
            IDLE_CLOCK_MEGAHERTZ
            + np.minimum(1.0, 2 * busy) * (device.clock_mhz - IDLE_CLOCK_MEGAHERTZ)
        ),
        ("memory_clock", "megahertz"): np.full(len(times), float(device.memory_clock_mhz)),
        ("temperature", "degree Celsius"): np.rint(
            IDLE_TEMPERATURE + load * (FULL_TEMPERATURE - IDLE_TEMPERATURE)
        ),
        ("memory_used", "byte"): _memory_used(run, memory, times),
    }
    parts = [
        pd.DataFrame({"time_ns": times, "name": name, "value": values, "unit": unit})
        for (name, unit), values in quantities.items()
    ]
    return (
        pd.concat(parts).sort_values("time_ns", kind="stable", ignore_index=True).astype(COUNTERS)
    )


def _amount_within(
    end: np.ndarray, amount: np.ndarray, before: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Sum of the amounts of all work that ended in each interval."""
    order = np.argsort(end, kind="stable")
    total = np.concatenate(([0.0], np.cumsum(amount[order])))
    return total[np.searchsorted(end[order], times)] - total[np.searchsorted(end[order], before)]


def _memory_used(run: RankRun, memory: Memory, times: np.ndarray) -> np.ndarray:
    """Bytes in use at each time. PyTorch's allocator keeps what it has once had, so the peak of the
    first step stays.
    """
    steps = run.annotations[run.annotations["name"].str.startswith("ProfilerStep")]
    begin = steps["start_ns"].to_numpy(np.int64)
    first = run.device_work["start_ns"].min() if len(run.device_work) else times[-1] + 1
    done = np.searchsorted(begin, times)
    return np.where(
        times < first,
        memory.idle,
        np.where(done > 0, memory.peak, memory.fixed) + memory.growth * done,
    )

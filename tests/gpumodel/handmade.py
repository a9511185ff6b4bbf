"""Runs made by hand, whose every number a test can state, and random small ones for properties."""

from __future__ import annotations

import functools
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from cifar_train.config import TrainConfig
from gpumodel import devices
from gpumodel.run import TABLES, RankRun, Run
from gpumodel.workload import Training

START_NS = 1_550_151_853_000_000
"""When the handmade processes start: the node has been up for 18 days."""

WALL_CLOCK_OFFSET_NS = 1_767_189_312_123_456_789
STEP_NS = 1_000_000
STEPS = 3
RANKS = 2

TEMPLATE_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>,"
    " std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
QUOTED_KERNEL = "void relu_kernel<'r', µ>(float const*, \\path, {lambda(float)#1})"
GEMM_KERNEL = "Cijk_Ailk_Bljk_SB_MT64x64x32_MI16x16x4x1_SN"
COLLECTIVE_KERNEL = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"

_DEFAULTS: dict[str, dict[str, Any]] = {
    "device_work": {
        "stream": 0,
        "queue": 1,
        "step": pd.NA,
        "phase": "",
        "operator_id": pd.NA,
        **dict.fromkeys(
            ("grid_x", "grid_y", "grid_z", "workgroup_x", "workgroup_y", "workgroup_z"), 0
        ),
        **dict.fromkeys(("vector_registers", "accumulation_registers", "scalar_registers"), 0),
        **dict.fromkeys(("lds_bytes", "scratch_bytes"), 0),
        **dict.fromkeys(("flops", "bytes_read", "bytes_written"), 0.0),
        "data_type": "float32",
        "matrix_cores": False,
        "copy_bytes": pd.NA,
        "copy_direction": "",
        "collective": "",
        "bound_by": "floor",
    },
    "calls": {"operator_id": pd.NA},
    "operators": {
        "parent_id": pd.NA,
        "step": pd.NA,
        "phase": "",
        "module": "",
        "input_shapes": (),
        "input_types": (),
        "sequence_number": pd.NA,
        "flops": 0.0,
    },
    "annotations": {"step": pd.NA},
}


class RankBuilder:
    """Collects the rows of one rank. Times in ns after START_NS; numbers count up by themselves."""

    def __init__(self, rank: int, ranks: int = RANKS) -> None:
        self.rank = rank
        self.ranks = ranks
        self.process_id = 4200 + 10 * rank
        self.autograd_thread_id = self.process_id + 5
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._correlations = 100

    def _add(self, table: str, **values: Any) -> None:
        self._rows[table].append(_DEFAULTS.get(table, {}) | values)

    def annotation(self, name: str, start: int, duration: int, step: Any = pd.NA) -> None:
        """A named range on the main thread."""
        self._add(
            "annotations",
            name=name,
            thread_id=self.process_id,
            start_ns=START_NS + start,
            duration_ns=duration,
            step=step,
        )

    def operator(
        self, name: str, start: int, duration: int, thread: int | None = None, **columns: Any
    ) -> int:
        """An operator; returns its identifier."""
        identifier = len(self._rows["operators"]) + 1
        self._add(
            "operators",
            operator_id=identifier,
            name=name,
            thread_id=thread or self.process_id,
            start_ns=START_NS + start,
            duration_ns=duration,
            **columns,
        )
        return identifier

    def call(
        self, name: str, start: int, duration: int, thread: int | None = None, operator: Any = pd.NA
    ) -> int:
        """A call of the HIP runtime; returns its correlation identifier."""
        self._correlations += 1
        self._add(
            "calls",
            correlation_id=self._correlations,
            name=name,
            thread_id=thread or self.process_id,
            start_ns=START_NS + start,
            duration_ns=duration,
            operator_id=operator,
        )
        return self._correlations

    def work(
        self, kind: str, name: str, correlation: int, start: int, duration: int, **columns: Any
    ) -> None:
        """Work on the device, launched by the call with this correlation identifier."""
        self._add(
            "device_work",
            dispatch_id=len(self._rows["device_work"]) + 1,
            correlation_id=correlation,
            kind=kind,
            name=name,
            start_ns=START_NS + start,
            duration_ns=duration,
            **columns,
        )

    def sample(self, time: int, *stack: str) -> None:
        """A sampled call stack of the main thread."""
        self._add("samples", time_ns=START_NS + time, thread_id=self.process_id, stack=stack)

    def counter(self, time: int, name: str, value: float, unit: str) -> None:
        """A sample of a quantity of the device."""
        self._add("counters", time_ns=START_NS + time, name=name, value=value, unit=unit)

    def finish(self) -> RankRun:
        """The tables, sorted as documented."""
        tables = {}
        for name, columns in TABLES.items():
            rows = self._rows[name]
            data = {
                column: pd.Series([row[column] for row in rows], dtype="object")
                for column in columns
            }
            order = "time_ns" if "time_ns" in columns else "start_ns"
            frame = pd.DataFrame(data).astype(columns)
            tables[name] = frame.sort_values(order, kind="stable", ignore_index=True)
        return RankRun(
            rank=self.rank,
            process_id=self.process_id,
            autograd_thread_id=self.autograd_thread_id,
            device=self.rank,
            agent=self.rank + 2,
            **tables,
        )


def small_run(seed: int = 0, **config: Any) -> Run:
    """Two ranks of three steps with every kind of event and odd names.

    Rank 1 does all of rank 0 7 ns later. Each step of 1 ms has, on the device: a copy to it, a
    matrix product, an elementwise kernel, an all-reduce on stream 1, a copy within the device and a
    fill; the last step ends with a copy to the host.
    """
    settings = {"max_steps": STEPS, "batch_size": 8, "data": "synthetic"} | config
    training = Training(config=TrainConfig(**settings), ranks=RANKS, seed=seed)
    ranks = []
    for rank in range(RANKS):
        builder = RankBuilder(rank)
        for step in range(STEPS):
            _add_step(builder, step, step * STEP_NS + 7 * rank)
        _add_rest(builder)
        ranks.append(builder.finish())
    return run_of(training, tuple(ranks), STEPS * STEP_NS + 100_000)


def run_of(training: Training, ranks: tuple[RankRun, ...], duration: int) -> Run:
    """A Run of these ranks on an MI300X node that was up for 18 days."""
    return Run(
        workload=training,
        ranks=ranks,
        device=devices.device("MI300X"),
        hostname="modelled-node",
        start_ns=START_NS,
        end_ns=START_NS + duration,
        wall_clock_offset_ns=WALL_CLOCK_OFFSET_NS,
        command=(
            "python",
            "-m",
            "cifar_train",
            "--max-steps",
            str(STEPS),
            "--data-path",
            str(Path("a b")),
        ),
        error="kernel time within 20 % of published measurements",
    )


def _add_step(rank: RankBuilder, step: int, start: int) -> None:
    rank.annotation(f"ProfilerStep#{step}", start + 1_001, 990_003, step)
    for name, begin, duration in (
        ("data", 1_502, 90_001),
        ("forward", 100_003, 200_005),
        ("loss", 301_007, 20_009),
        ("backward", 322_011, 400_013),
        ("optimizer", 723_017, 250_019),
    ):
        rank.annotation(name, start + begin, duration, step)
    known = {"step": step}
    rank.operator("aten::empty", start + 1_700, 501, phase="data", **known)
    _copy_in(rank, step, start)
    _forward(rank, step, start)
    _backward(rank, step, start)
    _update(rank, step, start)


def _copy_in(rank: RankBuilder, step: int, start: int) -> None:
    place = {"step": step, "phase": "data"}
    parent = rank.operator("aten::to", start + 5_001, 40_002, **place)
    shapes = {
        "input_shapes": ((8, 3, 32, 32), (8, 3, 32, 32), ()),
        "input_types": ("float", "float", "Scalar"),
    }
    copy = rank.operator("aten::copy_", start + 6_003, 35_004, parent_id=parent, **shapes, **place)
    call = rank.call("hipMemcpyWithStream", start + 10_007, 9_009, operator=copy)
    rank.work(
        "copy",
        "Memcpy HtoD (Host -> Device)",
        call,
        start + 12_345,
        6_789,
        operator_id=copy,
        copy_bytes=98_304,
        copy_direction="HostToDevice",
        bytes_written=98_304.0,
        bound_by="memory",
        **place,
    )


def _forward(rank: RankBuilder, step: int, start: int) -> None:
    place = {"step": step, "phase": "forward"}
    shapes = {
        "input_shapes": ((100,), (8, 512), (512, 100)),
        "input_types": ("float", "float", "float"),
    }
    linear = rank.operator("aten::linear", start + 110_001, 80_003, module="classifier", **place)
    addmm = rank.operator(
        "aten::addmm",
        start + 112_005,
        70_007,
        parent_id=linear,
        module="classifier",
        sequence_number=10 * step + 1,
        flops=2.0 * 8 * 512 * 100,
        **shapes,
        **place,
    )
    call = rank.call("hipExtModuleLaunchKernel", start + 120_009, 5_011, operator=addmm)
    rank.work(
        "kernel",
        GEMM_KERNEL,
        call,
        start + 130_501,
        20_001,
        operator_id=addmm,
        grid_x=512,
        grid_y=4,
        grid_z=1,
        workgroup_x=256,
        workgroup_y=1,
        workgroup_z=1,
        vector_registers=128,
        accumulation_registers=64,
        scalar_registers=96,
        lds_bytes=25_600,
        flops=819_200.0,
        matrix_cores=True,
        bound_by="compute",
        **place,
    )
    relu = rank.operator(
        "aten::relu", start + 210_013, 30_015, sequence_number=10 * step + 2, **place
    )
    call = rank.call("hipLaunchKernel", start + 215_017, 4_019, operator=relu)
    rank.work(
        "kernel",
        QUOTED_KERNEL,
        call,
        start + 225_002,
        3_003,
        operator_id=relu,
        grid_x=1_024,
        grid_y=1,
        grid_z=1,
        workgroup_x=256,
        workgroup_y=1,
        workgroup_z=1,
        vector_registers=8,
        scalar_registers=32,
        scratch_bytes=16,
        bound_by="memory",
        **place,
    )


def _backward(rank: RankBuilder, step: int, start: int) -> None:
    place = {"step": step, "phase": "backward"}
    thread = rank.autograd_thread_id
    evaluate = rank.operator(
        "autograd::engine::evaluate_function: AddmmBackward0",
        start + 330_001,
        120_003,
        thread=thread,
        sequence_number=10 * step + 1,
        **place,
    )
    sums = rank.operator(
        "aten::add_", start + 335_005, 20_007, thread=thread, parent_id=evaluate, **place
    )
    call = rank.call("hipLaunchKernel", start + 340_009, 3_011, thread=thread, operator=sums)
    rank.work(
        "kernel",
        TEMPLATE_KERNEL,
        call,
        start + 350_013,
        7_015,
        operator_id=sums,
        grid_x=65_536,
        grid_y=1,
        grid_z=1,
        workgroup_x=512,
        workgroup_y=1,
        workgroup_z=1,
        vector_registers=16,
        scalar_registers=32,
        **place,
    )
    reduce = rank.operator(
        "c10d::allreduce_",
        start + 470_017,
        60_019,
        thread=thread,
        input_shapes=((51_300,),),
        input_types=("float",),
        **place,
    )
    call = rank.call("hipExtLaunchKernel", start + 480_021, 6_023, thread=thread, operator=reduce)
    rank.work(
        "collective",
        COLLECTIVE_KERNEL,
        call,
        start + 490_025,
        110_027,
        operator_id=reduce,
        stream=1,
        queue=2,
        grid_x=8_192,
        grid_y=1,
        grid_z=1,
        workgroup_x=512,
        workgroup_y=1,
        workgroup_z=1,
        vector_registers=64,
        lds_bytes=29_696,
        collective="allreduce",
        bytes_read=205_200.0,
        bound_by="waiting",
        **place,
    )


def _update(rank: RankBuilder, step: int, start: int) -> None:
    place = {"step": step, "phase": "optimizer"}
    adam = rank.operator("Optimizer.step#Adam.step", start + 730_001, 150_003, **place)
    clone = rank.operator("aten::copy_", start + 740_005, 20_007, parent_id=adam, **place)
    call = rank.call("hipMemcpyWithStream", start + 745_009, 4_011, operator=clone)
    rank.work(
        "copy",
        "Memcpy DtoD (Device -> Device)",
        call,
        start + 755_013,
        2_015,
        operator_id=clone,
        copy_bytes=205_200,
        copy_direction="DeviceToDevice",
        **place,
    )
    zero = rank.operator("aten::zero_", start + 890_017, 20_019, **place)
    fill = rank.operator("aten::fill_", start + 892_021, 15_023, parent_id=zero, **place)
    call = rank.call("hipMemsetAsync", start + 895_025, 3_027, operator=fill)
    rank.work(
        "fill",
        "Memset (Device)",
        call,
        start + 905_029,
        1_031,
        operator_id=fill,
        copy_bytes=512,
        **place,
    )
    rank.call("hipStreamSynchronize", start + 930_033, 40_035)


def _add_rest(rank: RankBuilder) -> None:
    """After the last step: the loss is fetched. And what was sampled all along."""
    end = STEPS * STEP_NS + 7 * rank.rank
    item = rank.operator("aten::_local_scalar_dense", end + 1_001, 30_003)
    call = rank.call("hipMemcpyWithStream", end + 5_005, 20_007, operator=item)
    rank.work(
        "copy",
        "Memcpy DtoH (Device -> Host)",
        call,
        end + 8_009,
        2_011,
        operator_id=item,
        copy_bytes=4,
        copy_direction="DeviceToHost",
    )
    for step in range(STEPS):
        time = step * STEP_NS + 500_000
        rank.sample(time, "<module>", "train", "Tensor.backward")
        rank.counter(time, "gfx_activity", 40.0 + step, "percent")
        rank.counter(time, "gfx_clock", 2_100.0 - step, "megahertz")
        rank.counter(time, "power", 300.5 + step, "watt")
        rank.counter(time, "memory_used", 2.0**30 + step, "byte")


_NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"\u2028\u2029\x85'),
    min_size=1,
    max_size=20,
).map(lambda text: f"k{text}")
"""Kernel names with commas, brackets and any script; rocprofv3 does not escape quotes, so there are
none.
"""

_GRIDS = st.tuples(*[st.integers(1, 8)] * 3)


@functools.cache
def _config(roctx: bool) -> TrainConfig:
    return TrainConfig(max_steps=2, batch_size=1, data="synthetic", roctx=roctx)


@st.composite
def runs(draw: st.DrawFn, maximum_ranks: int = 2, maximum_work: int = 6) -> Run:
    """Small Runs with random names, times, sizes, streams and kinds, within the promises of
    gpumodel.run.
    """
    count = draw(st.integers(1, maximum_ranks))
    training = Training(
        config=_config(draw(st.booleans())), ranks=count, seed=draw(st.integers(0, 9))
    )
    finished = [_random_rank(draw, rank, count, maximum_work) for rank in range(count)]
    return run_of(
        training, tuple(rank for rank, _ in finished), max(end for _, end in finished) + 1
    )


def _random_rank(draw: st.DrawFn, rank: int, ranks: int, maximum_work: int) -> tuple[RankRun, int]:
    """A rank, and when it ends. Starts are even in even ranks and odd in odd ones: readers refuse
    equal files.
    """
    builder = RankBuilder(rank, ranks)
    host, device_free = 2 * draw(st.integers(1, 5_000)) + rank % 2, dict.fromkeys(range(3), 0)
    first = host
    for _ in range(draw(st.integers(1, maximum_work))):
        span = 8 * draw(st.integers(5, 10**6))
        operator = builder.operator(
            "aten::" + draw(st.sampled_from(("mm", "add", "copy_"))), host, span, step=0
        )
        call = builder.call("hipLaunchKernel", host + span // 4, span // 4 + 1, operator=operator)
        stream = draw(st.integers(0, 2))
        start = max(host + span // 4 + 2 * draw(st.integers(1, 10**6)), device_free[stream])
        duration = draw(st.integers(1, 10**9))
        _random_work(draw, builder, call, operator, stream, start, duration)
        device_free[stream] = start + duration + duration % 2
        host += span + 2 * draw(st.integers(1, 10**6))
        if draw(st.booleans()):
            builder.call("hipStreamSynchronize", host, 1)
            host += 2
    builder.annotation("ProfilerStep#0", first - 1, host - first + 2, 0)
    return builder.finish(), max(host + 2, *device_free.values())


def _random_work(
    draw: st.DrawFn,
    rank: RankBuilder,
    call: int,
    operator: int,
    stream: int,
    start: int,
    duration: int,
) -> None:
    kind = draw(st.sampled_from(("kernel", "kernel", "copy", "fill", "collective")))
    columns: dict[str, Any] = {
        "stream": stream,
        "queue": stream + 1,
        "operator_id": operator,
        "step": 0,
    }
    if kind in ("copy", "fill"):
        columns["copy_bytes"] = draw(st.integers(1, 2**40))
    if kind == "copy":
        direction, words = draw(st.sampled_from(tuple(COPY_WORDS.items())))
        columns["copy_direction"] = direction
        name = f"Memcpy {words}"
    elif kind == "fill":
        name = "Memset (Device)"
    else:
        grid, workgroup = draw(_GRIDS), draw(_GRIDS)
        for axis, groups, size in zip("xyz", grid, workgroup, strict=True):
            columns |= {f"grid_{axis}": groups * size, f"workgroup_{axis}": size}
        columns |= {"collective": "allreduce"} if kind == "collective" else {}
        name = COLLECTIVE_KERNEL if kind == "collective" else draw(_NAMES)
    rank.work(kind, name, call, start, duration, **columns)


COPY_WORDS = {
    "HostToDevice": "HtoD (Host -> Device)",
    "DeviceToHost": "DtoH (Device -> Host)",
    "DeviceToDevice": "DtoD (Device -> Device)",
}
"""How Kineto names the directions of a copy."""


def device_events(profile: Any, order: str = "rank") -> pd.DataFrame:
    """A profile's device events in order of rank (or process) and start; texts as plain strings."""
    events = profile.device_events
    texts = {name: events[name].astype("object") for name in ("kind", "name")}
    return events.assign(**texts).sort_values([order, "start_ns"], kind="stable", ignore_index=True)


def query(path: Path, statement: str) -> list[tuple]:
    """The rows that a database gives."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def lists(table: pd.DataFrame, *columns: str) -> list[list[Any]]:
    """Columns as lists of plain values, None for <NA>."""
    return [
        table[column].astype("object").where(table[column].notna(), None).tolist()
        for column in columns
    ]

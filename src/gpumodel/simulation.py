"""Plays a workload on a modelled device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any

import numpy as np

from cifar_train.config import SKEW_SECONDS, TrainConfig, apply_to_config, flag
from gpumodel import devices
from gpumodel.devices import Device, model_error
from gpumodel.kernels.launch import nbytes
from gpumodel.play import costs, counters, stacks
from gpumodel.play.assemble import images_per_second, rank_run
from gpumodel.play.costs import Watching
from gpumodel.play.engine import Clock, Conditions, Engine, PlayedStep
from gpumodel.play.plan import StepPlan, build, with_longer_kernels
from gpumodel.play.product import operators_of_product, operators_of_sharded_step
from gpumodel.play.waits import Loader, Times
from gpumodel.recording.steps import operators_of_step
from gpumodel.run import Run
from gpumodel.workload import (
    MAXIMUM_RANKS,
    SOLUTIONS,
    MatrixProduct,
    ShardedStep,
    Training,
    Workload,
)
from tidyprof.errors import UserError

START_NS = 1_550_151_853_000_000
WALL_CLOCK_OFFSET_NS = 1_767_189_312_123_456_789
HOSTNAME = "gpu-node-01"
"""Made up: the node has been up for 18 days, and the run is early in 2026."""

IMPORT_NS = 6_000_000_000
"""From the start of a process to its first step or copy: it imports torch and builds the model.
Measured on a CPU.
"""

ARRIVAL_NS = 5_000_000
"""Ranks begin their first step up to this much apart: 1 to 4 ms in the 4-rank trace."""

TRAINING_IMAGES = 40_000
"""80 percent of CIFAR-100's 50,000 (cifar_train.data.loaders.SHARES)."""

RECOMPILE_LIMIT = 8
"""Compilations of one function before the compiler gives up
(torch._dynamo.config.recompile_limit).
"""

RECOMPILE_NS = 5_000_000_000
"""One compilation of the model: an assumption, some seconds for models of this size."""

COUNTER_INTERVAL_NS = 100_000_000
"""Time between two samples of the device's counters: chosen freely, no tool's default."""

BYTES_OF_A_PARAMETER = 16
"""Four values in float32: the parameter, its gradient and Adam's two states."""


def simulate(workload: Workload, counter_interval_ns: int = COUNTER_INTERVAL_NS) -> Run:
    """The run that a workload gives on its device; the same workload gives equal tables.

    counter_interval_ns -- time between two samples of the device's counters.

    Raises UserError for a workload that cannot be played: unknown device, tool or solutions, too
    many ranks.
    """
    _check(workload)
    if isinstance(workload, MatrixProduct | ShardedStep):
        return _simulate_program(workload, devices.device(workload.device), counter_interval_ns)
    return _simulate_training(
        workload, devices.at_clock(workload.device, workload.clock), counter_interval_ns
    )


def _check(workload: Workload) -> None:
    if workload.profiler not in costs.PROFILERS:
        raise UserError(
            f"tool {workload.profiler!r} is not modelled; there are {', '.join(costs.PROFILERS)}"
        )
    if isinstance(workload, MatrixProduct):
        smallest = min(workload.rows, workload.inner, workload.columns, workload.repeat)
        if smallest < 1:
            raise UserError(
                f"a matrix product needs sizes and a repeat of at least 1, not {smallest}"
            )
        return
    if isinstance(workload, Training) and workload.solutions not in SOLUTIONS:
        raise UserError(
            f"solutions must be one of {', '.join(SOLUTIONS)}, not {workload.solutions!r}"
        )
    if not 1 <= workload.ranks <= MAXIMUM_RANKS:
        raise UserError(f"{workload.ranks} ranks are not one node; give 1 to {MAXIMUM_RANKS}")


def step_rates(workload: Training) -> tuple[float, ...]:
    """Images per second of each step of rank 0, the same as `simulate` gives. It makes no tables,
    and so takes a twentieth of the time.

    Raises UserError as `simulate` does.
    """
    _check(workload)
    return images_per_second(0, _play(workload, apply_to_config(workload.config))[1])


def _play(workload: Training, config: TrainConfig) -> tuple[Engine, list[PlayedStep]]:
    """The engine that has played a training, and the steps. config -- with its pathology's settings
    in place.
    """
    random = np.random.default_rng([workload.seed, 0])
    arrival = START_NS + IMPORT_NS + np.sort(random.integers(0, ARRIVAL_NS, workload.ranks))
    random.shuffle(arrival)
    loaders = [Loader(config, int(start)) for start in arrival]
    plans = _plans(config, workload)
    conditions = Conditions(
        watching=partial(_watching, config, workload.profiler),
        loader_ns=lambda rank, images, now: loaders[rank].wait_ns(images, now),
        late_ns=partial(_late_ns, config, workload.ranks),
        # The trainer's clock synchronises once, before the first step after warm-up.
        synchronise_before=frozenset({config.warmup_for(len(plans))}),
    )
    engine = Engine(workload.ranks, random, conditions, _clock(arrival))
    return engine, engine.play(plans)


def _simulate_training(workload: Training, device: Device, interval_ns: int) -> Run:
    config = apply_to_config(workload.config)
    engine, steps = _play(workload, config)
    waits = [step.synchronised for step in steps if step.synchronised is not None] + [
        engine.finish()
    ]
    end = int(engine.clock.host.max()) + ARRIVAL_NS
    ranks = [rank_run(rank, steps, waits, True) for rank in range(workload.ranks)]
    run = _run(workload, device, ranks, steps, end)
    memory = counters.memory_of(config, steps[-1].plan.operators)
    for own in run.ranks:
        own.counters = counters.sample(own, device, memory, START_NS, end, interval_ns)
        if workload.stacks:
            # rank-skew delays the last rank alone, so only its stacks show that.
            last = own.rank == workload.ranks - 1
            own.samples = stacks.sample(own, config.pathology, last, workload.seed, workload.stacks)
    return run


def _clock(start: Times) -> Clock:
    return Clock(start.copy(), start.copy(), start.copy())


def _plans(config: TrainConfig, workload: Training) -> list[StepPlan]:
    """One plan for each step; equal steps share theirs."""
    # Until the compiler gives up, what it has just compiled runs.
    recompiling = RECOMPILE_LIMIT if config.pathology == "recompile" else 0
    healthy = config.replace(pathology=None)
    configs = [
        (healthy if step < recompiling else config).replace(batch_size=images)
        for step, images in enumerate(_batches(config, workload.ranks))
    ]
    knobs = (workload.device, workload.clock, workload.solutions, workload.ranks)
    plans = {
        one: with_longer_kernels(_plan(one, *knobs), workload.longer)
        for one in dict.fromkeys(configs)
    }
    return [plans[one] for one in configs]


@lru_cache(maxsize=16)
def _plan(config: TrainConfig, device: str, clock: float, solutions: str, ranks: int) -> StepPlan:
    """The plan of one step. It is kept, since another seed does not change it and making it takes
    as long as playing some steps.
    """
    whole = devices.at_clock(device, clock)
    return build(
        operators_of_step(config), whole, solutions, ranks, config.batch_size, config.num_workers
    )


def _batches(config: TrainConfig, ranks: int) -> list[int]:
    """Images of each step on one rank; the last batch of an epoch is short. Raises UserError for a
    batch that is larger than a rank's images.
    """
    share = math.ceil(TRAINING_IMAGES / ranks)
    if config.batch_size > share:
        raise UserError(
            f"--batch-size {config.batch_size} is more than the {share:,} training images that each"
            f" of {ranks} ranks gets; give at most --batch-size {share}"
        )
    epoch = [config.batch_size] * (share // config.batch_size)
    if share % config.batch_size:
        epoch.append(share % config.batch_size)
    return (epoch * min(config.max_epochs, math.ceil(config.max_steps / len(epoch))))[
        : config.max_steps
    ]


def _watching(config: TrainConfig, profiler: str, step: int) -> Watching:
    """torch.profiler watches only the steps of its schedule, the other tools all of them."""
    schedule = config.schedule_for()
    if profiler == "torch" and schedule is not None and not schedule.watches(step):
        return costs.PROFILERS["none"]
    return costs.PROFILERS[profiler]


def _late_ns(config: TrainConfig, ranks: int, step: int) -> Times:
    """By how much a pathology delays each rank before the forward pass, [ranks] in ns."""
    late = np.zeros(ranks, dtype=np.int64)
    if config.pathology == "rank-skew":
        late[-1] = round(SKEW_SECONDS * 1e9)
    if config.pathology == "recompile" and step < RECOMPILE_LIMIT:
        late += RECOMPILE_NS
    return late


def _simulate_program(
    workload: MatrixProduct | ShardedStep, device: Device, interval_ns: int
) -> Run:
    sharded = isinstance(workload, ShardedStep)
    operators = operators_of_sharded_step(workload) if sharded else operators_of_product(workload)
    ranks = workload.ranks if sharded else 1
    plan = build(operators, device, SOLUTIONS[0], ranks, images=0, workers=None)
    conditions = Conditions(
        watching=lambda step: costs.PROFILERS[workload.profiler],
        loader_ns=lambda rank, images, now: 0,
        late_ns=lambda step: np.zeros(ranks, dtype=np.int64),
        # The program synchronises before and after each step; between two, one call stands for
        # both.
        synchronise_before=frozenset(range(workload.repeat)),
        setup=False,
    )
    random = np.random.default_rng([workload.seed, 0])
    begin = np.full(ranks, START_NS + IMPORT_NS, dtype=np.int64)
    if ranks > 1:
        begin += random.integers(0, ARRIVAL_NS, ranks)
    engine = Engine(ranks, random, conditions, _clock(begin))
    steps = engine.play([plan] * workload.repeat)
    waits = [step.synchronised for step in steps if step.synchronised is not None] + [
        engine.finish()
    ]
    end = int(engine.clock.host.max()) + ARRIVAL_NS
    run = _run(
        workload, device, [rank_run(rank, steps, waits, False) for rank in range(ranks)], steps, end
    )
    if sharded:
        held = BYTES_OF_A_PARAMETER * workload.parameters / ranks
    else:
        held = sum(
            nbytes(tensor) for tensor in (*plan.operators[-1].inputs, *plan.operators[0].inputs)
        )
    memory = counters.Memory(
        counters.IDLE_MEMORY_BYTES, counters.IDLE_MEMORY_BYTES + held, 0.0, 0.0
    )
    for own in run.ranks:
        own.counters = counters.sample(own, device, memory, START_NS, end, interval_ns)
    return run


def _run(
    workload: Workload,
    device: Device,
    ranks: Sequence[Any],
    steps: Sequence[PlayedStep],
    end_ns: int,
) -> Run:
    return Run(
        workload=workload,
        ranks=tuple(ranks),
        device=device,
        hostname=HOSTNAME,
        start_ns=START_NS,
        end_ns=end_ns,
        wall_clock_offset_ns=WALL_CLOCK_OFFSET_NS,
        command=_command(workload),
        steps=steps,
        error=model_error(),
    )


def _command(workload: Workload) -> tuple[str, ...]:
    """The workload as a command line, with the options that differ from their defaults."""
    if isinstance(workload, MatrixProduct):
        shapes = (
            "--x-shape",
            workload.rows,
            workload.inner,
            "--w-shape",
            workload.inner,
            workload.columns,
        )
        return (
            "python",
            "-m",
            "cifar_train.matmul",
            *map(str, shapes),
            "--repeat",
            str(workload.repeat),
        )
    if isinstance(workload, ShardedStep):
        return ("torchrun", "--standalone", "--nproc-per-node", str(workload.ranks), "train.py")
    words: list[str] = []
    for item in fields(workload.config):
        value = getattr(workload.config, item.name)
        if value == item.default:
            continue
        words += [flag(item.name)] if value is True else [flag(item.name), str(value)]
    return ("python", "-m", "cifar_train", *words)

"""What is to be played: a training run or a matrix product, on a named device, with the model's knobs.

Nothing here imports torch or pandas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cifar_train.config import TrainConfig

MAXIMUM_RANKS = 8
"""Devices of the one node that is modelled."""

SOLUTIONS = ("implicit-gemm", "winograd")
"""Which convolution kernels MIOpen's search found. AMD's published runs of one workload differ in it:
implicit-gemm is the kernel statistics with rocprofv3, winograd the 4-rank torch.profiler trace."""


@dataclass(frozen=True)
class Sampling:
    """How many call stacks a sampling profiler takes of each thread, by either clock or both; 0 for none.

    by_wall_clock -- a second, whether the thread works or sleeps.
    by_cpu_time   -- a second of CPU time that the thread uses: none while it sleeps.
    """

    by_wall_clock: float = 0
    by_cpu_time: float = 0


@dataclass(frozen=True)
class Training:
    """A run of the trainer.

    config    -- the trainer's own configuration: model, batch per rank, precision, steps, pathology, ...
    ranks     -- processes, one device each, all on one node of up to 8 devices.
    device    -- name of a file in gpumodel/data/devices, e.g. "MI300X".
    solutions -- one of SOLUTIONS; matters for convolutions in float16 and bfloat16.
    longer    -- (part of a name, factor) pairs: what if these kernels, or transfers, took that many times as long?
    clock     -- share of the device's peak clock, as heat or a power limit leaves it: arithmetic and chains of
                 steps take longer by its inverse, memory as long as before.
    profiler  -- the tool that looks on ("none", "torch", "rocprofv3", "rocprof-sys", "rpd"): its
                 overhead per host call is added to the host's timeline.
    stacks    -- how host call stacks are sampled; False for not at all.
    seed      -- of every random draw; the same workload gives the same run, byte by byte.
    """

    config: TrainConfig = field(default_factory=TrainConfig)
    ranks: int = 1
    device: str = "MI300X"
    solutions: str = "implicit-gemm"
    longer: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    clock: float = field(default=1.0, repr=False)
    profiler: str = "none"
    stacks: Sampling | Literal[False] = False
    seed: int = 0

    @property
    def altered(self) -> str:
        """`longer` and `clock` as text, empty where neither is set: recordings of all other runs keep their names."""
        return f"{self.longer} {self.clock}" if self.longer or self.clock != 1 else ""


@dataclass(frozen=True)
class MatrixProduct:
    """`python -m cifar_train.matmul`: X [rows, inner] times W [inner, columns] in float32, `repeat` times."""

    rows: int = 5000
    inner: int = 1000
    columns: int = 800
    repeat: int = 1
    device: str = "MI300X"
    profiler: str = "none"
    seed: int = 0


Workload = Training | MatrixProduct

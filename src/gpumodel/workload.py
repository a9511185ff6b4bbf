"""What is to be played: a training run, a matrix product or a sharded step, on a named device, with
the model's knobs.

Nothing here imports torch or pandas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cifar_train.config import TrainConfig

MAXIMUM_RANKS = 8
"""Devices of the one node that is modelled."""

SOLUTIONS = ("implicit-gemm", "winograd")
"""Which convolution kernels MIOpen's search found. AMD's published runs of the same workload differ
in that: the statistics by rocprofv3 have implicit GEMM, the 4-rank trace has Winograd.
"""


@dataclass(frozen=True)
class Sampling:
    """How often a sampling profiler takes the call stack of each thread, by either clock or by
    both; 0 for never.

    by_wall_clock -- samples per second, whether the thread works or sleeps.
    by_cpu_time   -- samples per second of CPU time that the thread uses, so none while it sleeps.
    """

    by_wall_clock: float = 0
    by_cpu_time: float = 0


@dataclass(frozen=True)
class Training:
    """A run of the trainer.

    config    -- the trainer's own configuration: model, batch per rank, precision, steps,
                 pathology, ...
    ranks     -- processes, one device each, all on one node of up to 8 devices.
    device    -- name of a file in gpumodel/data/devices, e.g. "MI300X".
    solutions -- one of SOLUTIONS; matters for convolutions in float16 and bfloat16.
    longer    -- (part of a name, factor) pairs: what if these kernels, or transfers, took that many
                 times as long?
    clock     -- share of the device's peak clock, as heat or a power limit leaves it: arithmetic
                 and chains of steps take longer by its inverse, memory as long as before.
    profiler  -- the tool that watches ("none", "torch", "rocprofv3", "rocprof-sys", "rpd"): its
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
        """`longer` and `clock` as text, empty where neither is set, so that recordings of all other
        runs keep their names.
        """
        return f"{self.longer} {self.clock}" if self.longer or self.clock != 1 else ""


@dataclass(frozen=True)
class MatrixProduct:
    """`python -m cifar_train.matmul`: X [rows, inner] times W [inner, columns] in float32, `repeat`
    times.
    """

    rows: int = 5000
    inner: int = 1000
    columns: int = 800
    repeat: int = 1
    device: str = "MI300X"
    profiler: str = "none"
    seed: int = 0


@dataclass(frozen=True)
class ShardedStep:
    """Training steps of a Llama under `fully_shard`: each layer is a unit, and so are the embedding
    and the head together.

    Forward and backward pass run in bfloat16, gradients are reduced in float32. There is no
    optimizer, and there are no element-wise kernels except FSDP's own copies. The defaults are
    Llama 3 70B as in the run that AMD published (data/published.toml).

    layers, width, hidden, key_value, vocabulary -- sizes of the model; key_value is the number of
    columns of the keys, and of the values.
    tokens, sequence -- tokens of one rank's batch, and of one text in it.
    heads     -- heads of the attention.
    recompute -- whether the backward pass computes each layer's forward pass again, except its last
                 product.
    reshard   -- whether a layer frees its gathered parameters after its forward pass; the last one
                 never does.
    prefetch  -- whether the backward pass asks for the next layer's parameters before it computes a
                 layer.
    """

    layers: int = 80
    width: int = 8192
    hidden: int = 28672
    key_value: int = 1024
    vocabulary: int = 128256
    tokens: int = 24576
    sequence: int = 8192
    heads: int = 64
    recompute: bool = True
    reshard: bool = True
    prefetch: bool = True
    ranks: int = 8
    repeat: int = 1
    device: str = "MI300X"
    profiler: str = "none"
    seed: int = 0

    @property
    def weights(self) -> tuple[tuple[int, int], ...]:
        """[inputs, outputs] of a layer's matrices: query, key and value; out; gate; up; down."""
        projections = ((self.width, self.width + 2 * self.key_value), (self.width, self.width))
        return (
            *projections,
            (self.width, self.hidden),
            (self.width, self.hidden),
            (self.hidden, self.width),
        )

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer, its two normalisations included."""
        return sum(inputs * outputs for inputs, outputs in self.weights) + 2 * self.width

    @property
    def outer_parameters(self) -> int:
        """Parameters of the embedding, the head and the last normalisation."""
        return 2 * self.vocabulary * self.width + self.width

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return self.layers * self.layer_parameters + self.outer_parameters


Workload = Training | MatrixProduct | ShardedStep

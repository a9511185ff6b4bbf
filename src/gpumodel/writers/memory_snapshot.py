"""The pickle that `torch.cuda.memory._dump_snapshot` would leave at the end of a played training
run.

The allocator is PyTorch's caching one on one stream: rules and sizes are those of
c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h (PyTorch 2.15) with their defaults:
no limit to splitting, no expandable segments, no other rounding. The operators of the steps and
their shapes tell when tensors come and go.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cifar_train.config import TrainConfig
from gpumodel.kernels.launch import nbytes
from gpumodel.play.counters import parameter_bytes
from gpumodel.recording.operators import Operator
from gpumodel.run import RankRun, Run
from gpumodel.writers.common.files import config_of, put, ranks_of, write_marker
from tidyprof.errors import UserError

PROTOCOL = 4
"""What `pickle.dump` takes up to Python 3.13 (documentation of `pickle`), and the newest that
torch's viewer reads (https://github.com/pytorch/pytorch/issues/183842).
"""


def write(run: Run, folder: Path, *, rank: int | None = None) -> list[Path]:
    """Write one file per rank, `snapshot_rank0.pickle`, with the history from the model's
    parameters to the last step, and the marker. `TensorLifetimes` says what is allocated when.

    rank -- write only this rank.

    Returns the files; raises UserError for a rank that the run does not have, and for a run that is
    not a training.
    """
    if config_of(run) is None:
        raise UserError("a memory snapshot is modelled for training runs only")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in ranks_of(run, rank):
        path = folder / f"snapshot_rank{one.rank}.pickle"
        written.append(put(path, pickle.dumps(_snapshot(run, one), protocol=PROTOCOL)))
    return [*written, write_marker(run, folder)]


def _snapshot(run: Run, rank: RankRun) -> dict[str, Any]:
    allocator = CachingAllocator(run.device.memory_bytes, rank.device)
    lifetimes = TensorLifetimes(allocator, config_of(run))
    for step in run.steps:
        plan = step.plan
        times_ns = step.marks[rank.rank][plan.begin] + run.wall_clock_offset_ns
        lifetimes.play(plan.operators, (times_ns // 1000).tolist())
    return allocator.snapshot()


STATES = 2
"""Tensors of a parameter's size that Adam keeps for it (torch.optim.Adam: exp_avg, exp_avg_sq)."""

LINES = {
    "model": ("train.py", "set_up", "trainer = Trainer("),
    "data": ("loop.py", "next_batch", "images, labels = trainer.to_device("),
    "forward": ("loop.py", "train", "logits = trainer.model(images)"),
    "loss": ("loop.py", "train", "loss = cross_entropy("),
    "optimizer": ("loop.py", "train", "trainer.scaler.step("),
    "growth": ("pathologies.py", "after_backward", "self.kept.append("),
}
"""What a tensor is for -> file of cifar_train, function, and statement that allocates it."""

AUTOGRAD: Frames = (("??", 0, "torch::autograd::Engine::evaluate_function"),)
"""The backward pass runs in autograd's own thread, which has no Python function."""


class TensorLifetimes:
    """Plays one step after the other on an allocator.

    All results of the forward pass and of the loss stay until the backward pass, which frees them
    in reverse order, evenly over its operators. That is an upper bound, since autograd does not
    need all of them. A result of the backward pass lives until two more have come. Gradients come
    evenly, that of the last parameter first, and stay until zero_grad. Operators whose names end in
    `_` work in place; views and other work of the host allocate nothing. Workspaces of libraries,
    buffers of RCCL and the model's own buffers are left out.
    """

    def __init__(self, allocator: CachingAllocator, config: TrainConfig) -> None:
        self._allocator = allocator
        self._config = config
        self._parameters: list[int] = []
        self._batch: list[int] = []
        self._kept: list[int] = []
        self._short: deque[int] = deque()
        self._gradients: list[int] = []
        self._states_are_there = False

    def play(self, operators: Sequence[Operator], times_us: Sequence[int]) -> None:
        """Play one step. times_us -- when each operator begins, in microseconds since 1970."""
        casts = {operator.index for operator in operators if operator.name == "aten::_to_copy"}
        phases: dict[str, list[tuple[int, list[int]]]] = {}
        for operator, time_us in zip(operators, times_us, strict=True):
            if operator.on_device and (sizes := _results(operator, casts)):
                phases.setdefault(operator.phase, []).append((time_us, sizes))
        if not self._parameters:
            self._parameters = parameter_bytes(operators)
            self._take(self._parameters, times_us[0], frames_of("model"))
        self._data(phases.get("data", []))
        for phase in ("forward", "loss"):
            for time_us, sizes in phases.get(phase, []):
                self._kept += self._take(sizes, time_us, frames_of(phase))
        self._backward(phases.get("backward", []))
        last = times_us[-1]
        if self._config.pathology == "memory-growth":
            self._take([max(self._parameters)], phases["optimizer"][0][0], frames_of("growth"))
        self._optimizer(phases.get("optimizer", []))
        self._release(self._gradients, last)

    def _data(self, results: list[tuple[int, list[int]]]) -> None:
        """Allocate the batch; the one before is freed once this one is there."""
        before, self._batch = self._batch, []
        for time_us, sizes in results:
            self._batch += self._take(sizes, time_us, frames_of("data"))
        if results:
            self._release(before, results[-1][0])

    def _backward(self, results: list[tuple[int, list[int]]]) -> None:
        activations, parameters = len(self._kept), self._parameters[::-1]
        for done, (time_us, sizes) in enumerate(results, start=1):
            share = done / len(results)
            self._short += self._take(sizes, time_us, AUTOGRAD)
            new = parameters[len(self._gradients) : round(share * len(parameters))]
            self._gradients += self._take(new, time_us, AUTOGRAD)
            while len(self._short) > 2:
                self._allocator.free(self._short.popleft(), time_us)
            while len(self._kept) > round((1 - share) * activations):
                self._allocator.free(self._kept.pop(), time_us)
        self._release(self._short, results[-1][0] if results else 0)

    def _optimizer(self, results: list[tuple[int, list[int]]]) -> None:
        for place, (time_us, sizes) in enumerate(results):
            if place == 0 and not self._states_are_there:
                self._take(self._parameters * STATES, time_us, frames_of("optimizer"))
                self._states_are_there = True
            self._release(self._take(sizes, time_us, frames_of("optimizer")), time_us)

    def _take(self, sizes: Iterable[int], time_us: int, frames: Frames) -> list[int]:
        return [self._allocator.allocate(size, time_us, frames) for size in sizes]

    def _release(self, addresses: deque[int] | list[int], time_us: int) -> None:
        while addresses:
            self._allocator.free(addresses.pop(), time_us)


def _results(operator: Operator, casts: set[int]) -> list[int]:
    """Bytes of each tensor that an operator allocates."""
    is_copy = operator.name == "aten::copy_"
    if operator.name.endswith("_") and not (is_copy and operator.parent in casts):
        return []
    if operator.name.startswith(("nccl:", "c10d::")):
        return []
    return [round(nbytes(tensor)) for tensor in operator.outputs if nbytes(tensor)]


@cache
def frames_of(what: str) -> Frames:
    """The line of the trainer in LINES, as a call stack of one function."""
    file, function, statement = LINES[what]
    lines = files("cifar_train").joinpath(file).read_text(encoding="utf-8").splitlines()
    (number,) = [
        place for place, line in enumerate(lines, start=1) if line.strip().startswith(statement)
    ]
    return ((f"cifar_train/{file}", number, function),)


ROUNDING = 512
SMALL = 2**20
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
OWN_SEGMENT = 10 * 2**20
SEGMENT_ROUNDING = 2 * 2**20
"""All in bytes (c10/core/AllocatorConfig.h). Sizes of blocks are multiples of ROUNDING. Blocks up
to SMALL come from segments of SMALL_SEGMENT, larger ones below OWN_SEGMENT from segments of
LARGE_SEGMENT; all others get a segment of their own, a multiple of SEGMENT_ROUNDING.
"""

FIRST_ADDRESS = 0x7F00_0000_0000
"""Address of the first segment, made up."""

Frames = Sequence[tuple[str, int, str]]
"""A call stack: file, line and function of each frame, the innermost first."""


class OutOfMemoryError(UserError):
    """The device has no free piece of memory that is large enough."""


@dataclass
class _Block:
    address: int
    size: int
    requested: int = 0
    is_taken: bool = False
    frames: Frames = ()


@dataclass
class _Segment:
    address: int
    size: int
    blocks: list[_Block]
    frames: Frames

    @property
    def is_small(self) -> bool:
        return self.size == SMALL_SEGMENT


class CachingAllocator:
    """The memory of one device.

    capacity -- bytes that the device has for the allocator.
    trace    -- its actions so far, as torch writes them; times in microseconds since 1970.
    """

    def __init__(self, capacity: int, device: int = 0) -> None:
        self.trace: list[dict[str, Any]] = []
        self._capacity = capacity
        self._device = device
        self._segments: list[_Segment] = []
        self._next_address = FIRST_ADDRESS

    @property
    def reserved(self) -> int:
        """Bytes in segments."""
        return sum(segment.size for segment in self._segments)

    def allocate(self, size: int, time_us: int = 0, frames: Frames = ()) -> int:
        """The address of a new block for `size` bytes. Raises OutOfMemoryError, which the trace
        then shows, too.
        """
        rounded = max(ROUNDING, -(-size // ROUNDING) * ROUNDING)
        segment, block = self._fitting(rounded) or self._new_segment(size, rounded, time_us, frames)
        rest = block.size - rounded
        # should_split of CUDACachingAllocator.cpp.
        if rest >= ROUNDING if segment.is_small else rest > SMALL:
            place = segment.blocks.index(block)
            segment.blocks.insert(place + 1, _Block(block.address + rounded, rest))
            block.size = rounded
        block.requested, block.is_taken, block.frames = size, True, frames
        self._note("alloc", block.address, size, time_us, frames)
        return block.address

    def free(self, address: int, time_us: int = 0) -> None:
        """Give a block back to the allocator, which joins it with free neighbours."""
        segment = next(
            one for one in self._segments if one.address <= address < one.address + one.size
        )
        place = next(
            place for place, block in enumerate(segment.blocks) if block.address == address
        )
        block = segment.blocks[place]
        for action in ("free_requested", "free_completed"):
            self._note(action, address, block.requested, time_us)
        block.requested, block.is_taken, block.frames = 0, False, ()
        for left in (place, place - 1):
            pair = segment.blocks[left : left + 2] if left >= 0 else []
            if len(pair) == 2 and not pair[0].is_taken and not pair[1].is_taken:
                pair[0].size += pair[1].size
                del segment.blocks[left + 1]

    def snapshot(self) -> dict[str, Any]:
        """Segments, blocks and actions, in the words of `torch.cuda.memory._snapshot`."""
        return {
            "segments": [self._segment_dict(segment) for segment in self._segments],
            "device_traces": [[] for _ in range(self._device)] + [self.trace],
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "max_split_size": -1,
                "expandable_segments": False,
            },
            "external_annotations": [],
        }

    def _fitting(self, rounded: int) -> tuple[_Segment, _Block] | None:
        """The smallest free block that is large enough, and of equal ones the first; None if there
        is none.
        """
        free = (
            (block.size, block.address, segment, block)
            for segment in self._segments
            if segment.is_small == (rounded <= SMALL)
            for block in segment.blocks
            if not block.is_taken and block.size >= rounded
        )
        found = min(free, key=lambda one: one[:2], default=None)
        return found and found[2:]

    def _new_segment(
        self, size: int, rounded: int, time_us: int, frames: Frames
    ) -> tuple[_Segment, _Block]:
        wanted = SMALL_SEGMENT if rounded <= SMALL else LARGE_SEGMENT
        if rounded >= OWN_SEGMENT:
            wanted = -(-rounded // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
        # Like torch, give up only after the free segments have gone back to the device.
        if self.reserved + wanted > self._capacity:
            self._release_free_segments(time_us)
        if self.reserved + wanted > self._capacity:
            free = self._capacity - self.reserved
            entry = {
                "action": "oom",
                "device_free": free,
                "size": rounded,
                "stream": 0,
                "time_us": time_us,
            }
            self.trace.append(entry | {"pool_id": (0, 0), "frames": _dicts(frames)})
            raise OutOfMemoryError(
                f"{size} bytes can't be had: {free} are free, and no free block is large enough"
            )
        block = _Block(self._next_address, wanted)
        segment = _Segment(block.address, wanted, [block], frames)
        self._next_address += wanted
        self._segments.append(segment)
        self._note("segment_alloc", segment.address, wanted, time_us, frames)
        return segment, block

    def _release_free_segments(self, time_us: int) -> None:
        for segment in [
            one for one in self._segments if not any(block.is_taken for block in one.blocks)
        ]:
            self._segments.remove(segment)
            self._note("segment_free", segment.address, segment.size, time_us)

    def _note(
        self, action: str, address: int, size: int, time_us: int, frames: Frames = ()
    ) -> None:
        entry = {
            "action": action,
            "addr": address,
            "size": size,
            "stream": 0,
            "time_us": time_us,
            "pool_id": (0, 0),
        }
        self.trace.append(entry | ({"frames": _dicts(frames)} if frames else {}))

    def _segment_dict(self, segment: _Segment) -> dict[str, Any]:
        taken = [block for block in segment.blocks if block.is_taken]
        used = sum(block.size for block in taken)
        return {
            "device": self._device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": used,
            "active_size": used,
            "requested_size": sum(block.requested for block in taken),
            "stream": 0,
            "segment_type": "small" if segment.is_small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": _dicts(segment.frames),
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": "active_allocated" if block.is_taken else "inactive",
                    "frames": _dicts(block.frames),
                }
                for block in segment.blocks
            ],
        }


def _dicts(frames: Frames) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in frames]

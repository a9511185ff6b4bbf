"""Model of PyTorch's caching allocator on one stream, and of its snapshots.

The rules and sizes come from c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h
(PyTorch 2.15) with default settings: no limit to splitting, no expandable segments, no rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidyprof.errors import UserError

ROUNDING = 512
SMALL = 2**20
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
OWN_SEGMENT = 10 * 2**20
SEGMENT_ROUNDING = 2 * 2**20
"""Sizes in bytes (c10/core/AllocatorConfig.h). Block sizes are multiples of ROUNDING. Blocks up to
SMALL come from segments of SMALL_SEGMENT, and larger ones below OWN_SEGMENT from segments of
LARGE_SEGMENT. All others get their own segment, a multiple of SEGMENT_ROUNDING.
"""

FIRST_ADDRESS = 0x7F00_0000_0000
"""Arbitrary address of the first segment."""

Frames = Sequence[tuple[str, int, str]]
"""File, line and function of each frame of a call stack, starting with the innermost."""


class OutOfMemoryError(UserError):
    """An error because the device has no free block that is large enough."""


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

    capacity -- bytes of the device for the allocator.
    trace    -- actions so far, as PyTorch writes them; times in microseconds since 1970.
    """

    def __init__(self, capacity: int) -> None:
        self.trace: list[dict[str, Any]] = []
        self._capacity = capacity
        self._segments: list[_Segment] = []
        self._next_address = FIRST_ADDRESS

    @property
    def reserved(self) -> int:
        """Return the bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def allocate(self, size: int, time_us: int = 0, frames: Frames = ()) -> int:
        """Return the address of a new block. Raises OutOfMemoryError, which the trace records."""
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
        """Return a block to the allocator, which joins it with free neighbors."""
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
        """Return segments, blocks and actions in the format of `torch.cuda.memory._snapshot`."""
        return {
            "segments": [self._segment_dict(segment) for segment in self._segments],
            "device_traces": [self.trace],
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "max_split_size": -1,
                "expandable_segments": False,
            },
            "external_annotations": [],
        }

    def _fitting(self, rounded: int) -> tuple[_Segment, _Block] | None:
        """Return the smallest free block that is large enough (the first of equals), or None."""
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
        # Like PyTorch, give up only after returning the free segments to the device.
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
                f"Can't allocate {size} bytes: {free} are free, but no free block is large enough."
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
            "device": 0,
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

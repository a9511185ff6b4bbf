"""Snapshots of PyTorch's allocator, small enough to know every number in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

MEBIBYTE = 2**20
TRAIN = {"filename": "/home/me/train.py", "line": 12, "name": "step"}
TORCH = {
    "filename": "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
    "line": 130,
    "name": "forward",
}
CPP = {"filename": "/pytorch/c10/core/Allocator.cpp", "line": 0, "name": "c10::alloc"}


def small_snapshot() -> dict[str, Any]:
    """One segment of 20 MiB: 4 MiB are taken, the rest is free; a request for 18 MiB failed.

    The history begins after 1 MiB of the 4 had been taken, as it does when torch's buffer is full.
    """
    return {
        "segments": [
            {
                "device": 0,
                "address": 4096,
                "total_size": 20 * MEBIBYTE,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "frames": [],
                "blocks": [
                    block(4096, 3, "active_allocated", [CPP, TORCH, TRAIN]),
                    block(4096 + 3 * MEBIBYTE, 1, "active_pending_free", []),
                    block(4096 + 4 * MEBIBYTE, 16, "inactive", []),
                ],
            }
        ],
        "device_traces": [
            [
                entry("alloc", 1, 3 * MEBIBYTE - 100, 4096, [CPP, TORCH, TRAIN]),
                entry("alloc", 2, 8 * MEBIBYTE, 8 * MEBIBYTE, [CPP]),
                entry("free_requested", 3, 8 * MEBIBYTE, 8 * MEBIBYTE),
                entry("free_completed", 3, 8 * MEBIBYTE, 8 * MEBIBYTE),
                {
                    key: value
                    for key, value in entry("oom", 4, 18 * MEBIBYTE).items()
                    if key != "addr"
                }
                | {"device_free": 5 * MEBIBYTE},
            ]
        ],
        "allocator_settings": {"expandable_segments": False},
        "external_annotations": [],
    }


def block(address: int, mebibytes: int, state: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    """A block; one that is taken was asked for 100 bytes less."""
    size = mebibytes * MEBIBYTE
    requested = 0 if state == "inactive" else size - 100
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": frames,
    }


def entry(
    action: str,
    time_us: int,
    size: int,
    address: int = 0,
    frames: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """One action of the history."""
    found = {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + time_us,
    }
    return found | ({"frames": frames} if frames else {})


def write(path: Path, snapshot: Any, protocol: int = 4) -> Path:
    """Write as torch does."""
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path

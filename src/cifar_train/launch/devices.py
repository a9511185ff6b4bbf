"""Which of the visible devices belongs to this rank."""

from __future__ import annotations

import torch

from cifar_train.errors import UserError
from cifar_train.launch.ranks import Launch


def pick_device(wanted: str, launch: Launch) -> torch.device:
    """The torch device of this rank.

    One visible device means ordinal 0 whatever the rank (Slurm may show each task
    its own GPU as number 0), else the local rank. Raises UserError.
    """
    kind = _available_kind() if wanted == "auto" else wanted
    if kind == "cpu":
        return torch.device("cpu")
    count = getattr(torch, kind).device_count() if hasattr(torch, kind) and getattr(torch, kind).is_available() else 0
    if count == 0:
        raise UserError(f"--device {kind}: torch {torch.__version__} sees no such device; --device cpu always works")
    return torch.device(kind, ordinal(count, launch))


def ordinal(device_count: int, launch: Launch) -> int:
    """Which of the visible devices belongs to this rank. Raises UserError if there are too few."""
    if device_count == 1:
        return 0
    if launch.local_rank >= device_count:
        raise UserError(
            f"local rank {launch.local_rank} has no device: only {device_count} are visible; start at most "
            f"{device_count} processes a node, or check ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"
        )
    return launch.local_rank


def _available_kind() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "xpu"
    return "cpu"

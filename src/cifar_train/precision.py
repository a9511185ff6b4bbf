"""Arithmetic types, autocast and gradient scaling for each precision and device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from cifar_train.config import TrainConfig

EMULATED_FACTOR = "7 to 15 times"
"""Slowdown of a step in emulated bfloat16, compared with float32.

We measured the slowdown for resnet with batch size 8 on two AMD EPYC CPU cores. On these cores,
oneDNN supports only AVX2.
"""


def has_bfloat16() -> bool:
    """Return True if this CPU computes at least about as fast in bfloat16 as in float32.

    On x86, torch queries oneDNN, which honors ONEDNN_MAX_CPU_ISA and reports support for AVX-512
    and newer. On ARM, torch queries the CPU itself. In a torch build without oneDNN, bfloat16 is
    never fast.
    """
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def arithmetic(precision: str, device: torch.device) -> torch.dtype:
    """Return the data type of matrix products and convolutions: float16, bfloat16 or float32.

    On a GPU, automixed uses float16, as AMD's example does. On a CPU, automixed uses bfloat16,
    or float32 if bfloat16 is slower. On a CPU, automixed never uses float16, which is far slower.
    """
    if precision != "automixed":
        return getattr(torch, precision)
    if device.type != "cpu":
        return torch.float16
    return torch.bfloat16 if has_bfloat16() else torch.float32


def mixed_precision(
    config: TrainConfig, device: torch.device
) -> tuple[Callable[[], AbstractContextManager], torch.amp.GradScaler]:
    """Return the model's autocast context and the gradient scaler.

    The context and the scaler do nothing unless the precision is mixed.
    """
    # Only float16 needs gradient scaling because its range is so small.
    half = arithmetic(config.precision, device)
    mixed = config.precision == "automixed" and half is not torch.float32
    scaler = torch.amp.GradScaler(device.type, enabled=mixed and half is torch.float16)
    return (lambda: torch.autocast(device.type, dtype=half)) if mixed else nullcontext, scaler


def notes(config: TrainConfig, device: torch.device) -> list[str]:
    """Return messages to the user about this precision on this device, one line each."""
    if config.precision == "automixed" and device.type == "cpu":
        if has_bfloat16():
            return [
                "on a CPU, automixed uses bfloat16 autocast without gradient scaling, because"
                " float16 is far slower on a CPU"
            ]
        return ["this CPU doesn't support 16-bit arithmetic, so automixed runs in float32"]
    if config.precision != "bfloat16":
        return []
    found = ["weights and optimizer state are stored in bfloat16, without a float32 master copy"]
    if device.type == "cpu" and not has_bfloat16():
        found.append(
            f"this CPU emulates bfloat16, so a step may take {EMULATED_FACTOR} as long as it would"
            " in float32"
        )
    return found

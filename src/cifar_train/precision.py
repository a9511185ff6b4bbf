"""What a precision means on a device: the arithmetic type, autocast and gradient scaling."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from cifar_train.config import TrainConfig

EMULATED_FACTOR = "7 to 15 times"
"""How many times as long a step takes in emulated bfloat16 as in float32.

Measured with resnet and batch size 8 on two AMD EPYC CPU cores on which oneDNN has only AVX2.
"""


def has_bfloat16() -> bool:
    """Return True if this CPU computes about as fast in bfloat16 as in float32, or faster.

    On x86, torch asks oneDNN, which respects ONEDNN_MAX_CPU_ISA and reports support for AVX-512 and
    newer. On ARM, torch queries the CPU itself. A torch build without oneDNN never has fast
    bfloat16.
    """
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def arithmetic(precision: str, device: torch.device) -> torch.dtype:
    """Return the type in which matrix products and convolutions run: float16, bfloat16 or float32.

    On a GPU, automixed uses float16, as in AMD's example. On a CPU, it uses bfloat16 if that isn't
    slower than float32, and otherwise float32. float16 is far slower on a CPU.
    """
    if precision != "automixed":
        return getattr(torch, precision)
    if device.type != "cpu":
        return torch.float16
    return torch.bfloat16 if has_bfloat16() else torch.float32


def mixed_precision(
    config: TrainConfig, device: torch.device
) -> tuple[Callable[[], AbstractContextManager], torch.amp.GradScaler]:
    """Return the autocast context for the model and the scaler for its gradients.

    Both do nothing if the precision isn't mixed.
    """
    # Only float16 has such a small range that gradients must be scaled.
    half = arithmetic(config.precision, device)
    mixed = config.precision == "automixed" and half is not torch.float32
    scaler = torch.amp.GradScaler(device.type, enabled=mixed and half is torch.float16)
    return (lambda: torch.autocast(device.type, dtype=half)) if mixed else nullcontext, scaler


def notes(config: TrainConfig, device: torch.device) -> list[str]:
    """Return what a user should know about this precision on this device, one line each."""
    if config.precision == "automixed" and device.type == "cpu":
        if has_bfloat16():
            return [
                "on a CPU, automixed is bfloat16 autocast without gradient scaling, because float16"
                " is far slower there"
            ]
        return ["this CPU doesn't support 16-bit arithmetic, so automixed runs in float32"]
    if config.precision != "bfloat16":
        return []
    found = [
        "bfloat16 stores weights and optimizer state in bfloat16, without a float32 master copy"
    ]
    if device.type == "cpu" and not has_bfloat16():
        found.append(
            f"this CPU emulates bfloat16, so expect a step to take {EMULATED_FACTOR} as long as"
            " in float32"
        )
    return found

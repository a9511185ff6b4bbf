"""What a precision means on a device: the type of the arithmetic, autocast, gradient scaling."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from cifar_train.config import TrainConfig

EMULATED_FACTOR = "7 to 15 times"
"""How much longer a step takes in emulated bfloat16 than in float32: measured with resnet, batch 8,
on two AMD EPYC processors on which oneDNN has only AVX2.
"""


def has_bfloat16() -> bool:
    """Whether this processor, as oneDNN uses it, computes about as fast in bfloat16 as in float32,
    or faster.

    On x86 torch asks oneDNN, which keeps to ONEDNN_MAX_CPU_ISA and says yes from AVX-512 on; on ARM
    it asks the processor itself. A build of torch without oneDNN has no fast bfloat16 anywhere.
    """
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def arithmetic(precision: str, device: torch.device) -> torch.dtype:
    """The type in which matrix products and convolutions run: float16, bfloat16 or float32.

    On a GPU automixed is float16, as in AMD's example. On a processor it is bfloat16 where that is
    no slower than float32, else float32; float16 is far slower there.
    """
    if precision != "automixed":
        return getattr(torch, precision)
    if device.type != "cpu":
        return torch.float16
    return torch.bfloat16 if has_bfloat16() else torch.float32


def mixed_precision(
    config: TrainConfig, device: torch.device
) -> tuple[Callable[[], AbstractContextManager], torch.amp.GradScaler]:
    """Autocast around the model, and the scaler of its gradients; both do nothing where there is
    nothing to mix.
    """
    # Only float16 has so small a range that gradients must be scaled.
    half = arithmetic(config.precision, device)
    mixed = config.precision == "automixed" and half is not torch.float32
    scaler = torch.amp.GradScaler(device.type, enabled=mixed and half is torch.float16)
    return (lambda: torch.autocast(device.type, dtype=half)) if mixed else nullcontext, scaler


def notes(config: TrainConfig, device: torch.device) -> list[str]:
    """What a user should know of this precision on this device, one line each."""
    if config.precision == "automixed" and device.type == "cpu":
        if has_bfloat16():
            return [
                "automixed on a CPU is bfloat16 autocast without gradient scaling: float16 is far"
                " slower there"
            ]
        return ["this processor has no 16-bit arithmetic, so automixed runs in float32"]
    if config.precision != "bfloat16":
        return []
    found = [
        "bfloat16 keeps weights and optimizer state in bfloat16, without a float32 master copy"
    ]
    if device.type == "cpu" and not has_bfloat16():
        found.append(
            f"this processor emulates bfloat16: expect a step to take {EMULATED_FACTOR} as long as"
            " in float32"
        )
    return found

"""Runs in a process of its own: imports torch, looks for a device and runs one kernel, with one
line of JSON for each stage.

`python -m proflab.doctor.torch_child [TRACE]`. With TRACE the kernel runs under torch.profiler,
which writes that file. Each stage is printed as soon as it is done, so that a hang shows where it
happened. Exit code 3: no device.
"""

from __future__ import annotations

import json
import sys
from typing import Any

VALUES = 1024
"""Number of elements of the array that the one kernel fills."""


def main(arguments: list[str]) -> int:
    """Go through the stages import, bfloat16, collectives, device and kernel. Returns the exit
    code: 3 without a device, else 0.
    """
    import torch

    from cifar_train.precision import has_bfloat16

    tell("import", version=torch.__version__, hip=torch.version.hip, cuda=torch.version.cuda)
    tell("bfloat16", native=has_bfloat16())
    tell("collectives", library=_collectives(torch))
    if not torch.cuda.is_available():
        tell("device", count=0)
        return 3
    tell("device", count=torch.cuda.device_count(), name=torch.cuda.get_device_name(0))
    if arguments:
        with torch.profiler.profile() as profiler:
            total = _one_kernel(torch)
        profiler.export_chrome_trace(arguments[0])
    else:
        total = _one_kernel(torch)
    tell("kernel", right=total == VALUES)
    return 0


def tell(stage: str, **facts: Any) -> None:
    """Print one stage with its facts, as a line of JSON."""
    print(json.dumps({"stage": stage, **facts}), flush=True)


def _one_kernel(torch: Any) -> float:
    """Fill an array on the device, wait, and add up its values on the host."""
    filled = torch.full((VALUES,), 1.0, device="cuda")
    torch.cuda.synchronize()
    return float(filled.cpu().sum())


def _collectives(torch: Any) -> str | None:
    """Version of NCCL, which in a ROCm build is RCCL; None for a build without it."""
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    try:
        return ".".join(str(number) for number in torch.cuda.nccl.version())
    except Exception:  # a build may have the library and not tell its version
        return "of unknown version"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

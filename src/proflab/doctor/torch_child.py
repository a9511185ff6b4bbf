"""Separate process that imports torch, looks for a device and runs one kernel.

`python -m proflab.doctor.torch_child [--profile]` starts the process. The process prints one
line of JSON after each stage, so the last line shows where the process hung. The last stage
lists the profiler libraries in this process. With --profile, the kernel runs under
torch.profiler, and the process counts the recorded kernels.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

VALUES = 1024
"""Number of elements in the array that the kernel fills."""


def main(arguments: list[str]) -> int:
    """Run the stages import, device and kernel. Return 3 if there is no device, otherwise 0."""
    import torch

    tell("import", version=torch.__version__)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    tell("device", count=count, name=torch.cuda.get_device_name(0) if count else "")
    if not count:
        return 3
    profiler = torch.profiler.profile() if arguments else None
    with profiler or nullcontext():
        filled = torch.full((VALUES,), 1.0, device="cuda")
        torch.cuda.synchronize()
    seen = [one for one in profiler.events() if "CUDA" in str(one.device_type)] if profiler else []
    tell(
        "kernel",
        right=float(filled.cpu().sum()) == VALUES,
        recorded=len(seen),
        profilers=profilers_in(Path("/proc/self/maps").read_text()),
    )
    return 0


def profilers_in(maps: str) -> list[str]:
    """Return the profiler libraries in the text of /proc/PID/maps, each with its two parent
    folders.

    librocprofiler-register is excluded because the runtime always loads it to look for
    profilers.
    """
    name = r"lib(?:rocprof(?!iler-register)|roctracer|rpd_tracer|omnistat)[^/\s]*\.so[.\d]*"
    return sorted(set(re.findall(rf"((?:[^/\s]+/){{2}}{name})$", maps, re.MULTILINE)))


def tell(stage: str, **facts: Any) -> None:
    """Print one completed stage and its data as a line of JSON."""
    print(json.dumps({"stage": stage, **facts}), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

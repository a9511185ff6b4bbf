"""Separate process that imports torch, looks for a device, and runs one kernel.

It prints one line of JSON for each stage. The last stage lists the profiler libraries in this
process.

`python -m proflab.doctor.torch_child [--profile]` starts it. With --profile, the kernel runs under
torch.profiler, and the recorded kernels are counted. Each stage is printed as soon as it is done,
so the last line shows where a hang happened.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

VALUES = 1024
"""Number of elements of the array that the one kernel fills."""


def main(arguments: list[str]) -> int:
    """Run the stages import, device and kernel. Return 3 without a device and 0 otherwise."""
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
    """Return the profiler libraries in the text of a /proc/PID/maps file, each with two folders.

    librocprofiler-register doesn't count, because the runtime always loads it to look for
    profilers.
    """
    name = r"lib(?:rocprof(?!iler-register)|roctracer|rpd_tracer|omnistat)[^/\s]*\.so[.\d]*"
    return sorted(set(re.findall(rf"((?:[^/\s]+/){{2}}{name})$", maps, re.MULTILINE)))


def tell(stage: str, **facts: Any) -> None:
    """Print one stage and its facts as a line of JSON."""
    print(json.dumps({"stage": stage, **facts}), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

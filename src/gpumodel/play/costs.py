"""What an operator or a runtime call costs the host.

Measured under torch.profiler in a public trace of this workload on four MI300X
(scripts/dev/measure_host_costs.py writes host_costs.json); what the profiler adds is inside.
Without it, or under another tool, a factor applies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

UNWATCHED = 0.475
"""Share of the host's cost that remains without torch.profiler. Fitted: one MI300X then takes 20.0
ms a step, the median of steps 5 to 20 that AMD publishes
(https://github.com/amd/HPCTrainingExamples, MLExamples/PyTorch_Profiling/no-profiling, 12,787
images/s).
"""


@dataclass(frozen=True)
class Watching:
    """What a tool does to the host: cost = factor x measured cost, plus call_ns for each runtime
    call.
    """

    factor: float
    call_ns: int = 0


PROFILERS = {
    "none": Watching(UNWATCHED),
    "torch": Watching(1.0),
    "rocprofv3": Watching(UNWATCHED, 1500),
    "rocprof-sys": Watching(UNWATCHED, 3000),
    "rpd": Watching(UNWATCHED, 2000),
}
"""Tool -> its effect. Only "torch" is measured. The call_ns of the others are assumptions of the
right order (a callback that reads the clock twice and stores a record); nobody publishes them.
"""

DEFAULT_NS = {"view": 1500, "parent": 4500, "leaf": 9000, "node": 6000, "compiled": 8000}
"""Measured under torch.profiler too, as a rounded mean over the operators of that sort, for those
that the trace does not have. compiled (launch of a kernel from the compiler's wrapper) is an
assumption: it calls no dispatcher.
"""

VIEW_GAP_NS = 1000
"""Host time before a view: mostly called by the operator above in C++."""

HANDOVER_NS = 150_000
"""Between the main thread and autograd's, each way: 140 and 217 us in the trace."""


@cache
def _table() -> dict[str, dict[str, int]]:
    return json.loads((files("gpumodel.play") / "host_costs.json").read_text())


def operator_ns(name: str, kind: str) -> int:
    """Host time of an operator without its children and launches. `kind` is a key of DEFAULT_NS."""
    return _table()["self_ns"].get(name, DEFAULT_NS[kind])


def call_ns(name: str) -> int:
    """Host time of a launching runtime call; of one that waits, without the waiting."""
    calls = _table()["call_ns"]
    # Triton and hipBLASLt launch modules by other entry points than MIOpen, with the same work to
    # do.
    return calls.get(name, calls["hipExtModuleLaunchKernel"])


def delay_ns(name: str) -> int:
    """From the end of a launching call to the start of its work on an idle device."""
    delays = _table()["delay_ns"]
    return max(delays.get(name, delays["hipLaunchKernel"]), 0)


def gap_ns(kind: str) -> int:
    """Host time (Python, the autograd engine) before an operator: main, module or autograd."""
    return _table()["gap_ns"][kind]

"""What an operator or a runtime call costs the host.

Costs are measured in the 4-rank trace, and so under torch.profiler
(scripts/dev/measure_host_costs.py writes host_costs.json): they include what the profiler adds.
Without it, or under another tool, they are multiplied by a factor.
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
    """What a tool does to the host: a cost is factor x measured cost, and call_ns more for each
    runtime call.
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
"""Tool -> its effect. Only "torch" is measured. Nobody publishes the call_ns of the others: these
are assumptions, of the order of a callback that reads the clock twice and stores a record.
"""

DEFAULT_NS = {"view": 1500, "parent": 4500, "leaf": 9000, "node": 6000, "compiled": 8000}
"""Cost in ns of operators that the trace does not have, by kind: the rounded mean over the trace's
operators of that kind, also under torch.profiler. compiled, a launch from the compiler's wrapper,
is an assumption: it does not pass the dispatcher.
"""

VIEW_GAP_NS = 1000
"""Host time before a view, an assumption: mostly the operator above calls it in C++."""

HANDOVER_NS = 150_000
"""Between the main thread and autograd's, each way: 140 and 217 us in the 4-rank trace."""


@cache
def _table() -> dict[str, dict[str, int]]:
    return json.loads((files("gpumodel.play") / "host_costs.json").read_text())


def operator_ns(name: str, kind: str) -> int:
    """Host time of an operator in ns, without its children and launches. kind -- key of
    DEFAULT_NS.
    """
    return _table()["self_ns"].get(name, DEFAULT_NS[kind])


def call_ns(name: str) -> int:
    """Host time of a runtime call in ns; if it waits, without the waiting."""
    calls = _table()["call_ns"]
    # Triton and hipBLASLt launch their kernels by other functions than MIOpen; these do the same
    # work.
    return calls.get(name, calls["hipExtModuleLaunchKernel"])


def delay_ns(name: str) -> int:
    """From the end of a launching call to the start of its work on an idle device, in ns."""
    delays = _table()["delay_ns"]
    return max(delays.get(name, delays["hipLaunchKernel"]), 0)


def gap_ns(kind: str) -> int:
    """Host time in ns before an operator, in Python or in autograd's engine. kind -- main, module
    or autograd.
    """
    return _table()["gap_ns"][kind]

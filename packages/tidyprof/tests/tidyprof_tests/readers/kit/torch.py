"""torch.profiler's Chrome traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests.chrome_writer import BASE_NS, TraceEvent, small_step, trace_text, write_trace
from tidyprof_tests.readers.kit import Event, Sample, Writer

SAMPLES = {
    "": Sample(
        "trace.json",
        trace_text(small_step()).encode(),
        tidyprof.read_torch_trace,
        recording="torch-mi250-minitoy/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    )
}

DEVICE_KINDS = ("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "gpu_user_annotation")
BASE = 10**9


def write(folder: Path, events: Sequence[Event]) -> Path:
    def event(one: Event) -> TraceEvent:
        arguments = {"correlation": one.number + 1, "External id": one.number + 1}
        if one.kind in DEVICE_KINDS:
            arguments |= {"device": one.number % 2, "stream": one.stream}
        return TraceEvent(one.kind, one.name, BASE + one.start, one.duration, arguments=arguments)

    known = TraceEvent("cpu_op", "first", BASE - 5_000, 100)
    return write_trace(folder / "t.json", [known, *map(event, events)])


HOST_KINDS = (
    *("cuda_runtime", "Runtime", "cuda_driver", "cpu_op", "Operator", "user_annotation"),
    *("python_function", "overhead", "cuda_sync", "xpu_runtime", "collective_comm"),
    *("mtia_ccp_events", "ac2g", "Trace"),
)
WRITER = Writer(write, BASE + BASE_NS, DEVICE_KINDS + HOST_KINDS)

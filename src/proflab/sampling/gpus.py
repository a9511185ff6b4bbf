"""Which GPU library is asked: AMD's amdsmi, else rocm-smi's library, else NVIDIA's NVML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proflab.sampling.readings import Reading, SourceUnavailable, known

UNITS: Mapping[str, str] = {
    "power": "W",
    "power_cap": "W",
    "temperature": "°C",
    "temperature_edge": "°C",
    "temperature_junction": "°C",
    "temperature_memory": "°C",
    "gpu_busy": "%",
    "memory_busy": "%",
    "clock_graphics": "MHz",
    "clock_memory": "MHz",
    "memory_used": "bytes",
    "memory_total": "bytes",
}
"""Quantity -> unit; both are keys and units of `QUANTITIES` of tidyprof."""

Call = Callable[[Any], Mapping[str, object]]
"""Asks one device and returns quantity -> value in the unit of UNITS, or what stands for "not available"."""


@dataclass
class GpuSource:
    """GPUs as one library sees them, numbered in its order.

    devices -- what the library's calls take; calls -- asked at every reading; once -- asked at the first (limits
    and sizes); errors -- what the library raises where a device can't tell.
    """

    name: str
    devices: Sequence[Any]
    calls: Mapping[str, Call]
    once: Mapping[str, Call]
    errors: tuple[type[BaseException], ...]
    shut_down: Callable[[], object]
    failed: Counter[str] = field(default_factory=Counter)
    _begun: bool = False

    def read(self) -> list[Reading]:
        """All values now; a quantity that a device can't tell has no row."""
        calls = dict(self.calls) if self._begun else {**self.once, **self.calls}
        self._begun = True
        return [
            Reading(number, quantity, value, UNITS[quantity])
            for number, device in enumerate(self.devices)
            for name, call in calls.items()
            for quantity, value in self._asked(name, call, device)
        ]

    def close(self) -> None:
        """Shut the library down."""
        try:
            self.shut_down()
        except self.errors:
            self.failed["shut down"] += 1

    def _asked(self, name: str, call: Call, device: Any) -> Iterable[tuple[str, float]]:
        try:
            answer = call(device)
        except self.errors:
            self.failed[name] += 1
            return
        for quantity, value in answer.items():
            number = known(value)
            if number is None:
                self.failed[quantity] += 1
            else:
                yield quantity, number


def openers() -> tuple[Callable[[], GpuSource], ...]:
    """The libraries in order of preference, each as a function that opens it or raises SourceUnavailable."""
    from proflab.sampling.amdsmi_source import open_amdsmi
    from proflab.sampling.nvml_source import open_nvml
    from proflab.sampling.rocm_smi_source import open_rocm_smi

    return open_amdsmi, open_rocm_smi, open_nvml


def open_gpus(ways: Iterable[Callable[[], GpuSource]] | None = None) -> tuple[GpuSource | None, str]:
    """The first library that sees a GPU, and "", or None and why there is none."""
    reasons = []
    for opener in openers() if ways is None else ways:
        try:
            return opener(), ""
        except SourceUnavailable as reason:
            reasons.append(str(reason))
    return None, "; ".join(reasons)

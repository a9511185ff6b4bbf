"""Small traces whose truth is known by how they were made, and what triage finds in them.

Times are in ms from the start of a step, unless a name ends in `_ns`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof.triage.printers import report
from tidyprof_tests.chrome_writer import TraceEvent, call, kernel, operator, write_trace

MS = 1_000_000
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
TO_DEVICE, TO_HOST = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)"
CUDA = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132, "warpSize": 32}],
}
WITHOUT_A_GPU = {"schemaVersion": 1, "deviceProperties": []}
MAX_WORDS, MAX_COLUMNS = 60, 80
"""Words before the table of parts, and columns of a report."""


class Step:
    """Collects the events of one marked step."""

    def __init__(self, events: list[TraceEvent], number: int, begin_ns: int, length: float) -> None:
        self.events, self.number, self.begin_ns = events, number, begin_ns
        self.part(f"ProfilerStep#{number}", 0, length)

    def at(self, at: float, length: float) -> tuple[int, int]:
        """Return the start and the length in ns."""
        return self.begin_ns + round(at * MS), round(length * MS)

    def part(
        self,
        name: str,
        at: float,
        length: float,
        thread: int = 1000,
        category: str = "user_annotation",
    ) -> None:
        self.events.append(TraceEvent(category, name, *self.at(at, length), tid=thread))

    def function(self, name: str, at: float, length: float) -> None:
        self.part(name, at, length, category="python_function")

    def operator(self, name: str, at: float, length: float) -> None:
        self.events.append(operator(name, *self.at(at, length), len(self.events)))

    def call(self, name: str, at: float, length: float) -> None:
        self.events.append(call(name, *self.at(at, length), len(self.events)))

    def launch(self, at: float, length: float, name: str = "gemm", late: float = 0.006) -> None:
        """A launch of 5 µs whose kernel starts this late after it."""
        known = len(self.events)
        self.call("cudaLaunchKernel", at, 0.005)
        stream = 4 if "nccl" in name else 0
        self.events.append(
            kernel(name, *self.at(at + late, length), known, device=0, stream=stream)
        )

    def copy(self, name: str, at: float, length: float, lasts: float = 0, late: float = 0.002):
        """A call of this length. Its copy starts 2 µs after it and ends 2 µs before its end, unless
        stated otherwise.
        """
        known = len(self.events)
        whole = {"device": 0, "stream": 0, "correlation": known, "bytes": 4096}
        self.call("cudaMemcpyAsync", at, length)
        times = self.at(at + late, lasts or length - 0.004)
        self.events.append(TraceEvent("gpu_memcpy", name, *times, 2, 0, whole))


Fill = Callable[[Step], None]


def trace(
    path: Path,
    length: float | Sequence[float],
    fill: Fill,
    header: dict[str, Any] = CUDA,
    **members: Any,
) -> Path:
    """Write a trace of four steps of this length, or of steps of these lengths. members belong to
    the file as a whole.
    """
    events: list[TraceEvent] = []
    begin_ns = MS
    for number, one in enumerate(length if isinstance(length, Sequence) else [length] * 4):
        fill(Step(events, number, begin_ns, one))
        begin_ns += round(one * MS)
    return write_trace(path, events, header=header | members)


def without_steps(path: Path) -> Path:
    """Remove the ranges that mark steps from a trace."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content["traceEvents"] = [
        one for one in content["traceEvents"] if not one["name"].startswith("ProfilerStep#")
    ]
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def diagnosed(path: Path, **options: Any) -> tidyprof.Diagnosis:
    """Return the diagnosis of a file with its call stacks, as the command has it."""
    return tidyprof.diagnose(tidyprof.read(path, python_functions=True), **options)


def triaged(folder: Path, *steps: Any, **more: Any) -> tidyprof.Diagnosis:
    """Return the diagnosis of the steps that `trace` writes."""
    return diagnosed(trace(folder / "trace.json", *steps, **more))


def ranks(
    folder: Path,
    length: float,
    fills: Sequence[Fill],
    name: str = "trace_rank{}.json",
    **more: Any,
) -> tidyprof.Diagnosis:
    """Return the diagnosis of a run in which each rank has steps that are filled differently."""
    for rank, fill in enumerate(fills):
        own = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": len(fills)}}
        path = folder / name.format(rank)
        path.parent.mkdir(exist_ok=True)
        trace(path, length, fill, **own, **more)
    return diagnosed(folder)


def facts(found: tidyprof.Diagnosis) -> dict[str, Any]:
    return {fact.name: fact.value for fact in found.facts}


def shares(found: tidyprof.Diagnosis) -> Counter[str]:
    """Return the shares of the table of parts by name, and 0 for others."""
    return Counter({part.name: part.share for part in found.parts})


def blamed(found: tidyprof.Diagnosis) -> set[str]:
    """Return the cause, and all others that limit the run."""
    return {found.cause, *found.alternatives}


def verdict(found: tidyprof.Diagnosis) -> tuple[str, bool]:
    return found.cause, found.confident


def check_laws(found: tidyprof.Diagnosis) -> None:
    """Fail if the diagnosis breaks what holds for each one, whatever the files contain."""
    parts = found.parts
    assert sum(part.ns for part in parts) == pytest.approx(found.step_ns)
    assert all(0 <= share <= 1 + 1e-9 for share in (found.share, *shares(found).values()))
    marked = [part.share for part in parts if part.is_cause]
    assert not marked or marked == [pytest.approx(found.share)]
    assert found.cause in ("inconclusive", "no-bottleneck") or marked or not parts
    lines = [line for line, _ in report(found, why=True)]
    table = next((i for i, line in enumerate(lines) if line.startswith("part ")), len(lines))
    if parts:
        assert len(" ".join(lines[:table]).split()) <= MAX_WORDS
    assert max(map(len, lines)) <= MAX_COLUMNS

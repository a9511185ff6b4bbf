"""Measures what operators and runtime calls cost the host, from a published trace of this workload.

    PROFLAB_RECORDINGS=... python scripts/dev/measure_host_costs.py

Reads torch-mi300-ddp-4ranks-fused (four ranks of the ResNet workload under torch.profiler, 3 steps
each) and writes src/gpumodel/play/host_costs.json:
  self_ns   -- per operator that the model has: mean of its duration without the modelled operators
  and the
               launching calls inside; what it calls beside (allocations, queries) is part of it.
  call_ns   -- per runtime call that launches work: mean duration; for copies that the host waits
  for,
               without the time of the copy itself.
  delay_ns  -- per runtime call: median from its end to the start on the device, where the device
  was idle. gap_ns    -- host time between two outermost operators: "module" below
  DistributedDataParallel.forward,
               "autograd" in the backward thread, "main" elsewhere.
All under torch.profiler: its own cost is inside (see gpumodel.play.costs).
"""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from cifar_train.config import TrainConfig
from gpumodel.recording.steps import operators_of_step

RECORDING = "torch-mi300-ddp-4ranks-fused/merged_all_events.json.gz"
TARGET = Path(__file__).parents[2] / "src" / "gpumodel" / "play" / "host_costs.json"
LONGEST_GAP = 500.0
"""Microseconds; longer gaps are pauses (a handover between threads), not the cost of one
operator.
"""


class Costs:
    """Collects durations in microseconds while the ranks' threads are walked through."""

    def __init__(self) -> None:
        self.own: dict[str, list[float]] = defaultdict(list)
        self.calls: dict[str, list[float]] = defaultdict(list)
        self.delays: dict[str, list[float]] = defaultdict(list)
        self.gaps: dict[str, list[float]] = defaultdict(list)

    def write(self, target: Path) -> None:
        """In nanoseconds, names in order."""
        tables = {
            "self_ns": {name: mean(values) for name, values in self.own.items()},
            "call_ns": {name: mean(values) for name, values in self.calls.items()},
            "delay_ns": {name: median(values) for name, values in self.delays.items()},
            "gap_ns": {name: mean(values) for name, values in self.gaps.items()},
        }
        rounded = {
            table: {key: round(1000 * costs[key]) for key in sorted(costs)}
            for table, costs in tables.items()
        }
        target.write_text(json.dumps({"source": RECORDING, **rounded}, indent=1) + "\n")


def main() -> None:
    """Measure and write."""
    known = {operator.name for operator in operators_of_step(TrainConfig())}
    with gzip.open(Path(os.environ["PROFLAB_RECORDINGS"]) / RECORDING) as source:
        events = [event for event in json.load(source)["traceEvents"] if event.get("ph") == "X"]
    costs = Costs()
    for rank in range(4):
        own = [event for event in events if event["args"].get("rank") == rank]
        work = {
            e["args"]["correlation"]: e for e in own if e.get("cat") in ("kernel", "gpu_memcpy")
        }
        threads: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in own:
            launching = (
                event.get("cat") == "cuda_runtime" and event["args"].get("correlation") in work
            )
            if launching or (
                event.get("cat") in ("cpu_op", "user_annotation") and event["name"] in known
            ):
                threads[event["tid"]].append(event)
        for thread in threads.values():
            walk(thread, work, costs)
        measure_delays([event for thread in threads.values() for event in thread], work, costs)
    costs.write(TARGET)


def walk(events: list[dict[str, Any]], work: dict[int, dict[str, Any]], costs: Costs) -> None:
    """Self times, calls and gaps of one thread."""
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    inner = [0.0] * len(events)
    children = [0] * len(events)
    stack: list[int] = []
    last_end = None
    for place, event in enumerate(events):
        while stack and event["ts"] >= end_of(events[stack[-1]]) - 1e-3:
            stack.pop()
        if stack:
            inner[stack[-1]] += event["dur"]
            children[stack[-1]] += 1
        elif last_end is not None and 0 <= event["ts"] - last_end < LONGEST_GAP:
            kind = (
                "autograd"
                if event["name"].startswith(("autograd::", "torch.distributed.ddp"))
                else "main"
            )
            costs.gaps[kind].append(event["ts"] - last_end)
        if not stack:
            last_end = end_of(event)
        stack.append(place)
    for event, covered, count in zip(events, inner, children, strict=True):
        rest = event["dur"] - covered
        if event["cat"] == "cuda_runtime":
            waited = waits_for(event, work)
            costs.calls[event["name"]].append(max(event["dur"] - waited, 0.0))
        elif event["name"] == "DistributedDataParallel.forward":
            costs.gaps["module"] += [rest / (count + 1)] * count
        else:
            costs.own[event["name"]].append(rest)


def end_of(event: dict[str, Any]) -> float:
    """End in microseconds."""
    return event["ts"] + event["dur"]


def waits_for(call: dict[str, Any], work: dict[int, dict[str, Any]]) -> float:
    """How much of a call lies before the end of the copy that it waits for; 0 for calls that do not
    wait.
    """
    if call["name"] != "hipMemcpyWithStream":
        return 0.0
    return max(min(end_of(work[call["args"]["correlation"]]), end_of(call)) - call["ts"], 0.0)


def measure_delays(
    events: list[dict[str, Any]], work: dict[int, dict[str, Any]], costs: Costs
) -> None:
    """From the end of a launching call to the start of its work, where the device had nothing to do
    before.
    """
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    busy_until = float("-inf")
    for event in sorted(work.values(), key=lambda event: event["ts"]):
        call = calls.get(event["args"]["correlation"])
        if call is not None and call["ts"] > busy_until:
            costs.delays[call["name"]].append(event["ts"] - end_of(call))
        busy_until = max(busy_until, end_of(event))


if __name__ == "__main__":
    main()

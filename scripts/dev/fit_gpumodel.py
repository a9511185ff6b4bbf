"""Fit gpumodel's kernel durations on public recordings and write
src/gpumodel/data/efficiencies.toml.

    PROFLAB_RECORDINGS=FOLDER python scripts/dev/fit_gpumodel.py [--check]

Used for the fit: mean durations by operator and shape in three torch.profiler traces of MI300X (see
SOURCES). Not used, so that the model can be held against them: AMD's rocprofv3 statistics,
throughput, step times and every figure marked "held out" in src/gpumodel/data/published.toml.
--check prints the fit and writes nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from cifar_train.config import TrainConfig
from gpumodel.devices import device
from gpumodel.kernels import launches_of
from gpumodel.kernels.durations import CostClass, drivers_ns, duration_in
from gpumodel.kernels.launch import KernelLaunch
from gpumodel.recording.operators import Operator, TensorInfo
from gpumodel.recording.steps import operators_of_step

TARGET = Path(__file__).parents[2] / "src" / "gpumodel" / "data" / "efficiencies.toml"
DEVICE = device("MI300X")

FOUR_RANKS = "amd/HPCTrainingExamples, MLExamples/TraceLens, 4-rank torch.profiler trace on MI300X"
COMPILED = "AMD-AGI/TraceLens test data, compiled transformer layer on MI300X"
IMAGENET = "AMD-AGI/TraceLens test data, bfloat16 ResNet on MI300X"
MI350X = "AMD-AGI/TraceLens test data, rocprofv3 recording of a transformer on MI350X: floors only"
SOURCES = {
    FOUR_RANKS: "torch-mi300-ddp-4ranks-fused/merged_all_events.json.gz",
    COMPILED: "torch-mi300x-compile-triton/trace.json.gz",
    IMAGENET: "torch-mi300x-resnet-ddp-rank0/resnet_act_checkpoint.json.gz",
}

TERMS = {
    "winograd_data": "serial",
    "winograd_weights": "serial",
    "convolution_naive": "compute",
    "convolution_gemm": "compute memory",
    "batch_norm_forward": "memory serial",
    "batch_norm_backward": "memory serial",
    "native_batch_norm_statistics": "memory serial",
    "native_batch_norm_backward": "memory serial",
    "matrix_product": "compute serial",
    "attention": "compute",
    "multi_tensor": "memory serial",
    "copy_device_to_host": "",
    **{
        f"igemm_{side}_{kind}": "compute"
        for side in ("forward", "data", "weights")
        for kind in ("pointwise", "spatial")
    },
}
"""What limits a class, beside its floor; memory where nothing is said."""

_TERM_NAMES = ("compute", "memory", "serial")

FLOOR_RANGES_NS = {
    "igemm": (5000.0, 8000.0),
    "attention": (8000.0, 8000.0),
    "matrix_product": (5000.0, 8000.0),
    "multi_tensor": (2600.0, 2600.0),
    "compiled": (2600.0, 2600.0),
    "max_pool": (2600.0, 2600.0),
    "loss": (2600.0, 2600.0),
    "convolution_naive": (5000.0, 5000.0),
    "transpose_cnhw": (5000.0, 5000.0),
    "reduce": (2600.0, 5000.0),
    "winograd": (5000.0, 20000.0),
    "batch_norm": (3000.0, 5000.0),
    "collective": (5000.0, 10000.0),
}
"""Floors allowed for classes whose few, large shapes cannot show one, by prefix.

Sources: shortest launches in AMD's statistics (igemm 8.2 us, batch norm 3.8 us, broadcast of 53
numbers 7.6 us) and of the MI350X recording (attention 10 us, products 8 us); element-wise launches
elsewhere (2.6 us, this fit).
"""

HIGHEST_MEMORY_EFFICIENCY = 0.95
"""What stays in a cache could look faster than memory; a larger tensor would not fit there."""

BY_ANALOGY = {
    "layer_norm": ("elementwise", 4500.0, MI350X),
    "elementwise_strided": (
        "elementwise",
        None,
        "taken from class elementwise: too few shapes measured",
    ),
}
"""Classes that no MI300X recording shows with shapes: their likeness, floor in ns, and the
reason.
"""


@dataclass(frozen=True)
class Measured:
    """One launch with the mean of its measured durations, and how many there were."""

    launch: KernelLaunch
    duration_ns: float
    calls: int
    source: str


def events_of(source: str) -> list[dict[str, Any]]:
    """All events of a recording."""
    path = Path(os.environ["PROFLAB_RECORDINGS"]) / SOURCES[source]
    content = json.loads(gzip.decompress(path.read_bytes()))
    return content["traceEvents"] if isinstance(content, dict) else content


def durations_by_operator(events: Iterable[dict[str, Any]]) -> dict[tuple, list[list[float]]]:
    """Durations in ns of the kernels of each operator in order, by name, shapes that are not empty,
    and types.
    """
    operators, kernels = {}, defaultdict(list)
    for event in events:
        arguments = event.get("args", {})
        key = (arguments.get("rank", 0), arguments.get("External id"))
        if event.get("cat") == "cpu_op":
            operators[key] = event
        elif event.get("cat") in ("kernel", "gpu_memcpy"):
            kernels[key].append(event)
    found = defaultdict(list)
    for key, launched in kernels.items():
        if key in operators:
            launched.sort(key=lambda event: event["ts"])
            found[_key_of_event(operators[key])].append([event["dur"] * 1000 for event in launched])
    return found


def _key_of_event(event: dict[str, Any]) -> tuple:
    shapes = event["args"].get("Input Dims", [])
    types = [_torch_type(name) for name in event["args"].get("Input type", [])]
    pairs = [
        (tuple(s), t)
        for s, t in zip(shapes, types, strict=True)
        if s and t and isinstance(s[0], int)
    ]
    return (event["name"], *pairs)


def _torch_type(name: str) -> str:
    return {
        "c10::Half": "float16",
        "c10::BFloat16": "bfloat16",
        "float": "float32",
        "long int": "int64",
        "double": "float64",
    }.get(name, "")


def _key_of_operator(operator: Operator) -> tuple:
    if "_foreach_" in operator.name:
        return (operator.name,)  # a trace does not write the shapes of a list
    return (
        operator.name,
        *((t.shape, t.dtype) for t in operator.inputs if t is not None and t.shape),
    )


def measured_workload() -> Iterator[Measured]:
    """The workload's own operators against the 4-rank trace."""
    durations = durations_by_operator(events_of(FOUR_RANKS))
    of_any_type = {_without_types(key): key for key in durations}
    seen = set()
    for operator in operators_of_step(TrainConfig()):
        key = _key_of_operator(operator)
        key = key if key in durations else of_any_type.get(_without_types(key), key)
        if key in durations and key not in seen and not operator.name.startswith("nccl"):
            seen.add(key)
            yield from _pair(operator, durations[key], FOUR_RANKS)


def _without_types(key: tuple) -> tuple:
    # The trainer of the recording computed its loss in float16.
    return (key[0], *(part[0] for part in key[1:]))


def _pair(operator: Operator, rows: list[list[float]], source: str) -> Iterator[Measured]:
    """Launches with their times; a trace may show a leading fill as an operator of its own."""
    launches = launches_of(operator, DEVICE, "winograd")
    count = min(len(launches), min(map(len, rows)))
    rows = [row for row in rows if len(row) == count]
    for launch, times in zip(launches[-count:], zip(*rows, strict=True), strict=True):
        yield Measured(launch, fmean(times), len(times), source)


def measured_others() -> Iterator[Measured]:
    """bfloat16 products, attention, compiled kernels and ATen's batch norm from the two other
    traces.
    """
    for source, pattern in (
        (COMPILED, "aten::mm$|aten::_flash_attention_forward|triton_"),
        (IMAGENET, "aten::native_batch_norm"),
    ):
        for key, rows in durations_by_operator(events_of(source)).items():
            if re.match(pattern, key[0]):
                yield from _pair(_operator_of_key(key), rows, source)


def _operator_of_key(key: tuple) -> Operator:
    name, inputs = key[0], [TensorInfo(shape, dtype) for shape, dtype in key[1:]]
    outputs = inputs[:1]
    if name == "aten::mm":
        inputs = inputs[:2]
        outputs = [TensorInfo((inputs[0].shape[0], inputs[1].shape[1]), inputs[0].dtype)]
    elif name.startswith("triton_"):
        *inputs, last = inputs
        outputs = [last]
    elif "attention" in name:
        # aten::_flash_attention_forward takes [batch, sequence, heads, width].
        inputs = [
            TensorInfo((t.shape[0], t.shape[2], t.shape[1], t.shape[3]), t.dtype)
            for t in inputs[:3]
        ]
    return Operator(0, None, name, tuple(inputs), tuple(outputs), phase="forward")


def measured_collectives() -> Iterator[Measured]:
    """Bare transfers: from the start of the last rank to the end of the first, so that no waiting
    counts.
    """
    calls = defaultdict(list)
    order: dict[tuple, int] = defaultdict(int)
    events = events_of(FOUR_RANKS)
    operators = {
        (e["args"]["rank"], e["args"]["External id"]): e
        for e in events
        if e.get("name") == "record_param_comms"
    }
    for event in sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"]):
        key = (event["args"].get("rank"), event["args"].get("External id"))
        if event["name"].startswith("nccl") and key in operators:
            size = operators[key]["args"]["Input Dims"][0][0][0]
            order[key[0], size] += 1
            calls[size, order[key[0], size]].append((event["ts"], event["ts"] + event["dur"]))
    transfers = defaultdict(list)
    for (size, _), spans in calls.items():
        # A broadcast does not wait for its receivers, so that its ends say nothing.
        if len(spans) == 4 and size not in (53, 53120):
            transfers[size].append(min(end for _, end in spans) - max(start for start, _ in spans))
    for size, times in transfers.items():
        tensor = TensorInfo((size,), "float32")
        launch = launches_of(
            Operator(0, None, "nccl:all_reduce", (tensor,), (tensor,)), DEVICE, "winograd"
        )[0]
        yield Measured(launch, fmean(times) * 1000, len(times), FOUR_RANKS)


def fit(name: str, points: list[Measured]) -> dict[str, Any]:
    """Floor and coefficients with the least squared error of the logarithm, each point weighted by
    its calls.
    """
    times = np.array([point.duration_ns for point in points])
    weights = np.array([point.calls for point in points], dtype=float)
    drivers = np.array([drivers_ns(point.launch, DEVICE) for point in points]).T
    terms = [_TERM_NAMES.index(term) for term in TERMS.get(name, "memory").split()]
    allowed = next(
        (limits for prefix, limits in FLOOR_RANGES_NS.items() if prefix in name), (0.0, times.min())
    )
    floors = np.unique(np.linspace(*allowed, 24))
    if not terms:
        return _entry(times.mean(), {}, points)
    best = (np.inf, floors[0], dict.fromkeys(terms, 0.0))
    for floor in floors:
        for factors in _candidates(times - floor, drivers[terms], terms):
            modelled = floor + np.max(factors[:, None] * drivers[terms], axis=0)
            error = float(np.sum(weights * np.log(modelled / times) ** 2))
            if error < best[0]:
                best = (error, floor, dict(zip(terms, factors, strict=True)))
    return _entry(best[1], best[2], points)


def _candidates(rest: np.ndarray, drivers: np.ndarray, terms: list[int]) -> Iterator[np.ndarray]:
    """Factors worth trying: between those that single points would ask for."""
    grids = []
    for term, row in zip(terms, drivers, strict=True):
        ratios = np.maximum(rest, 50.0)[row > 0] / row[row > 0]
        lowest = 1 / HIGHEST_MEMORY_EFFICIENCY if term == _TERM_NAMES.index("memory") else 0.0
        low, high = max(lowest, ratios.min() / 3), max(lowest * 1.01, ratios.max() * 1.5)
        grids.append(np.geomspace(low, high, 80 if len(drivers) == 1 else 40))
    for place in np.ndindex(*(len(grid) for grid in grids)):
        yield np.array([grid[index] for grid, index in zip(grids, place, strict=True)])


def _entry(floor: float, factors: dict[int, float], points: list[Measured]) -> dict[str, Any]:
    entry: dict[str, Any] = {"floor_ns": round(float(floor), 1)}
    for term, factor in factors.items():
        value = factor if _TERM_NAMES[term] == "serial" else 1 / factor
        entry[("compute_efficiency", "memory_efficiency", "step_ns")[term]] = float(f"{value:.4g}")
    modelled = [duration_in(point.launch, DEVICE, CostClass(**entry))[0] for point in points]
    errors = [
        abs(time / point.duration_ns - 1) for time, point in zip(modelled, points, strict=True)
    ]
    return entry | {
        "measured": len(points),
        "error": round(median(errors), 3),
        "source": "; ".join(dict.fromkeys(point.source for point in points)),
    }


def write(table: dict[str, dict[str, Any]]) -> None:
    """The data file, by class."""
    lines = [
        (
            "# Floors and efficiencies of gpumodel's kernel classes. Made by"
            " scripts/dev/fit_gpumodel.py; do not edit."
        ),
        (
            "# Durations: gpumodel/kernels/durations.py. measured: mean durations by shape that the"
            " fit used."
        ),
    ]
    for name in sorted(table):
        lines += [
            "",
            f"[{name}]",
            *(f"{key} = {json.dumps(value)}" for key, value in table[name].items()),
        ]
    TARGET.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Collect, fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="print the fit and write nothing")
    options = parser.parse_args()
    classes = defaultdict(list)
    for point in (*measured_workload(), *measured_others(), *measured_collectives()):
        classes[point.launch.cost_class].append(point)
    table = {name: fit(name, points) for name, points in classes.items() if name not in BY_ANALOGY}
    for name, (likeness, floor, reason) in BY_ANALOGY.items():
        table[name] = table[likeness] | {"measured": 0, "error": 0.0, "source": reason}
        table[name]["floor_ns"] = floor or table[likeness]["floor_ns"]
    for name, entry in sorted(table.items()):
        print(name, {key: value for key, value in entry.items() if key != "source"})
    if not options.check:
        write(table)


if __name__ == "__main__":
    main()

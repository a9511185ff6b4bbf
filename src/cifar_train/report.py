"""Results of a run, as records for a file and as a table for the terminal."""

from __future__ import annotations

import json
import platform
import re
import resource
import socket
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cifar_train.config import precision_label
from cifar_train.hooks import StepOutcome
from cifar_train.loop import Trainer
from cifar_train.models import training_flops_per_image
from cifar_train.peaks import peak_flops
from cifar_train.precision import arithmetic
from tidyprof.atomic_write import whole_file

PACKAGES = ("torch", "torchvision", "transformers", "numpy")


@dataclass(frozen=True)
class StepRecord:
    """One step of one rank.

    `part` is warmup or steady. `profiled` is True if a profiler was active during the step.
    """

    step: int
    epoch: int
    part: str
    profiled: bool
    duration_ns: int
    images: int
    loss: float


@dataclass(frozen=True)
class Summary:
    """One rank's result. Rates count only this rank's images.

    - arithmetic: data type of the matrix products and convolutions
    - steady: True if the median and the quartiles cover only steady steps without a profiler, and
      False if they cover all steps because no such step exists
    - mfu: fraction of the device's dense peak

    Times are in nanoseconds, and memory is in bytes.
    """

    rank: int
    world_size: int
    device: str
    arithmetic: str
    steps: int
    steady_steps: int
    steady: bool
    median_step_ns: int
    lower_quartile_ns: int
    upper_quartile_ns: int
    first_step_ns: int
    compile_ns: int | None
    images_per_second: float
    peak_memory_bytes: int
    flops_per_second: float | None
    mfu: float | None
    first_loss: float
    last_loss: float


def device_name(device: torch.device) -> str:
    """Return the marketing name of the GPU or CPU."""
    if device.type != "cpu":
        return torch.cuda.get_device_name(device)
    cpus = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)", cpus.read_text() if cpus.exists() else "", re.M)
    return found[1] if found else platform.processor() or platform.machine()


def versions() -> dict[str, str | None]:
    """Return the versions of Python, the imported libraries and torch's GPU stack."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    found |= {name: metadata.version(name) for name in PACKAGES}
    return found | {"hip": torch.version.hip, "cuda": torch.version.cuda}


def run_record(trainer: Trainer) -> dict[str, Any]:
    """Return the first record of a metrics file, which describes the run, its machine and its
    settings.
    """
    return {
        "record": "run",
        "config": trainer.config.as_dict(),
        "launch": asdict(trainer.launch),
        "device": device_name(trainer.device),
        "host": socket.gethostname(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "data": trainer.loaders.description,
        "planned_steps": trainer.planned_steps,
        "versions": versions(),
        "notes": trainer.notes,
    }


def step_records(
    outcomes: Sequence[StepOutcome], durations_ns: Sequence[int], trainer: Trainer
) -> list[StepRecord]:
    """Return one record per finished step.

    Call this function only after the run because it copies the losses back from the device.
    """
    warmup = trainer.config.warmup_for(trainer.planned_steps)
    schedule = trainer.config.schedule_for()
    # The profiler's own warmup also slows steps down, so these steps count as profiled.
    watched = trainer.launch.rank == 0 or trainer.config.profile_all_ranks
    return [
        StepRecord(
            step=outcome.step,
            epoch=outcome.epoch,
            part="warmup" if outcome.step < warmup else "steady",
            profiled=bool(schedule and watched and schedule.watches(outcome.step)),
            duration_ns=duration,
            images=outcome.images,
            loss=outcome.loss.item(),
        )
        for outcome, duration in zip(outcomes, durations_ns, strict=True)
    ]


def summarize(records: Sequence[StepRecord], trainer: Trainer, compile_ns: int | None) -> Summary:
    """Return the summary of a run with at least one finished step."""
    peak_bytes = peak_memory_bytes(trainer.device)
    steady = [record for record in records if record.part == "steady" and not record.profiled]
    counted = steady or list(records)
    durations = [record.duration_ns for record in counted]
    lower, median, upper = np.quantile(durations, (0.25, 0.5, 0.75)).round().astype(int).tolist()
    rate = sum(record.images for record in counted) / sum(durations) * 1e9
    name = device_name(trainer.device)
    peak = peak_flops(name, trainer.config.precision)
    # Counting FLOPs takes a second, so skip it if the device's peak is unknown.
    speed = rate * training_flops_per_image(trainer.config.model) if peak else None
    return Summary(
        rank=trainer.launch.rank,
        world_size=trainer.launch.world_size,
        device=name,
        arithmetic=str(arithmetic(trainer.config.precision, trainer.device)).removeprefix("torch."),
        steps=len(records),
        steady_steps=len(steady),
        steady=bool(steady),
        median_step_ns=median,
        lower_quartile_ns=lower,
        upper_quartile_ns=upper,
        first_step_ns=records[0].duration_ns,
        compile_ns=compile_ns,
        images_per_second=rate,
        peak_memory_bytes=peak_bytes,
        flops_per_second=speed,
        mfu=speed / peak if speed and peak else None,
        first_loss=records[0].loss,
        last_loss=records[-1].loss,
    )


def write_metrics(
    folder: Path,
    trainer: Trainer,
    records: Sequence[StepRecord],
    summary: Summary,
    stop_reason: str | None,
) -> Path:
    """Write the run, its steps and the summary to metrics_rankR_of_N.jsonl.

    Each line contains one JSON object.
    """
    target = folder / f"metrics_{trainer.launch.tag}.jsonl"
    last = {"record": "summary", **asdict(summary), "stopped_by": stop_reason}
    steps = [{"record": "step", **asdict(record)} for record in records]
    lines = [run_record(trainer), *steps, last]
    with whole_file(target) as partial:
        partial.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return target


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory use so far in bytes.

    On a GPU, the device's allocator reports the value. On a CPU, the value is the peak resident set
    size of this process.
    """
    if device.type == "cpu":  # Linux reports KiB
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return torch.cuda.max_memory_allocated(device)


def render(
    summaries: Sequence[Summary], trainer: Trainer, files: Sequence[Path], stop_reason: str | None
) -> str:
    """Return the result as text with at most 80 columns. The units are ms, images/s and MB."""
    first = summaries[0]
    config = trainer.config
    precision = precision_label(config.precision, first.arithmetic)
    low, middle, high = (
        nanoseconds / 1e6
        for nanoseconds in (first.lower_quartile_ns, first.median_step_ns, first.upper_quartile_ns)
    )
    which = (
        "the steady steps"
        if first.steady
        else "all steps, because there is no steady step without the profiler"
    )
    warmup = min(config.warmup_for(trainer.planned_steps), first.steps)
    memory = max(summary.peak_memory_bytes for summary in summaries)
    rows = [
        ("stopped early", stop_reason),
        ("steps", f"{first.steps} ({warmup} warmup, {first.steady_steps} steady and unprofiled)"),
        (
            "compilation",
            first.compile_ns and f"{first.compile_ns / 1e9:.1f} s, before the first step",
        ),
        ("first step", f"{first.first_step_ns / 1e6:.1f} ms"),
        ("step", f"{middle:.1f} ms median (quartiles {low:.1f} to {high:.1f})"),
        ("", f"over {which}"),
        ("images/s", _rates(summaries)),
        ("peak memory", f"at most {memory / 1e6:.0f} MB per rank"),
        ("MFU", first.mfu and f"{first.mfu:.2%} of the dense peak"),
        ("loss", f"{first.first_loss:.3f} to {first.last_loss:.3f}"),
        ("results", files[0].parent),
        *(("", path.name) for path in files),
    ]
    title = f"{config.model}, {precision}, batch {config.batch_size}, {first.device}"
    return "\n".join([title, *(f"{name:15}{value}" for name, value in rows if value)])


def _rates(summaries: Sequence[Summary]) -> str:
    rates = [summary.images_per_second for summary in summaries]
    if len(rates) == 1:
        return f"{rates[0]:.1f}"
    return (
        f"{sum(rates):.1f} in total; {statistics.median(rates):.1f} per rank ({min(rates):.1f} to"
        f" {max(rates):.1f})"
    )

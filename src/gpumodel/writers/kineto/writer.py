"""Chrome traces as torch.profiler writes them on ROCm (libkineto/src/output_json.cpp of pytorch/kineto)."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.marker import config_of, ranks_of
from gpumodel.writers.common.placing import put
from gpumodel.writers.kineto.events import event_texts
from gpumodel.writers.kineto.header import header_text
from gpumodel.writers.kineto.window import Recording, Window

_STEP = re.compile(r"ProfilerStep#(\d+)")


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    compress: bool = True,
) -> list[Path]:
    """One trace per rank and profiler cycle, named like those of the trainer: `trace_rank0_of_4.json.gz`.

    rank -- write only this rank. compress -- gzip, as the trainer does.

    As with Kineto over roctracer (torch up to early 2026), `device` is ROCm's agent number, and the runtime's copies
    and fills keep names of their own. Shapes are written as the trainer's configuration says, or if nothing else does.

    If the workload profiles itself (`config.torch_profile`), the traces hold the steps of its schedule, of rank 0
    alone unless `profile_all_ranks`; else one trace holds the whole run. A recorded window has, as with the
    real profiler, the device work that was launched before and runs in it; that work has no grid and no operator.

    What a Run does not have is left out: strides and values of arguments, Python functions, allocations.
    Raises UserError for a rank that there is not.
    """
    config = config_of(run)
    record_shapes = config is not None and (config.record_shapes or not config.torch_profile)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in ranks_of(run, rank):
        for suffix, window in _windows(run, one):
            path = folder / f"trace_rank{one.rank}_of_{len(run.ranks)}{suffix}.json{'.gz' if compress else ''}"
            _write_trace(Recording(run, one, window, record_shapes), path)
            written.append(path)
    return written


def _write_trace(recording: Recording, path: Path) -> None:
    """One trace, compressed if its name says so."""
    compress = path.suffix == ".gz"
    text = f"\n{{\n{header_text(recording)}{event_texts(recording)}\n  ],\n"
    text += f'  "traceName": {json.dumps(str(path.with_suffix("") if compress else path))}\n}}\n'
    data = text.encode("utf-8", "surrogatepass")
    put(path, gzip.compress(data, compresslevel=3, mtime=0) if compress else data)


def _windows(run: Run, rank: RankRun) -> Iterator[tuple[str, Window | None]]:
    """The ending of each file's name and the time in it; None is the whole run."""
    config = config_of(run)
    schedule = config.schedule_for() if config is not None else None
    if schedule is None:
        yield "", None
        return
    if rank.rank != 0 and not config.profile_all_ranks:
        return
    steps = _step_times(rank)
    length = schedule.wait + schedule.warmup + schedule.active
    for cycle in range(schedule.repeat):
        first = cycle * length + schedule.wait + schedule.warmup
        recorded = [steps[step] for step in range(first, first + schedule.active) if step in steps]
        if recorded:
            suffix = f"_cycle{cycle + 1}" if schedule.repeat > 1 else ""
            yield suffix, Window(min(start for start, _ in recorded), max(end for _, end in recorded))


def _step_times(rank: RankRun) -> dict[int, tuple[int, int]]:
    """Start and end of each training step in ns, by its number."""
    found = {}
    table = rank.annotations[["name", "start_ns", "duration_ns"]]
    for name, start, duration in table.itertuples(index=False):
        if match := _STEP.fullmatch(name):
            found[int(match[1])] = (start, start + duration)
    return found

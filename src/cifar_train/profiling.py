"""torch.profiler as a hook, and ROCTX ranges: the loop knows neither.

One profiler session per process and one exporter, since a second session silently
records nothing on some ROCm versions and a second export raises.
"""

from __future__ import annotations

import gzip
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch import profiler

from cifar_train.clock import synchronize
from cifar_train.config import TrainConfig
from cifar_train.hooks import Hook, PhaseRanges, StepOutcome, sigterm_waits
from cifar_train.schedule import ProfileSchedule
from tidyprof.errors import UserError
from tidyprof.whole_files import whole_file

MEGABYTE = 10**6

TRACE_BYTES_PER_STEP = {
    "plain": 2.0,
    "record_shapes": 3.3,
    "profile_memory": 4.1,
    "with_stack": 4.1,
}
"""Megabytes of uncompressed trace for one step, measured with ResNet-50, batch 32, on a CPU."""

TRACE_LIMIT_MEGABYTES = 1000
"""Uncompressed size beyond which viewers fail to open a trace; longer recordings are refused."""


def expected_trace_megabytes(config: TrainConfig, schedule: ProfileSchedule) -> float:
    """Rough size of one cycle's uncompressed trace; options add up."""
    plain = TRACE_BYTES_PER_STEP["plain"]
    extra = sum(
        size - plain for name, size in TRACE_BYTES_PER_STEP.items() if getattr(config, name, False)
    )
    return schedule.active * (plain + extra)


def check_trace_size(config: TrainConfig, schedule: ProfileSchedule, folder: Path) -> None:
    """Refuse a recording that no viewer would open or that the disk cannot take. Raises
    UserError.
    """
    expected = expected_trace_megabytes(config, schedule)
    if expected > TRACE_LIMIT_MEGABYTES:
        raise UserError(
            f"{schedule.active} recorded steps would give a trace of about {expected:.0f} MB, more"
            f" than viewers open ({TRACE_LIMIT_MEGABYTES} MB); lower --profile-active, 3 steps tell"
            " as much"
        )
    free = shutil.disk_usage(folder).free / MEGABYTE
    if free < 2 * expected:
        raise UserError(
            f"{folder} has {free:.0f} MB free, but the trace needs about {2 * expected:.0f} MB"
            " while it is written; free some space or give another --run-dir"
        )


UNTRACED_KEY = "watch_untraced"
"""Under it a trace states what steps take without the profiler, as snippets/14_instrument_me.py
writes it too.
"""


FEWEST_TIMED = 3


class UntracedSteps(Hook):
    """Times the later half of the first `wait` steps as one, since a profiler lengthens those that
    it records.

    found -- steps, step_ns and parts_ns (`data`), means in ns; None before, and where that is fewer
    than FEWEST_TIMED: one or two may be odd ones. The device is waited for at both ends alone.
    """

    def __init__(self, wait: int, device: torch.device) -> None:
        self._first, self._last, self._device = wait // 2, wait, device
        if self._last - self._first < FEWEST_TIMED:
            self._first = self._last
        self._begin_ns = self._data_begin_ns = self._data_ns = 0
        self.found: dict[str, Any] | None = None

    def step_begin(self, step: int) -> None:
        """The wait for a batch begins."""
        if step == self._first < self._last:
            synchronize(self._device)
            self._begin_ns = time.perf_counter_ns()
        self._data_begin_ns = time.perf_counter_ns()

    def after_data(self, step: int) -> None:
        """The wait for a batch ends."""
        if self._first <= step < self._last:
            self._data_ns += time.perf_counter_ns() - self._data_begin_ns

    def step_end(self, outcome: StepOutcome) -> None:
        """The last of these steps ends."""
        if self._first < self._last == outcome.step + 1:
            synchronize(self._device)
            count = self._last - self._first
            step_ns = (time.perf_counter_ns() - self._begin_ns) / count
            self.found = {
                "steps": count,
                "step_ns": step_ns,
                "parts_ns": {"data": self._data_ns / count},
            }


class TorchProfile(Hook):
    """Records the scheduled steps and writes a trace and a table per cycle.

    Create it before the first use of the device: a tracer that registers late may see
    no GPU work on ROCm.
    """

    def __init__(
        self, config: TrainConfig, schedule: ProfileSchedule, device_type: str, tag: str
    ) -> None:
        self._tag = tag
        self._device_type = device_type
        self._schedule = schedule
        self.folder: Path | None = None
        self.files: list[Path] = []
        self._untraced = UntracedSteps(schedule.wait, torch.device(device_type))
        self._profiler = _new_profiler(config, schedule, device_type, self._export)

    def __enter__(self) -> Self:
        self._profiler.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        """Stop; a run that was cut short inside a recording still writes what there is."""
        with sigterm_waits():
            self._profiler.__exit__(*details)

    def step_begin(self, step: int) -> None:
        """The step begins with its data."""
        self._untraced.step_begin(step)

    def after_data(self, step: int) -> None:
        """The data have come."""
        self._untraced.after_data(step)

    def step_end(self, outcome: StepOutcome) -> None:
        """Tell the profiler that a step is over; it may now write the trace, once: a half would be
        lost for good.
        """
        self._untraced.step_end(outcome)
        with sigterm_waits():
            if self._untraced.found and self._profiler.current_action.name.startswith("RECORD"):
                self._profiler.add_metadata_json(UNTRACED_KEY, json.dumps(self._untraced.found))
            self._profiler.step()

    def _export(self, recorded: profiler.profile) -> None:
        cycle = len(self.files) // 2 + 1
        suffix = f"{self._tag}_cycle{cycle}" if self._schedule.repeat > 1 else self._tag
        trace = self.folder / f"trace_{suffix}.json.gz"
        table = self.folder / f"key_averages_{suffix}.txt"
        _write_trace(recorded, trace)
        by = (
            "self_cpu_time_total"
            if self._device_type == "cpu"
            else f"self_{self._device_type}_time_total"
        )
        rows = recorded.key_averages().table(sort_by=by, row_limit=100, max_name_column_width=80)
        with whole_file(table) as partial:
            partial.write_text(rows + "\n")
        self.files += [trace, table]


def _new_profiler(
    config: TrainConfig, schedule: ProfileSchedule, device_type: str, ready: Callable[[Any], None]
) -> profiler.profile:
    activities = [profiler.ProfilerActivity.CPU]
    if device_type != "cpu":
        activities.append(getattr(profiler.ProfilerActivity, device_type.upper()))
    return profiler.profile(
        activities=activities,
        schedule=profiler.schedule(
            wait=schedule.wait,
            warmup=schedule.warmup,
            active=schedule.active,
            repeat=schedule.repeat,
        ),
        on_trace_ready=ready,
        record_shapes=config.record_shapes,
        with_stack=config.with_stack,
        profile_memory=config.profile_memory,
        with_flops=config.with_flops,
    )


def _write_trace(recorded: profiler.profile, target: Path) -> None:
    """Export beside the target and compress; torch's own .gz path needs room in /tmp as well."""
    with whole_file(target) as packed:
        plain = packed.with_suffix("")
        recorded.export_chrome_trace(str(plain))
        if not _is_complete(plain):
            raise UserError(
                f"{target}: torch wrote an incomplete trace, or none; free some space for it"
            )
        # Level 3: a third of the time of the default for files a tenth larger.
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=3) as file:
            shutil.copyfileobj(source, file, length=2**20)


def _is_complete(trace: Path) -> bool:
    """torch does not report that writing failed, so look whether the file has its end."""
    if not trace.exists():
        return False
    with trace.open("rb") as source:
        source.seek(max(0, trace.stat().st_size - 16))
        return source.read().rstrip().endswith(b"}")


def record_function_ranges() -> Hook:
    """The phases of a step as ranges in torch.profiler's trace."""
    stack: list[torch.profiler.record_function] = []

    def begin(name: str) -> None:
        stack.append(torch.profiler.record_function(name))
        stack[-1].__enter__()

    def end() -> None:
        stack.pop().__exit__(None, None, None)

    return PhaseRanges(begin, end)


def roctx_ranges() -> Hook:
    """The phases of a step as ROCTX ranges for rocprofv3, rocprof-sys and rpd.

    torch.cuda.nvtx writes ROCTX ranges in a ROCm build. Raises UserError in a build
    that has neither.
    """
    try:
        torch.cuda.nvtx.range_push("probe")
        torch.cuda.nvtx.range_pop()
    except RuntimeError as error:
        raise UserError(
            "--roctx: this build of torch has no ROCTX; install torch for ROCm or leave it out"
        ) from error
    return PhaseRanges(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)

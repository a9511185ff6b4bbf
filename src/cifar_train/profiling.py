"""Hooks for torch.profiler and ROCTX ranges.

Each process has one profiler session and one exporter. On some ROCm versions, a second session
silently records nothing, and a second export raises an error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from torch import profiler

from cifar_train.clock import synchronize
from cifar_train.config import TrainConfig
from cifar_train.hooks import Hook, PhaseRanges, StepOutcome, sigterm_waits
from cifar_train.schedule import ProfileSchedule
from tidyprof.atomic_write import whole_file
from tidyprof.errors import UserError

UNTRACED_KEY = "watch_untraced"
"""Trace key for the unprofiled step times. Snippet 14_instrument_me.py also writes this key."""

MIN_TIMED = 3
"""Minimum number of steps that are timed without the profiler. One or two steps might not be
typical.
"""


class UntracedSteps(Hook):
    """Hook that times the second half of the first `wait` steps as a whole, without the profiler.

    The profiler makes the recorded steps longer, so the trace also stores these unprofiled
    times. The host waits for the device only at the start and the end of the measurement.

    The attribute `timing` contains the number of steps (steps), the mean step time in ns
    (step_ns), and the mean time in ns of `data` (parts_ns). `timing` is None until the last
    timed step ends. `timing` stays None if there are fewer than MIN_TIMED steps.
    """

    def __init__(self, wait: int, device: torch.device) -> None:
        self._steps = range(wait // 2, wait if wait - wait // 2 >= MIN_TIMED else 0)
        self._device = device
        self._begin_ns = self._data_begin_ns = self._data_ns = 0
        self.timing: dict[str, Any] | None = None

    def step_begin(self, step: int) -> None:
        """Start timing the data wait."""
        if self._steps and step == self._steps[0]:
            synchronize(self._device)
            self._begin_ns = time.perf_counter_ns()
        self._data_begin_ns = time.perf_counter_ns()

    def after_data(self, step: int) -> None:
        """Stop timing the data wait."""
        if step in self._steps:
            self._data_ns += time.perf_counter_ns() - self._data_begin_ns

    def step_end(self, outcome: StepOutcome) -> None:
        """End the measurement after the last timed step."""
        if self._steps and outcome.step == self._steps[-1]:
            synchronize(self._device)
            count = len(self._steps)
            step_ns = (time.perf_counter_ns() - self._begin_ns) / count
            data = {"data": self._data_ns / count}
            self.timing = {"steps": count, "step_ns": step_ns, "parts_ns": data}


class TorchProfile(Hook):
    """Hook that records the scheduled steps and writes a trace and a table.

    Create this hook before the device is first used. On ROCm, a tracer that registers too late
    may miss all GPU work. Call the hook `untraced` within this hook. The result of `untraced` is
    added to the trace.
    """

    def __init__(
        self, config: TrainConfig, schedule: ProfileSchedule, device_type: str, tag: str
    ) -> None:
        self._tag = tag
        self._device_type = device_type
        self.folder: Path | None = None
        self.files: list[Path] = []
        self.untraced = UntracedSteps(schedule.wait, torch.device(device_type))
        self._profiler = _new_profiler(config, schedule, device_type, self._export)

    def __enter__(self) -> Self:
        self._profiler.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        """Stop the profiler. If the run ended during a trace, write the trace so far."""
        with sigterm_waits():
            self._profiler.__exit__(*details)

    def step_end(self, outcome: StepOutcome) -> None:
        """Notify the profiler that a step is over.

        The profiler may then write the trace. SIGTERM must wait because the profiler can write a
        trace only once.
        """
        with sigterm_waits():
            if self.untraced.timing and self._profiler.current_action.name.startswith("RECORD"):
                self._profiler.add_metadata_json(UNTRACED_KEY, json.dumps(self.untraced.timing))
            self._profiler.step()

    def _export(self, recorded: profiler.profile) -> None:
        rows = recorded.key_averages().table(
            sort_by=f"self_{self._device_type}_time_total", row_limit=100, max_name_column_width=80
        )
        trace = self.folder / f"trace_{self._tag}.json.gz"
        table = self.folder / f"key_averages_{self._tag}.txt"
        with whole_file(trace) as partial:
            recorded.export_chrome_trace(str(partial))
        with whole_file(table) as partial:
            partial.write_text(rows + "\n")
        self.files += [trace, table]


def _new_profiler(
    config: TrainConfig, schedule: ProfileSchedule, device_type: str, ready: Callable[[Any], None]
) -> profiler.profile:
    activities = [profiler.ProfilerActivity.CPU]
    if device_type != "cpu":
        activities.append(profiler.ProfilerActivity.CUDA)
    return profiler.profile(
        activities=activities,
        schedule=profiler.schedule(**asdict(schedule), repeat=1),
        on_trace_ready=ready,
        record_shapes=config.record_shapes,
    )


def record_function_ranges() -> Hook:
    """Return a hook that marks the phases of a step with ranges in torch.profiler's trace."""
    stack: list[torch.profiler.record_function] = []

    def begin(name: str) -> None:
        stack.append(torch.profiler.record_function(name))
        stack[-1].__enter__()

    def end() -> None:
        stack.pop().__exit__(None, None, None)

    return PhaseRanges(begin, end)


def roctx_ranges() -> Hook:
    """Return a hook that marks the phases of a step with ROCTX ranges.

    rocprofv3, rocprof-sys and rpd record these ranges. In a ROCm build, torch.cuda.nvtx writes
    ROCTX ranges. Raises UserError if the build supports neither ROCTX nor NVTX.
    """
    try:
        torch.cuda.nvtx.range_push("probe")
        torch.cuda.nvtx.range_pop()
    except RuntimeError as error:
        raise UserError(
            "--roctx: this torch build doesn't support ROCTX. Install torch for ROCm, or omit"
            " --roctx."
        ) from error
    return PhaseRanges(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)

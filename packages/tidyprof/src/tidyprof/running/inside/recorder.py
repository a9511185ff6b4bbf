"""Time and trace some steps in several stages, and save the results.

    warm-up          steps that don't count, because libraries load and kernels are compiled
    before           steps that are only timed
    trace            one profiled step that is discarded, then the steps of the trace
    settling         one step that doesn't count
    after            steps that are timed after the trace
    done             the hooks have finished

During the stages `before` and `after`, the hooks wait for the GPU only at the start and the end, so
the host can run ahead.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any

from tidyprof_inside.files import Files, machine, rank_of
from tidyprof_inside.job import Job, resident_bytes
from tidyprof_inside.parts import REST, Parts
from tidyprof_inside.steps import Marker
from tidyprof_inside.whose import is_of_program

WARM_UP, BEFORE, TRACE, SETTLING, AFTER, DONE = (
    "warm-up",
    "before",
    "trace",
    "settling",
    "after",
    "done",
)
TIMED = 20
"""The maximum number of steps in BEFORE and in AFTER."""

LONGEST_S, FEWEST = 30.0, 3
"""Limits for programs with long steps. The stages WARM_UP, BEFORE and AFTER end after LONGEST_S
seconds if they contain at least FEWEST steps.
"""

LONG_STEP_RATIO = 3.0
"""The minimum ratio of a long step to the median step. Long steps do extra work, such as a
checkpoint, and are counted separately.
"""

STACKS_BYTES = 4_000_000_000
"""The maximum memory for call stacks in bytes. At this limit, the hooks end the trace."""

LOG_LEVEL = "KINETO_LOG_LEVEL"
"""The environment variable that controls the output of torch.profiler on standard error. Only its
value at the first use in a process matters.
"""


class AtThreadEnd:
    """A value for threading.local that calls a function when the thread ends."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def __del__(self) -> None:
        if self.call is not None:
            self.call()


class Recorder:
    """The recorder of one process, which times and traces steps. The hooks send all events to the
    recorder.
    """

    def __init__(
        self,
        torch: ModuleType,
        asked: dict[str, Any],
        parts: Parts,
        job: Job,
    ) -> None:
        """Start the warm-up. `asked` contains the options."""
        self.torch, self.asked, self.parts, self.job = torch, asked, parts, job
        self.files: Files | None = None
        self.notes: list[str] = []
        self.foreign = self.is_beginning = False
        self.profiler: Any = None
        self.profile_function: Any = None
        self.local = threading.local()
        # -1 outside a backward pass
        self.backward_number = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self.reset("", last=True)

    def reset(self, source: str, last: bool) -> None:
        """Restart the recording. The source of steps is mark, optimizer, backward or
        module.

        - last: the same as in Marker.
        """
        self.drop_trace()
        self.source, self.marker = source, Marker(last)
        self.names: dict[Hashable, str] = {}
        self.stage, self.begun = WARM_UP, time.perf_counter()
        self.all_steps = self.backwards = self.extra = 0
        self.graphs: list[int] = []
        self.is_due = False
        self.rows: list[dict[str, Any]] = []
        self.moments: list[Any] = []
        self.about: dict[str, Any] = {}
        self.job.restart()
        if self.files is not None:
            self.files.begin_anew()

    # Steps

    def event(self, kind: Hashable, name: str) -> None:
        """Record an event that may mark a step, with its kind and its display name."""
        if self._is_capturing():
            return
        self.names.setdefault(kind, name)
        if not self.marker.is_step(kind):
            return
        if self.parts.thread is None:
            self.parts.thread = threading.get_ident()
        self.is_due = True
        self.catch_up()

    def catch_up(self) -> None:
        """End a completed step if torch.profiler can start or stop at this point.

        The profiler must start and stop on the same thread, but optimizers may run on an autograd
        thread. The profiler also can't start or stop within a backward pass, because it would miss
        the start or the end of some functions.
        """
        if self.is_due and self.parts.thread == threading.get_ident() and not self._in_backward():
            self.is_due = False
            self._step()

    def _in_backward(self) -> bool:
        return bool(self.backward_number() != -1)

    def _step(self) -> None:
        job = self.job
        job.end_step()
        if self.stage == DONE:
            return
        self.all_steps += 1
        if self.files is None:
            self.rank, self.world = rank_of(self.torch)
            self.files = Files(self.asked["out"], self.rank)
            self._save()
        sums = self.parts.take()
        if self.stage == WARM_UP:
            if self._is_warm():
                self._begin_timing(BEFORE)
        elif self.stage in (BEFORE, AFTER):
            self._time(sums)
        elif self.stage == TRACE:
            self._trace()
        elif self.stage == SETTLING:
            self._begin_timing(AFTER)

    def _is_warm(self) -> bool:
        """Return True if the warm-up is complete. Compilation extends the warm-up."""
        compiled = sys.modules.get("torch._dynamo.utils")
        self.graphs.append(compiled.counters["stats"]["unique_graphs"] if compiled else 0)
        skip = max(1, self.asked["after"] // 3)
        takes_long = time.perf_counter() - self.begun > LONGEST_S
        if self.all_steps < skip and not takes_long:
            return False
        steps = self.marker.steps - self.extra
        if steps < skip and not (steps >= FEWEST and takes_long):
            return False
        if self.graphs[-1] != self.graphs[max(0, len(self.graphs) - 3)] and self.extra < skip // 2:
            self.extra += 1
            return False
        return True

    # Times

    def _begin_timing(self, stage: str) -> None:
        self._wait_for_gpu()
        self.stage, self.rows, self.moments = stage, [], []
        self._note_moment()
        self.parts.take()
        self.begun = time.perf_counter()

    def _time(self, sums: dict[str, int]) -> None:
        self._note_moment()
        self.rows.append(sums)
        wanted = (
            TIMED
            if self.stage == AFTER
            else max(1, min(TIMED, self.asked["after"] - self.asked["after"] // 3))
        )
        long = len(self.rows) >= FEWEST and time.perf_counter() - self.begun > LONGEST_S
        if len(self.rows) < wanted and not long:
            return
        self._end_timing()
        if self.stage == AFTER or self.foreign:
            self._finish()
        elif not self.asked["steps"]:
            self.stage = SETTLING
        else:
            self._begin_trace()

    def _end_timing(self, closing: bool = False) -> None:
        """Summarize the timed steps, and write one line for each step.

        - closing: whether the program is ending. At the end of the program, the time after the last
          step isn't a step.
        """
        if not self.rows or self.files is None:
            return
        self._wait_for_gpu()
        whole = (time.perf_counter() - self.begun) * 1e9
        # In a run with a GPU, the host's parts don't show how the GPU spends its time. Therefore,
        # each line contains only the step time that the GPU measured.
        on_gpu = [
            first.elapsed_time(then) * 1e6
            for first, then in zip(self.moments, self.moments[1:], strict=False)
        ]
        lengths = on_gpu or [float(sum(row.values())) for row in self.rows]
        whole = sum(lengths) if closing else whole
        longest = LONG_STEP_RATIO * sorted(lengths)[len(lengths) // 2]
        usual = [step for step, length in enumerate(lengths) if length <= longest]
        long = [length for length in lengths if length > longest]
        step_ns = (
            whole / len(lengths)
            if len(usual) == len(lengths)
            else mean([lengths[step] for step in usual])
        )
        names = sorted({part for step in usual for part in self.rows[step]})
        self.about[self.stage] = {
            "steps": len(usual),
            "step_ns": step_ns,
            "parts_ns": {
                part: mean([self.rows[step].get(part, 0) for step in usual]) for part in names
            },
            "long": {
                "steps": len(long),
                "ns": sum(long),
                "total_steps": len(lengths),
                "of_ns": sum(lengths),
            },
        }
        first = self.all_steps - len(lengths)
        lines = [{"step_on_gpu": length / 1e9} for length in on_gpu]
        lines = lines or [{part: length / 1e9 for part, length in row.items()} for row in self.rows]
        self.files.add_times(
            {"rank": self.rank, "step": step, **line} for step, line in enumerate(lines, first)
        )
        self.rows, self.moments = [], []
        self._save()

    def _note_moment(self) -> None:
        """Record a GPU event, which takes microseconds and doesn't block the host."""
        if self._has_gpu():
            moment = self.torch.cuda.Event(enable_timing=True)
            moment.record()
            self.moments.append(moment)

    # Trace

    def _begin_trace(self) -> None:
        profiling = self.torch.profiler
        if self.parts.watchers():
            self.leave_alone(
                "A TorchDispatchMode of the program sees every operator, so no trace was recorded."
            )
            self._finish()
            return
        began = time.time_ns()
        activities = [profiling.ProfilerActivity.CPU]
        if self._has_gpu():
            activities.append(profiling.ProfilerActivity.CUDA)
        self.profiler = profiling.profile(
            activities=activities,
            schedule=profiling.schedule(wait=0, warmup=1, active=self.asked["steps"], repeat=1),
            on_trace_ready=self._write_trace,
            with_stack=self._may_record_stacks(),
            record_shapes=self.asked["shapes"],
        )
        profiler = self.local.profiler = self.profiler
        # A thread can't end while torch records the thread's operators.
        self.local.end = AtThreadEnd(lambda: self._stop(profiler))
        self.most_bytes = resident_bytes() + STACKS_BYTES
        self.traced = 0
        self.stage = TRACE
        self._begin_profiler(self.profiler.start)
        self.parts.pieces.clear()
        self.parts.trace(True)
        self.job.note("recording", began)
        self.parts.take()
        self.begun = time.perf_counter()

    def _may_record_stacks(self) -> bool:
        """Return True if the user requested call stacks and Python's profile function is unused."""
        if not self.asked["stacks"]:
            return False
        is_free = sys.getprofile() is None and threading.getprofile() is None
        if not is_free:
            self.notes.append("The program profiles Python, so the trace has no call stacks.")
        return is_free

    def _begin_profiler(self, begin: Callable[[], None]) -> None:
        """Call a function that starts torch.profiler, and suppress the profiler's output."""
        self.is_beginning = True
        is_silenced = LOG_LEVEL not in os.environ
        if is_silenced:
            os.environ[LOG_LEVEL] = "99"
        try:
            begin()
        finally:
            if is_silenced:
                del os.environ[LOG_LEVEL]
            self.is_beginning = False
            self.profile_function = sys.getprofile()

    def _trace(self) -> None:
        # Either another thread detected a profiler of the program, or the thread that started the
        # trace has ended and this thread reuses its number.
        if self.foreign or not self._is_on_thread():
            self.drop_trace()
            self.stage = SETTLING
            return
        self.parts.trace(False)
        if self.traced == 0:
            self._wait_for_gpu()
            self.parts.pieces.clear()
        self.traced += 1
        is_last = self.traced > self.asked["steps"]
        if (
            self.asked["stacks"]
            and not is_last
            and self.traced > 1
            and resident_bytes() > self.most_bytes
        ):
            self.notes.append(
                f"Call stacks fill {STACKS_BYTES / 1e9:g} GB, so the trace has fewer steps."
            )
            is_last = True
        if is_last:
            self._end_trace()
            return
        self._begin_profiler(self.profiler.step)
        if self.traced == 1:
            self.begun = time.perf_counter()
        self.parts.trace(True)

    def _end_trace(self) -> None:
        """Write the trace of the steps so far, and release the profiler."""
        self._wait_for_gpu()
        recorded = self.traced - 1
        step_ns = (time.perf_counter() - self.begun) * 1e9 / recorded
        members = {
            "watch_parts": self.parts.pieces,
            "watch_untraced": self.about.get(BEFORE),
            "watch_machine": machine(self.torch),
        }
        for name, value in members.items():
            self.profiler.add_metadata_json(name, json.dumps(value))
        began_ns = time.time_ns()
        try:
            self._stop(self.profiler)
        except OSError as error:
            if is_of_program(error):
                raise
            self.notes.append(f"The trace couldn't be written: {error.strerror or error}.")
        else:
            self.about["trace"] = {"steps": recorded, "step_ns": step_ns}
        self.profiler = None
        self.job.note("recording", began_ns)
        self.parts.take()
        self.stage = SETTLING
        self._save()

    def _write_trace(self, profiler: Any) -> None:
        if self.files is not None:
            self.files.keep_trace(profiler.export_chrome_trace)

    def _stop(self, profiler: Any) -> None:
        """Stop torch.profiler, even if it was interrupted while it started or stopped.

        If the program has replaced torch's profile function in the meantime, restore the program's
        function.
        """
        if hasattr(self.local, "end"):  # otherwise the thread is ending
            self.local.end.call = None
        theirs = sys.getprofile()
        try:
            profiler.stop()
        finally:
            self.torch.autograd.profiler.KinetoStepTracker.erase_step_count("ProfilerStep")
            if self.torch.autograd._profiler_enabled():
                self.torch.autograd._disable_profiler()
            if theirs is not None and theirs is not self.profile_function:
                # A profiler of cProfile, or a function
                getattr(theirs, "enable", lambda: sys.setprofile(theirs))()

    def drop_trace(self) -> None:
        """Release the profiler without a trace. If a backward pass is running, stop the profiler
        when the pass ends.

        Only the thread that started the profiler can stop the profiler.
        """
        is_on_thread = self._is_on_thread()
        profiler, self.profiler = self.profiler, None
        if profiler is None or not is_on_thread:
            return
        self.parts.trace(False)
        profiler.on_trace_ready = None
        if self._in_backward():
            engine = self.torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._stop(profiler))
        else:
            self._stop(profiler)

    def _is_on_thread(self) -> bool:
        """Return True on the thread that started the profiler."""
        return getattr(self.local, "profiler", None) is self.profiler

    def leave_alone(self, reason: str) -> None:
        """Skip the trace, because the program uses the only profiler or would see the hooks."""
        if self.foreign or self.stage == DONE:
            return
        self.foreign = True
        self.notes.append(reason)
        if self.profiler is not None and self._is_on_thread():
            self.drop_trace()
            self.stage = SETTLING

    # The end

    def _finish(self) -> None:
        self.stage = DONE
        self.parts.switch(REST)
        self._save()

    def close(self) -> None:
        """Save the results when the program ends."""
        if self.files is None:
            return
        if self.stage in (BEFORE, AFTER) and self.rows:
            self._end_timing(closing=True)
        # Discard an unfinished trace, because its last step would contain everything after the
        # steps.
        self.drop_trace()
        self.about["closed"] = True
        self._save()

    def _save(self) -> None:
        assert self.files is not None
        marks = [name for kind, name in self.names.items() if kind in self.marker.marks]
        self.about |= {
            "rank": self.rank,
            "world": self.world,
            "stage": self.stage,
            "all_steps": self.all_steps,
            "needed": self.needed,
            "asked_after": self.asked["after"],
            "asked_steps": self.asked["steps"],
            "backwards": self.backwards / max(1, self.all_steps),
            "source": self.source,
            "marks": sorted({*marks}),
            "notes": self.notes,
            "job": self.job.as_dict(),
            "machine": machine(self.torch),
        }
        self.files.tell(self.about)

    @property
    def needed(self) -> int:
        """The number of steps that a program must run for a complete trace."""
        return self.asked["after"] + 1 + self.asked["steps"]

    # GPU

    def _has_gpu(self) -> bool:
        # The function `is_available` would query the driver, which takes a long time.
        return bool(self.torch.cuda.is_initialized())

    def _is_capturing(self) -> bool:
        """Return True during a graph capture, when the hooks can't wait for the GPU."""
        return self._has_gpu() and self.torch.cuda.is_current_stream_capturing()

    def _wait_for_gpu(self) -> None:
        if self._has_gpu():
            self.torch.cuda.synchronize()


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return sum(values) / len(values)

"""Call stacks of the host, as a sampling profiler sees them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpumodel.run import SAMPLES, RankRun, empty
from gpumodel.workload import Sampling

TRAINER = (
    "_start",
    "main",
    "Py_RunMain",
    "<module> (__main__.py)",
    "main (cli.py)",
    "run (run.py)",
    "train (loop.py)",
)
"""Outermost frames of the main thread, down to the training loop."""

ENGINE = (
    "clone3",
    "start_thread",
    "torch::autograd::python::PythonEngine::thread_init",
    "thread_main",
)
"""Outermost frames of autograd's thread."""

PHASE_FRAMES = {
    "data": ("next_batch (loop.py)",),
    "forward": ("_call_impl (module.py)", "forward (modeling.py)"),
    "loss": ("forward (loss.py)",),
    "backward": ("backward (_tensor.py)", "_engine_run_backward (graph.py)"),
    "optimizer": ("step (grad_scaler.py)", "step (adam.py)"),
}
"""Frames between the training loop and an operator."""

WAITING_FOR_BATCH = (
    "__next__ (dataloader.py)",
    "_try_get_data (dataloader.py)",
    "get (queues.py)",
    "poll",
)
LOADING_ITSELF = ("__next__ (dataloader.py)", "fetch (fetch.py)", "__getitem__ (datasets.py)")
READING_SLOWLY = ("__iter__ (pathologies.py)", "read_slowly (pathologies.py)", "sleep")
COMING_LATE = ("after_data (pathologies.py)", "sleep")
WAITING_FOR_AUTOGRAD = ("torch::autograd::Engine::execute", "pthread_cond_wait")
WAITING_FOR_DEVICE = ("rocr::core::InterruptSignal::WaitRelaxed",)
"""Innermost frames of a thread, by what it waits for or does."""

ASLEEP = frozenset(
    stack[-1]
    for stack in (
        WAITING_FOR_BATCH,
        READING_SLOWLY,
        COMING_LATE,
        WAITING_FOR_AUTOGRAD,
        WAITING_FOR_DEVICE,
    )
)
"""Innermost frames of a thread that sleeps: it uses no CPU time."""


def sample(
    run: RankRun, pathology: str | None, last_rank: bool, seed: int, sampling: Sampling
) -> pd.DataFrame:
    """SAMPLES of a rank: both threads at random times, on average as often as `sampling` says."""
    if not len(run.operators):
        return empty("samples")
    begin = int(run.operators["start_ns"].iloc[0])
    end = int((run.operators["start_ns"] + run.operators["duration_ns"]).max())
    random = np.random.default_rng([seed, run.rank, 1])
    finder = _Finder(run, pathology, last_rank)
    taken: list[tuple[int, int, tuple[str, ...]]] = []
    for hertz, sees_sleep in ((sampling.by_wall_clock, True), (sampling.by_cpu_time, False)):
        times = np.sort(random.integers(begin, end, int((end - begin) * hertz / 1e9))).tolist()
        # Of samples at random times, those that do not find a thread asleep are at random CPU
        # times.
        taken += [
            row
            for time in times
            for row in finder.rows(time)
            if sees_sleep or row[2][-1] not in ASLEEP
        ]
    taken.sort(key=lambda row: row[0])
    return pd.DataFrame(taken, columns=list(SAMPLES)).astype(SAMPLES)


class _Finder:
    """Finds the frames that a thread is in at a given time, in ns."""

    def __init__(self, run: RankRun, pathology: str | None, last_rank: bool) -> None:
        self._pathology, self._last_rank = pathology, last_rank
        phases = run.annotations[~run.annotations["name"].str.startswith("ProfilerStep")]
        self._phase_start = phases["start_ns"].to_numpy(np.int64)
        self._phase_end = self._phase_start + phases["duration_ns"].to_numpy(np.int64)
        self._phase = phases["name"].tolist()
        self._operators = {
            thread: _Intervals(run.operators[run.operators["thread_id"] == thread], run.operators)
            for thread in (run.main_thread_id, run.autograd_thread_id)
        }
        self._calls = {
            thread: run.calls[run.calls["thread_id"] == thread] for thread in self._operators
        }
        self._call_times = {
            thread: (calls["start_ns"].to_numpy(np.int64), calls["duration_ns"].to_numpy(np.int64))
            for thread, calls in self._calls.items()
        }
        self._main, self._autograd = run.main_thread_id, run.autograd_thread_id

    def rows(self, time: int) -> list[tuple[int, int, tuple[str, ...]]]:
        """A row of SAMPLES for each thread that exists at this time; autograd's exists in the
        backward phase alone.
        """
        phase, stack = self.main_stack(time)
        found = [(time, self._main, stack)]
        return (
            [*found, (time, self._autograd, self.autograd_stack(time))]
            if phase == "backward"
            else found
        )

    def main_stack(self, time: int) -> tuple[str, tuple[str, ...]]:
        """Phase and stack of the main thread."""
        # Between operators the main thread waits for autograd in the backward phase; with rank-skew
        # it sleeps before the forward pass.
        place = int(np.searchsorted(self._phase_start, time, side="right")) - 1
        if place < 0 or time >= self._phase_end[place]:
            return "", TRAINER
        phase = self._phase[place]
        base = (*TRAINER, *PHASE_FRAMES[phase])
        names = self._operators[self._main].names(time)
        if phase == "data" and names and names[0].startswith("enumerate(DataLoader)"):
            return phase, (*base, *self._loading(names[0]))
        if not names and phase == "backward":
            return phase, (*base, *WAITING_FOR_AUTOGRAD)
        if not names and phase == "forward" and self._pathology == "rank-skew" and self._last_rank:
            return phase, (*TRAINER, *COMING_LATE)
        return phase, (*base, *names, *self._call(self._main, time))

    def autograd_stack(self, time: int) -> tuple[str, ...]:
        """Stack of autograd's thread during the backward phase."""
        names = self._operators[self._autograd].names(time)
        return (*ENGINE, *names, *self._call(self._autograd, time))

    def _loading(self, loader: str) -> tuple[str, ...]:
        if self._pathology == "slow-loader":
            return READING_SLOWLY
        return LOADING_ITSELF if "SingleProcess" in loader else WAITING_FOR_BATCH

    def _call(self, thread: int, time: int) -> tuple[str, ...]:
        start, duration = self._call_times[thread]
        place = int(np.searchsorted(start, time, side="right")) - 1
        if place < 0 or time >= start[place] + duration[place]:
            return ()
        name = self._calls[thread]["name"].iloc[place]
        return (name, *WAITING_FOR_DEVICE) if name == "hipMemcpyWithStream" else (name,)


class _Intervals:
    """Nested operators of one thread."""

    def __init__(self, own: pd.DataFrame, everything: pd.DataFrame) -> None:
        self._start = own["start_ns"].to_numpy(np.int64)
        self._rows = own.index.to_numpy()
        self._ends = (everything["start_ns"] + everything["duration_ns"]).to_numpy(np.int64)
        self._parents = everything["parent_id"].fillna(0).to_numpy(np.int64) - 1
        self._names = everything["name"].to_numpy()

    def names(self, time: int) -> tuple[str, ...]:
        """Names of the operators that run at this time, outermost first."""
        # Children lie within their parents, so the last operator to start is running, or one above
        # it is.
        place = int(np.searchsorted(self._start, time, side="right")) - 1
        row = int(self._rows[place]) if place >= 0 else -1
        while row >= 0 and self._ends[row] <= time:
            row = int(self._parents[row])
        found = []
        while row >= 0:
            found.append(self._names[row])
            row = int(self._parents[row])
        return tuple(reversed(found))

"""The results of a run's hooks on all ranks: step times, parts of a step, and the hooks' cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.triage.precision import precision_note

ABOUT = "run_rank*.json"
"""The files in which each rank describes itself."""

KEYS = {"rank", "world", "stage", "source", "marks", "backwards", "machine", "all_steps", "needed"}
"""The keys that each rank's file always contains."""

WINDOWS = ("before", "after")
"""The periods in which steps were timed, before and after the trace."""

DRIFT = 0.15
"""The smallest relative change of step times after the trace that is reported."""

INDIRECT = 1.6
"""The hooks cost this many times the time that they measure, because they displace the program's
data from the CPU's caches. The value is the median of eight ratios (1.1 to 2.0) from two runs of
benchmarks/bench_hooks.py with 3 to 300 modules on two cores (November 2026).
"""

JOB = ("startup", "training", "validation", "checkpoints", "recording")
"""The parts of a job that the hooks time (inside/job.py). The shutdown is the remaining time."""

VALIDATION = 0.1
"""The smallest share of the time after the first step for which a validation is reported."""

MEMORY = ("Resident memory", "The peak of the GPU's allocator")
"""The columns of the memory samples that follow the step number (inside/job.py)."""

LEAST_SAMPLES, GROWTH_PIECES = 12, 4
LEAST_GROWTH_BYTES, LEAST_GROWTH = 8e6, 0.01
"""The smallest number of samples and the smallest growth, absolute and relative, that are reported.
Allocators grow by a few MB in any program.
"""

PARTS = ("data", "between steps", "forward", "decode", "backward", "optimizer", "other")
"""The parts in the order of the report."""


@dataclass(frozen=True)
class Run:
    """The contents of a run's folder.

    ranks  -- rank -> the data that its hooks wrote (inside/recorder.py).
    traces -- the trace files of the ranks.
    others -- the folders of other processes that took steps.
    """

    folder: Path
    ranks: Mapping[int, Mapping[str, Any]]
    traces: tuple[Path, ...]
    others: tuple[Path, ...]

    @property
    def step_ns(self) -> float | None:
        """The mean unprofiled step time of all ranks; None if no step was timed."""
        lengths = [_mean_step(about) for about in self.ranks.values()]
        known = [length for length in lengths if length is not None]
        return float(np.mean(known)) if known else None


def read_run(folder: Path) -> Run:
    """Return the data that the processes of a run wrote.

    If a program starts itself again or starts another program, the new process writes to a
    subfolder. If only one process has a trace, the run describes that process.
    """
    others = tuple(sorted(folder.glob("program-*"), key=lambda path: int(path.name[8:] or 0)))
    first = _traces(folder)
    best = next((path for path in others if not first and _traces(path)), folder)
    rest = tuple(path for path in (folder, *others) if path != best)
    return Run(best, _ranks(best), _traces(best), rest if others else ())


def _traces(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("trace_rank*.json.gz")))


def _ranks(folder: Path) -> dict[int, Mapping[str, Any]]:
    """Return the data that each rank wrote.

    An incomplete file of a killed process counts as missing, and so does a file that these hooks
    didn't write.
    """
    ranks = {}
    for file in sorted(folder.glob(ABOUT)):
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
            if about.keys() >= KEYS:
                ranks[int(about["rank"])] = about
        except (OSError, ValueError, AttributeError, TypeError):
            continue
    return ranks


def _mean_step(about: Mapping[str, Any]) -> float | None:
    windows = [about[name] for name in WINDOWS if name in about]
    steps = sum(window["steps"] for window in windows)
    return sum(window["step_ns"] * window["steps"] for window in windows) / steps if steps else None


def notes_of(run: Run) -> list[str]:
    """Return the notes on a run that every reader of a report should see."""
    return [
        *_notes(run),
        *_prefill(run),
        *_drift(run),
        *_validation(run),
        *_growth(run),
        *_weights(run),
    ]


def details_of(run: Run) -> list[str]:
    """Return lines about the definition of a step, the host's time by part, and the hooks' cost."""
    shares = ", ".join(f"{part} {100 * share:.0f}%" for part, share in _parts(run).items())
    parts = [f"The host's time without the profiler: {shares}."] if shares else []
    return [_what_is_a_step(run), *parts, _cost(run)]


def times_of(run: Run) -> str:
    """Return a sentence on the unprofiled step time."""
    if run.step_ns is None:
        return "No step was timed."
    return f"A step takes {run.step_ns / 1e6:,.4g} ms without the profiler ({_timed(run)} steps)."


def _what_is_a_step(run: Run) -> str:
    about = next(iter(run.ranks.values()))
    marks, passes = " or ".join(about["marks"]), about["backwards"]
    what = {
        "optimizer": f"one step of {marks}",
        "backward": "one backward pass, because no optimizer of PyTorch took a step,",
        "module": f"one call of {marks}, because no optimizer and no backward pass ran,",
        "replay": "one graph replay, because no other kind of step ran,",
        "mark": f"one {marks}",
    }[about["source"]]
    is_several = about["source"] == "optimizer" and passes >= 1.5
    several = f", with {passes:.1f} backward passes" if is_several else ""
    return f"A step lasts from {what} to the next{several}."


def _timed(run: Run) -> int:
    return sum(one[name]["steps"] for one in run.ranks.values() for name in WINDOWS if name in one)


def _prefill(run: Run) -> list[str]:
    """Return a line if a language model generated text, because its first calls take longer."""
    windows = [about[name] for about in run.ranks.values() for name in WINDOWS if name in about]
    calls = sum(window["prefill"]["steps"] for window in windows)
    spent = sum(window["prefill"]["ns"] for window in windows)
    if not calls:
        return []
    return [f"{calls} prefill calls, with whole prompts, take {spent / calls / 1e6:,.4g} ms each."]


def _drift(run: Run) -> list[str]:
    both = [one for one in run.ranks.values() if "before" in one and "after" in one]
    if not both:
        return []
    before, after = (float(np.mean([one[name]["step_ns"] for one in both])) for name in WINDOWS)
    if abs(after / before - 1) < DRIFT:
        return []
    first, last = f"{before / 1e6:,.4g} ms", f"{after / 1e6:,.4g} ms"
    return [f"Step times vary: {first} before the trace and {last} after it."]


def _validation(run: Run) -> list[str]:
    """Return a line if a large part of the time after the first step isn't training."""
    job = next(iter(run.ranks.values())).get("job", {})
    training, validation = job.get("training_ns", 0), job.get("validation_ns", 0)
    if validation < VALIDATION * (training + validation) or not validation:
        return []
    share = 100 * validation / (training + validation)
    return [
        f"Model calls without gradients, such as a validation, take {share:.0f}% of the time"
        " after the first step. The verdict is about training steps."
    ]


def _growth(run: Run) -> list[str]:
    """Return a line for each kind of memory that grows steadily on a rank."""
    lines = {}
    for rank, about in run.ranks.items():
        samples = np.array(about.get("job", {}).get("memory", ()), dtype=float)
        for column, name in enumerate(MEMORY, 1):
            if samples.ndim == 2 and samples.shape[1] > column:
                growth = steady_growth(samples[:, 0], samples[:, column])
                if growth:
                    slope, first, last = (value / 1e6 for value in growth)
                    where = f" on rank {rank}" if len(run.ranks) > 1 else ""
                    lines[name] = (
                        f"{name} grows steadily{where}, by {slope:,.3g} MB per step, to"
                        f" {last:,.5g} MB from {first:,.5g} MB. Look for tensors or results that"
                        " the program keeps."
                    )
    return [*lines.values()]


def steady_growth(steps: np.ndarray, values: np.ndarray) -> tuple[float, float, float] | None:
    """Return the slope per step, the first value and the last value of a steadily growing quantity;
    None if it doesn't grow steadily.

    Only the last two thirds of the samples count. The quantity must grow from each quarter of these
    samples to the next, by at least half of the mean growth. A single jump, such as a new cache,
    doesn't count. The slope is the Theil-Sen estimate.
    """
    steps, values = steps[len(steps) // 3 :], values[len(values) // 3 :]
    if len(steps) < LEAST_SAMPLES:
        return None
    pieces = [float(np.median(piece)) for piece in np.array_split(values, GROWTH_PIECES)]
    rises = np.diff(pieces)
    whole = pieces[-1] - pieces[0]
    if whole < max(LEAST_GROWTH_BYTES, LEAST_GROWTH * pieces[0]) or rises.min() < (
        whole / len(rises) / 2
    ):
        return None
    first, second = np.triu_indices(len(steps), 1)
    apart = steps[second] > steps[first]
    slopes = (values[second] - values[first])[apart] / (steps[second] - steps[first])[apart]
    return float(np.median(slopes)), float(values[0]), float(values[-1])


def _weights(run: Run) -> list[str]:
    """Return a note if most weights are float64. Other types aren't conclusive, because autocast
    multiplies float32 weights in 16 bits.
    """
    weights = next(iter(run.ranks.values())).get("weights", {})
    whole = sum(weights.values())
    shares = {"float64": weights.get("float64", 0) / whole} if whole else {}
    note = precision_note(shares, "", "weights")
    return [note] if note else []


def _parts(run: Run) -> dict[str, float]:
    """Return the share (0 to 1) of each part in the host's time without the profiler."""
    sums: dict[str, float] = {}
    windows = [one[name] for one in run.ranks.values() for name in WINDOWS if name in one]
    for window in windows:
        for part, length in window["parts_ns"].items():
            sums[part] = sums.get(part, 0.0) + length * window["steps"]
    whole = sum(sums.values())
    order = [*PARTS, *sorted(sums.keys() - {*PARTS})]
    return {part: sums[part] / whole for part in order if part in sums} if whole else {}


def _notes(run: Run) -> Iterable[str]:
    lines = {line: None for about in run.ranks.values() for line in about.get("notes", ())}
    yield from lines
    worlds = {about["world"] for about in run.ranks.values()}
    missing = sorted({*range(max(worlds))} - {*run.ranks})
    if missing:
        yield f"The hooks saw no step on rank {', '.join(map(str, missing))}."
    if run.others:
        names = ", ".join(folder.name for folder in run.others)
        yield (
            "Other processes also took steps, but this report describes only one process. Files of"
            f" the other processes: {names}."
        )


def _cost(run: Run) -> str:
    """Return a sentence on the cost of the hooks, based on their measurements."""
    windows = [about.get("before") or about.get("after") for about in run.ranks.values()]
    shares = [INDIRECT * window["hooks_ns"] / window["step_ns"] for window in windows if window]
    writing = [about["trace"]["write_ns"] for about in run.ranks.values() if "trace" in about]
    share = f"{100 * max(shares):.2g}% of a step" if shares else "an unknown share of a step"
    once = f" Writing the trace took {max(writing) / 1e9:,.2g} s once." if writing else ""
    return f"The hooks cost {share}.{once}"


def job_of(run: Run, launched_ns: int, ended_ns: int) -> dict[str, float]:
    """Return the time from launch to exit on the first rank, in seconds by part.

    If the program was killed, the job ends within the training.
    """
    about = next(iter(run.ranks.values()), {})
    job = about.get("job")
    if job is None:
        return {}
    parts = {name: job[f"{name}_ns"] / 1e9 for name in JOB}
    rest = (ended_ns - launched_ns) / 1e9 - sum(parts.values())
    last = "shutdown" if "closed" in about else "training"
    parts |= {"shutdown": 0.0}
    parts[last] += max(0.0, rest)
    return parts


def machine_of(run: Run) -> str:
    """Return the first rank's host, GPU, PyTorch and ROCm versions, if the hooks know them."""
    machine = next(iter(run.ranks.values()))["machine"]
    named = [machine["host"], machine["gpu"] or "no GPU", f"PyTorch {machine['torch']}"]
    if machine["rocm"]:
        named.append(f"ROCm {machine['rocm']}")
    return ", ".join(named)


def why_no_trace(run: Run) -> str:
    """Return the reason why a run with steps has no verdict, and the remedy."""
    about = next(iter(run.ranks.values()))
    if notes := about.get("notes"):
        return "; ".join(notes)
    if about["asked_steps"] == 0:
        return "--no-trace was passed"
    seen, needed = about["all_steps"], about["needed"]
    if "closed" not in about and about["stage"] != "done":
        return (
            f"the program was killed or called os._exit after at least {seen} steps, but a trace"
            f" needs {needed}"
        )
    if seen < needed:
        # Reserve the trace and the step before it. Subtract one more step, because the last step
        # may have ended with the program. A third of --skip-steps is warm-up: use multiples of 3.
        of_trace = needed - about["asked_after"]
        sooner = 3 * ((seen - 1 - of_trace) // 3)
        help_ = f"pass --skip-steps {sooner}" if sooner >= 3 else "let it run longer"
        return f"it ended after {seen} steps, but a trace needs {needed}: {help_}"
    return "the program ended during the trace: let it run a few steps longer"

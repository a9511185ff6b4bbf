"""What a cure is judged by: modelled repeats of a step, and short real runs on this machine for the correctness gate.

The real runs share two processes, since importing torch takes longer than a short training.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proflab import journal
from proflab.errors import CourseError

if TYPE_CHECKING:
    from cifar_train.config import TrainConfig
    from cifar_train.loop import Trainer
    from proflab.training import TrainingRun

FOLDER = "08/gate"
"""Folder of the real runs, below the runs folder."""

SHORT = "--batch-size 32 --max-steps 3 --num-workers 0 --data synthetic --device cpu --check-gradients"
"""The training that the gate's tolerance was measured with (correctness_gate.LOSS_TOLERANCE): with more or smaller
steps harmless changes differ by more. On a processor, so that every machine can do it."""

LOADER = "--batch-size 64 --max-steps 4 --num-workers 0 --data synthetic --device cpu"
"""How the loader is timed alone: in the training process itself, one batch at a time."""

MODEL_STEPS = 10
STEADY_STEPS = 6
"""The model is deterministic but for its host: a few steps show a rate. An even number, as two loaders take turns."""

REPEATS = 5

PROCESSES = 2
"""Real runs go on side by side, since the smallest machine of the course has two cores."""


@dataclass(frozen=True)
class ModelledRepeats:
    """seconds -- per image, one value per seed; images_per_second -- their median rate; origin -- states the error."""

    seconds: tuple[float, ...]
    origin: object

    @property
    def images_per_second(self) -> float:
        """The median of the repeats as a rate."""
        return 1 / sorted(self.seconds)[len(self.seconds) // 2]


def modelled(options: str = "", repeats: int = REPEATS, ranks: int = 1) -> ModelledRepeats:
    """Time per image of the trainer with these options on a modelled MI300X, once per seed.

    Computed from the last STEADY_STEPS of MODEL_STEPS: their images over their time. The seeds vary the host's costs
    only: the spread is not the model's error. Raises UserError for options that the trainer refuses.
    """
    from cifar_train.config import parse

    return _modelled(parse([*shlex.split(options), "--max-steps", str(MODEL_STEPS)]), repeats, ranks)


@functools.cache
def _modelled(config: TrainConfig, repeats: int, ranks: int) -> ModelledRepeats:
    """A lesson compares with the plain trainer again and again."""
    from gpumodel import Training, simulate
    from tidyprof.tables.contract import Origin

    runs = [simulate(Training(config=config, ranks=ranks, seed=seed)) for seed in range(repeats)]
    seconds = tuple(_seconds_per_image(run.ranks[0].images_per_second) for run in runs)
    return ModelledRepeats(seconds, Origin("modelled", f"MI300X, {runs[0].error}"))


@functools.cache
def plain_step() -> dict[str, float]:
    """The plain trainer's step on a modelled MI300X, without a profiler: step_ms, launch_bound_ms.

    Medians over the last STEADY_STEPS of MODEL_STEPS.
    """
    from cifar_train.config import parse
    from gpumodel import Training, simulate
    from gpumodel.truth import profile_of
    from tidyprof.analyses.budget import step_budget

    run = simulate(Training(config=parse(["--max-steps", str(MODEL_STEPS)])))
    last = step_budget(profile_of(run)).tail(STEADY_STEPS)
    columns = {"step_ms": "duration_ns", "launch_bound_ms": "launch_bound_ns"}
    return {name: float(last[column].median()) / 1e6 for name, column in columns.items()}


def _seconds_per_image(rates: Sequence[float]) -> float:
    """Mean time of an image over the last steps, from images/s of equal steps."""
    last = rates[-STEADY_STEPS:]
    return sum(1 / rate for rate in last) / len(last)


@dataclass(frozen=True)
class Bench:
    """Real work on this machine: runs by name; loader -- seconds per image of each repeat, for two sets of options."""

    runs: dict[str, TrainingRun]
    loader: tuple[list[float], list[float]]


def bench(runs: Mapping[str, str], loader: tuple[str, str] = ("", "")) -> Bench:
    """Train shortly once for each of `runs` (name -> options), and time the loader with two sets of options in turn.

    Raises UserError for options that the trainer refuses, and CourseError with its message for a run that fails, but
    not for one whose gradients fail the check.
    """
    from cifar_train.config import parse
    from proflab.training import training_run

    for options in (*runs.values(), *loader):
        parse(shlex.split(options))  # what the trainer refuses, it refuses before anything is started
    base = journal.runs_folder() / FOLDER
    folders = {name: str(_new_folder(base / name)) for name in runs}
    trainings = [f"{SHORT} {options} --run-dir {shlex.quote(folders[name])}" for name, options in runs.items()]
    plans = [{"runs": trainings[start::PROCESSES], "loader": []} for start in range(PROCESSES)]
    plans[-1]["loader"] = [f"{LOADER} {options}" for options in loader]
    timed = _carried_out(plans)[-1]
    return Bench({name: training_run(folder) for name, folder in folders.items()}, (timed[0], timed[1]))


def _carried_out(plans: Sequence[dict[str, list[str]]]) -> list[list[list[float]]]:
    """Run `main` with each plan in a process of its own, on one thread, side by side; the times of their loaders.

    Whatever ends the waiting ends the processes: an interrupted cell leaves nothing behind.
    """
    # Steps this small gain little from a second thread, and lose much by it on a busy machine, where threads spin
    # while they wait for each other.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "proflab.parts.clinic_runs"]
    with ThreadPoolExecutor() as threads, ExitStack() as started:
        processes = []
        for _ in plans:
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            process = started.enter_context(subprocess.Popen(command, text=True, env=environment, **pipes))
            started.callback(process.kill)
            processes.append(process)
        outputs = threads.map(lambda process, plan: process.communicate(json.dumps(plan)), processes, plans)
        return [_times(process, *output) for process, output in zip(processes, outputs, strict=True)]


def _times(process: subprocess.Popen[str], out: str, err: str) -> list[list[float]]:
    """The loaders' times from what a process printed. Raises CourseError with its last words if it failed."""
    if process.returncode:
        last = (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise CourseError(f"a run of the clinic failed: {last}")
    return json.loads(out.strip().splitlines()[-1])


def _new_folder(base: Path) -> Path:
    """The first numbered folder that is not there: what an earlier run left is never read as a new result."""
    number = 1
    while (base / f"{number:04d}").exists():
        number += 1
    return base / f"{number:04d}"


def main() -> int:
    """Do what standard input asks for; the last line of standard output holds the loader's times."""
    from cifar_train import cli

    plan = json.load(sys.stdin)
    for options in plan["runs"]:
        code = cli.main(shlex.split(options))
        if code and not (code == 2 and "broken-grad" in options):
            return code
    print()
    print(json.dumps(_time_loaders(plan["loader"]) if plan["loader"] else []))
    return 0


def _time_loaders(both: Sequence[str]) -> list[list[float]]:
    """Seconds per image of one batch for each set of options, in the order before, after, after, before, ..."""
    from cifar_train.config import parse
    from cifar_train.launch.devices import pick_device
    from cifar_train.launch.ranks import discover
    from cifar_train.train import set_up

    launch = discover()
    configs = [parse(shlex.split(options)) for options in both]
    device = pick_device("cpu", launch)
    trainers = [set_up(config, launch, device, grouped=False) for config in configs]
    batches = [iter(trainer.loaders.train) for trainer in trainers]
    times: list[list[float]] = [[], []]
    for repeat in range(REPEATS + 1):
        for side in (0, 1) if repeat % 2 == 0 else (1, 0):
            seconds = _time_batch(trainers[side], batches[side])
            if repeat:  # the first batch of each is warm-up
                times[side].append(seconds / configs[side].batch_size)
    return times


def _time_batch(trainer: Trainer, batches: Iterator) -> float:
    from cifar_train.loop import next_batch

    begin = time.perf_counter()
    next_batch(trainer, batches)
    return time.perf_counter() - begin


if __name__ == "__main__":
    raise SystemExit(main())

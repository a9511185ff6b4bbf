"""A training run in chronological order: setup, loop and report."""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn
from torch.nn.functional import cross_entropy

from cifar_train import injected_faults, precision, profiling, report
from cifar_train.clock import StepClock, synchronize
from cifar_train.config import TrainConfig, apply_to_config
from cifar_train.console import Progress, say
from cifar_train.data.cifar100 import IMAGE_SIZE
from cifar_train.data.loaders import build_loaders, resolve_data_source
from cifar_train.hooks import Hook, Hooks, on_sigterm
from cifar_train.loop import Trainer, train
from cifar_train.models import build_model
from cifar_train.ranks import Launch, discover, gather, join, leave, pick_device
from cifar_train.schedule import ProfileSchedule
from tidyprof.errors import UserError

LOCK = ".running"
"""Name of the lock file in a run's folder. The lock blocks a second run until the first run ends.
"""

RUNS = Path("runs") / "cifar_train"
"""Parent folder for runs without --run-dir."""

LARGE_ON_A_PROCESSOR = 64
"""Minimum batch size that triggers a warning about slow CPU steps.

A step with 256 images took 40 to 53 s on two cores shared with other programs.
"""


@dataclass
class Result:
    """Result of a finished run.

    On rank 0, `summaries` contains the summaries of all ranks. On any other rank, `summaries`
    contains only the rank's own summary.
    """

    folder: Path
    records: list[report.StepRecord]
    summaries: list[report.Summary]
    files: list[Path]
    notes: list[str]
    stop_reason: str | None
    text: str


class StopRequested(BaseException):
    """Request to finish the files and exit, raised after SIGTERM from a time limit or a canceled
    job.
    """


def run(config: TrainConfig) -> Result:
    """Train with this configuration and write the results.

    Raises UserError for each error that the user can fix.
    """
    launch = discover()
    config = apply_to_config(config)
    device = pick_device(config.device, launch)
    profile = _prepare_device(config, launch, device)
    join(launch, device)
    with _run_folder(config.run_dir, launch) as folder:
        trainer = set_up(config, launch, device)
        _announce(trainer, profile, folder)
        compile_ns = _compile(trainer) if config.compile else None
        clock = StepClock(device)
        stop_reason = _train(trainer, _hooks(trainer, profile, clock))
        if not clock.outcomes:
            raise UserError(f"the run was stopped by {stop_reason} before the first step ended.")
        records = report.step_records(clock.outcomes, clock.durations_ns, trainer)
        summary = report.summarize(records, trainer, compile_ns)
        metrics = report.write_metrics(folder, trainer, records, summary, stop_reason)
        files = [metrics, *(profile.files if profile else [])]
        summaries = [summary]
        if not stop_reason:
            # A canceled rank must not wait for other ranks, because they may already have exited.
            gathered = gather(summary, launch)
            summaries = gathered if launch.rank == 0 else summaries
            leave(launch)
        text = report.render(summaries, trainer, files, stop_reason)
        return Result(folder, records, summaries, files, trainer.notes, stop_reason, text)


# Setup


def _prepare_device(
    config: TrainConfig, launch: Launch, device: torch.device
) -> profiling.TorchProfile | None:
    """Choose this process's device and create the profiler.

    The profiler must exist before any code uses the device.
    """
    if device.type == "cpu":
        # Without a GPU, a GPU build of torch reports an error when the profiler starts.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    else:
        torch.cuda.set_device(device)
    if not config.torch_profile or (launch.rank != 0 and not config.profile_all_ranks):
        return None
    return profiling.TorchProfile(config, config.schedule_for(), device.type, launch.tag)


@contextmanager
def _run_folder(wanted: Path | None, launch: Launch) -> Iterator[Path]:
    """Yield the results folder, which is the same on all ranks.

    Raises UserError if another run uses the folder.
    """
    folder = wanted or gather(RUNS / f"{datetime.now():%Y%m%d-%H%M%S-%f}", launch)[0]
    folder.mkdir(parents=True, exist_ok=True)
    if launch.rank != 0:  # rank 0 locks the folder for all ranks of its run
        yield folder
        return
    try:
        with FileLock(folder / LOCK, blocking=False):
            yield folder
    except Timeout as error:
        raise UserError(f"another run is using {folder}. Pass a different --run-dir.") from error


def set_up(config: TrainConfig, launch: Launch, device: torch.device) -> Trainer:
    """Build the data, the model and the optimizer of one rank.

    All ranks have the same weights, but their transforms and data order differ. Raises UserError
    for unusable data.
    """
    if config.model == "resnet" and config.batch_size == 1:
        # Without this check, PyTorch would fail with a traceback in the middle of the first step.
        raise UserError(
            "with --batch-size 1, resnet's last normalization layer has only one value per channel"
            " and can't compute a variance. Pass --batch-size 2 or higher, or --model vit."
        )
    torch.manual_seed(config.seed)
    loaders = build_loaders(
        config, resolve_data_source(config), launch.rank, launch.world_size, device.type
    )
    memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
    dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
    model = injected_faults.apply_to_model(config.inject_fault, build_model(config.model).train())
    model = model.to(device=device, dtype=dtype, memory_format=memory_format)
    autocast, scaler = precision.mixed_precision(config, device)
    trainer = Trainer(
        config=config,
        launch=launch,
        device=device,
        loaders=loaders,
        raw_model=model,
        model=_wrap(model, config, launch, device),
        optimizer=torch.optim.Adam(
            model.parameters(), fused=True if config.fused_optimizer else None
        ),
        scaler=scaler,
        autocast=autocast,
        input_dtype=dtype,
        memory_format=memory_format,
        notes=precision.notes(config, device),
    )
    injected_faults.apply_to_trainer(config.inject_fault, trainer)
    torch.manual_seed(config.seed + launch.rank)
    return trainer


def _wrap(model: nn.Module, config: TrainConfig, launch: Launch, device: torch.device) -> nn.Module:
    if launch.launcher is not None:
        model = nn.parallel.DistributedDataParallel(
            model,
            device_ids=None if device.type == "cpu" else [device.index],
            # Without this option, a model with a cut gradient graph would fail in the second step.
            find_unused_parameters=config.inject_fault == "broken-grad",
        )
    return torch.compile(model) if config.compile else model


def _announce(trainer: Trainer, profile: profiling.TorchProfile | None, folder: Path) -> None:
    """Write the settings to a file, and print any differences between the run and the request."""
    config, planned = trainer.config, trainer.planned_steps
    steps = f"{planned} step{'s' * (planned != 1)}"
    if trainer.launch.rank == 0:
        config.write(folder)
        say(f"{trainer.loaders.description}; {steps} on {trainer.device}")
    if profile is not None:
        profile.folder = folder
        schedule = config.schedule_for()
        if schedule.wait < ProfileSchedule.wait:
            trainer.notes.append(
                f"this run shortens the profiler's default schedule: wait {schedule.wait} +"
                f" warmup {schedule.warmup} + active {schedule.active}"
            )
    if trainer.device.type == "cpu" and config.batch_size >= LARGE_ON_A_PROCESSOR:
        trainer.notes.append(
            f"--batch-size {config.batch_size} is large for a CPU. A step can take a minute, and"
            " the first step takes longer. With --batch-size 8, a step takes seconds."
        )
    if trainer.launch.rank == 0:
        for note in trainer.notes:
            say(note)


def _compile(trainer: Trainer) -> int:
    """Compile the forward and backward pass with a synthetic batch, and return the time in ns.

    The function restores running statistics and random number states afterwards. The training run
    therefore starts in the same state as an eager run.
    """
    state = copy.deepcopy(trainer.raw_model.state_dict())
    begin = time.perf_counter_ns()
    try:
        shape = (trainer.config.batch_size, 3, IMAGE_SIZE, IMAGE_SIZE)
        images = torch.zeros(shape, device=trainer.device, dtype=trainer.input_dtype)
        labels = torch.zeros(len(images), dtype=torch.int64, device=trainer.device)
        with trainer.autocast():
            logits = trainer.model(images.contiguous(memory_format=trainer.memory_format)).logits
        cross_entropy(logits.float(), labels).backward()
    except torch._dynamo.exc.TorchDynamoException as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"--compile failed: {reason}. Compilation needs a C++ compiler (g++) on a CPU and"
            " Triton on a GPU."
        ) from error
    synchronize(trainer.device)
    elapsed = time.perf_counter_ns() - begin
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer.raw_model.load_state_dict(state)
    torch.manual_seed(trainer.config.seed + trainer.launch.rank)
    return elapsed


# Loop


def _hooks(
    trainer: Trainer, profile: profiling.TorchProfile | None, clock: StepClock
) -> list[Hook]:
    """Return all hooks, ordered from outermost to innermost.

    The step time of an outer hook includes the work of the inner hooks.
    """
    hooks: list[Hook] = [Progress(trainer.planned_steps)] if trainer.launch.rank == 0 else []
    if profile is None:
        hooks.append(clock)
    else:
        hooks += [profile, profile.untraced, clock, profiling.record_function_ranges()]
    if trainer.config.roctx:
        hooks.append(profiling.roctx_ranges())
    return hooks + trainer.fault_hooks


def _train(trainer: Trainer, hooks: list[Hook]) -> str | None:
    """Run the loop and return the name of the signal that ended the loop early, or None."""
    try:
        with on_sigterm(_stop), Hooks(hooks) as enclosing:
            train(trainer, enclosing)
    except StopRequested as request:
        return str(request)
    return None


def _stop(number: int, frame: Any) -> None:
    """Raise StopRequested for the first SIGTERM."""
    signal.signal(number, signal.SIG_IGN)
    raise StopRequested(signal.Signals(number).name)

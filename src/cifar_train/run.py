"""One training run from configuration to results, for one rank among any number."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cifar_train import console, pathologies, profiling, report
from cifar_train.clock import StepClock, synchronize
from cifar_train.config import TrainConfig
from cifar_train.errors import UserError
from cifar_train.gradients import check_gradients
from cifar_train.hooks import Hook, Hooks
from cifar_train.job import Job, build_job, prepare_run_folder
from cifar_train.launch.devices import pick_device
from cifar_train.launch.failure_watch import FailureWatch
from cifar_train.launch.process_group import connect
from cifar_train.launch.ranks import Launch, discover
from cifar_train.loop import train
from cifar_train.models import IMAGE_SIZE, build_model
from cifar_train.validation import accuracy

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed import Store


@dataclass
class Result:
    """What a finished run left behind. `summaries` has one entry per rank on rank 0, else one."""

    folder: Path
    records: list[report.StepRecord]
    summaries: list[report.Summary]
    files: list[Path]
    notes: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    stop_reason: str | None = None
    text: str = ""


class LostRankError(UserError):
    """Another rank is gone; exit code 1, since this one did nothing wrong."""


class StopRequested(BaseException):
    """SIGTERM arrived: a time limit or a cancelled job. Finish the files and leave."""


def run(config: TrainConfig, make_model: Callable[[str], nn.Module] = build_model) -> Result:
    """Train as `config` says and write the results. Raises UserError for all that a user can mend."""
    launch = discover()
    config = pathologies.apply_to_config(config)
    device = pick_device(config.device, launch)
    if device.type == "cpu":
        # A GPU build of torch reports the missing GPU as an error when the profiler starts.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    else:
        import torch

        getattr(torch, device.type).set_device(device)
    profiler = _profiler(config, launch, device)
    store = connect(launch, device, config.rendezvous_timeout)
    with JobGuard(store, launch, config.rendezvous_timeout) as guard:
        folder = prepare_run_folder(config.run_dir, _shared_name(store, launch))
        job = build_job(config, launch, device, grouped=store is not None, make_model=make_model)
        return _train_and_report(job, folder, profiler, store, guard)


def _profiler(config: TrainConfig, launch: Launch, device: torch.device) -> profiling.TorchProfile | None:
    if not config.torch_profile or (launch.rank != 0 and not config.profile_all_ranks):
        return None
    return profiling.TorchProfile(config, config.schedule_for(), device.type, launch.tag)


def _shared_name(store: Store | None, launch: Launch) -> str:
    """The default folder's name, equal on all ranks."""
    name = time.strftime("%Y%m%d-%H%M%S")
    if store is None or launch.world_size == 1:
        return name
    if launch.rank == 0:
        store.set("run_folder", name)
    return store.get("run_folder").decode()


class JobGuard:
    """Leaves the process group in order, and tells the other ranks if this one fails."""

    def __init__(self, store: Store | None, launch: Launch, timeout_seconds: int) -> None:
        self._launch = launch
        self._grouped = store is not None
        self._abandoned = False
        several = store is not None and launch.world_size > 1
        self._watch = FailureWatch(store, launch.rank, launch.world_size, timeout_seconds) if several else None

    def abandon(self) -> None:
        """This rank was told to stop: wait for nobody, and let nobody else's end cut its files short."""
        self._abandoned = True
        if self._watch:
            self._watch.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not self._grouped or self._abandoned:
            return
        import torch.distributed as dist

        if error is None:
            if self._watch:
                self._watch.stop()
                dist.barrier()
            dist.destroy_process_group()
        elif self._watch and _is_lost_rank(error):
            self._watch.wait_for_verdict()
            raise LostRankError(
                f"rank {self._launch.rank} stops because another rank is gone; its own message tells why"
            ) from error
        elif self._watch:
            self._watch.report(str(error))


def _is_lost_rank(error: BaseException) -> bool:
    import torch.distributed as dist

    broken = any(word in str(error).lower() for word in ("gloo", "connection", "nccl"))
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and broken)


def _train_and_report(
    job: Job, folder: Path, profiler: profiling.TorchProfile | None, store: Store | None, guard: JobGuard
) -> Result:
    if job.launch.rank == 0:
        job.config.write(folder)
        console.say(f"{job.loaders.description}; {job.planned_steps} steps on {job.device}")
    _announce(job, profiler, folder)
    compile_ns = _compile(job) if job.config.compile else None
    clock = StepClock(job.device, job.config.warmup_for(job.planned_steps))
    stop_reason = None
    try:
        with _stop_on_sigterm(), Hooks(_hooks(job, profiler, clock)) as hooks:
            train(job, hooks)
    except StopRequested as request:
        guard.abandon()
        stop_reason = str(request)
    if not clock.outcomes:
        raise UserError(f"stopped by {stop_reason} before the first step was over; there is nothing to report")
    return _report(job, folder, profiler, store, clock, compile_ns, stop_reason)


def _announce(job: Job, profiler: profiling.TorchProfile | None, folder: Path) -> None:
    """Fit the profiler's schedule to the data, and say once what differs from what was asked for."""
    schedule = job.config.schedule_for(job.planned_steps)
    if profiler is not None:
        profiling.check_trace_size(job.config, schedule, folder)
        profiler.folder = folder
        if schedule.shrunk:
            job.notes.append(f"the profiler's default schedule was cut to this run: {schedule.arithmetic}")
    if job.planned_steps < job.config.max_steps:
        job.notes.append(
            f"the data ends after {job.planned_steps} steps ({job.config.max_epochs} epoch of "
            f"{job.loaders.steps_per_epoch}); --max-epochs gives more"
        )
    if job.launch.rank == 0:
        for note in job.notes:
            console.say(note)


def _hooks(job: Job, profiler: profiling.TorchProfile | None, clock: StepClock) -> list[Hook]:
    """From the outermost to the innermost: what a later hook does lies inside the earlier ones' step."""
    hooks: list[Hook] = [console.Progress(job.planned_steps)] if job.launch.rank == 0 else []
    if profiler is not None:
        hooks.append(profiler)
    hooks.append(clock)
    if profiler is not None:
        hooks.append(profiling.record_function_ranges())
    if job.config.roctx:
        hooks.append(profiling.roctx_ranges())
    return hooks + job.fault_hooks


def _compile(job: Job) -> int:
    """Compile forward and backward on a made-up batch before the clock runs; returns nanoseconds.

    Running statistics and random numbers are put back, so that the run starts as an eager one does.
    """
    import torch

    state = {name: value.clone() for name, value in job.raw_model.state_dict().items()}
    begin = time.perf_counter_ns()
    try:
        images, labels = _made_up_batch(job)
        with job.autocast():
            logits = job.model(images).logits
        job.criterion(logits.float(), labels).backward()
    except torch._dynamo.exc.TorchDynamoException as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"--compile failed: {reason}; on a CPU it needs a C++ compiler (g++), on a GPU Triton"
        ) from error
    synchronize(job.device)
    elapsed = time.perf_counter_ns() - begin
    job.optimizer.zero_grad(set_to_none=True)
    job.raw_model.load_state_dict(state)
    torch.manual_seed(job.config.seed + job.launch.rank)
    return elapsed


def _made_up_batch(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch as the loop would get it, without taking one from the loader."""
    import torch

    count = job.config.batch_size
    images = torch.zeros(count, 3, IMAGE_SIZE, IMAGE_SIZE, device=job.device, dtype=job.input_dtype)
    labels = torch.zeros(count, dtype=torch.int64, device=job.device)
    return images.contiguous(memory_format=job.memory_format), labels


@contextmanager
def _stop_on_sigterm():
    """Turn the first SIGTERM into StopRequested; outside the main thread signals stay as they are."""

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise StopRequested(signal.Signals(number).name)

    try:
        previous = signal.signal(signal.SIGTERM, stop)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _report(
    job: Job,
    folder: Path,
    profiler: profiling.TorchProfile | None,
    store: Store | None,
    clock: StepClock,
    compile_ns: int | None,
    stop_reason: str | None,
) -> Result:
    peak_bytes = report.peak_memory_bytes(job.device)
    records = report.step_records(clock.outcomes, clock.durations_ns, job)
    summary = report.summarise(records, job, compile_ns, peak_bytes)
    metrics = report.write_metrics(folder, job.launch.tag, _records(job, records, summary, clock, stop_reason))
    files = [metrics, *(profiler.files if profiler else [])]
    result = Result(folder, records, [summary], files, notes=job.notes, stop_reason=stop_reason)
    if stop_reason is None:
        # A cancelled rank must not wait for the others: they may be gone already.
        result.summaries = _gather(summary, job.launch, store)
        _after_training(job, result)
    result.text = report.render(result.summaries, job, files, stop_reason)
    return result


def _records(
    job: Job,
    records: Sequence[report.StepRecord],
    summary: report.Summary,
    clock: StepClock,
    stop_reason: str | None,
) -> list[dict[str, Any]]:
    last = {"record": "summary", **asdict(summary), "window_ns": clock.window_ns(), "stopped_by": stop_reason}
    return [report.run_record(job), *({"record": "step", **asdict(record)} for record in records), last]


def _gather(summary: report.Summary, launch: Launch, store: Store | None) -> list[report.Summary]:
    """All ranks' summaries on rank 0, through the store: no device, no collective."""
    if store is None or launch.world_size == 1:
        return [summary]
    if launch.rank != 0:
        store.set(f"summary/{launch.rank}", json.dumps(asdict(summary)))
        return [summary]
    others = [json.loads(store.get(f"summary/{rank}")) for rank in range(1, launch.world_size)]
    return [summary, *(report.Summary(**other) for other in others)]


def _after_training(job: Job, result: Result) -> None:
    """Validation and the correctness gate, whose findings go to the end of the metrics file."""
    if job.config.validate:
        result.checks.append(accuracy(job))
    if job.config.check_gradients:
        result.checks.append(check_gradients(job))
    report.append_checks(result.files[0], result.checks)

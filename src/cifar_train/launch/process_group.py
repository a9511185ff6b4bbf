"""Which of the visible devices belongs to this rank, how the ranks of a job meet, and how they
part.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed import Store

from cifar_train.launch.failure_watch import FailureWatch
from cifar_train.launch.meeting import Deadline, first_line, job_store
from cifar_train.launch.ranks import Launch, LostRankError
from tidyprof.errors import UserError

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""Longest wait inside one collective; the first steps may compile kernels for minutes."""

LEAST_START_SECONDS = 10.0
"""Time that ranks have at least to connect to each other, even if they met at the last moment."""

BACKENDS = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}
"""Kind of device -> collective library; on ROCm torch's "nccl" is RCCL, and its "cuda" is HIP."""


class ProcessGroup:
    """The ranks of one job: they meet, watch each other, and leave together. Without a launcher
    nothing happens.

    A rank that fails within the block tells the others; a rank that loses another one raises
    LostRankError. Raises UserError if the ranks cannot meet.
    """

    def __init__(self, launch: Launch, device: torch.device, timeout_seconds: int) -> None:
        self._launch = launch
        self._watch: FailureWatch | None = None
        self.joined = launch.launcher is not None
        if not self.joined:
            return
        deadline = Deadline(timeout_seconds)
        self._store, connection = job_store(launch, deadline)
        if launch.world_size == 1:
            _start_collectives(launch, device, self._store)
            return
        self._watch = FailureWatch(
            self._store, connection, launch.rank, launch.world_size, timeout_seconds
        )
        with self._watch.starting(Deadline(max(deadline.left, LEAST_START_SECONDS))):
            try:
                _start_collectives(launch, device, self._store)
            except UserError as error:
                # If another rank failed first, that is the cause; the watch then ends this process.
                self._watch.wait_for_verdict()
                self._watch.report(str(error))
                raise

    def agree(self, key: str, decide: Callable[[], str]) -> str:
        """What rank 0 decides, known to every rank. key -- name of the decision in the store."""
        if self._watch is None:
            return decide()
        if self._launch.rank == 0:
            self._store.set(key, decide())
        return self._store.get(key).decode()

    def gather(self, key: str, value: str) -> list[str]:
        """The values of all ranks on rank 0, on every other rank only its own. They go through the
        store, without a device or a collective.
        """
        others = range(1, self._launch.world_size) if self._watch and self._launch.rank == 0 else ()
        if self._watch and self._launch.rank != 0:
            self._store.set(f"{key}/{self._launch.rank}", value)
        return [value, *(self._store.get(f"{key}/{rank}").decode() for rank in others)]

    def abandon(self) -> None:
        """Part from the others, since this rank was told to stop: it waits for none of them, and
        their end does not cut its files short.
        """
        self.joined = False
        if self._watch:
            self._watch.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not self.joined:
            return
        if error is None:
            if self._watch:
                # The store ends with rank 0, so no rank leaves before all are done. The watch would
                # take a rank that leaves for a lost one.
                self._watch.stop()
                dist.barrier()
            dist.destroy_process_group()
        elif self._watch and _is_lost_rank(error):
            self._watch.wait_for_verdict()
            raise LostRankError(
                f"rank {self._launch.rank} stops because another rank is gone; its own message"
                " tells why"
            ) from error
        elif self._watch:
            self._watch.report(str(error))


def _is_lost_rank(error: BaseException) -> bool:
    broken = any(word in str(error).lower() for word in ("gloo", "connection", "nccl"))
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and broken)


def connect(launch: Launch, device: torch.device, timeout_seconds: int) -> None:
    """Meet the other ranks and start collectives, without watching for failures; without a launcher
    nothing happens.

    Waits at most `timeout_seconds` for the others, then raises UserError with the variables to
    check.
    """
    if launch.launcher is not None:
        store, _ = job_store(launch, Deadline(timeout_seconds))
        _start_collectives(launch, device, store)


def _start_collectives(launch: Launch, device: torch.device, store: Store) -> None:
    try:
        dist.init_process_group(
            BACKENDS[device.type],
            store=dist.PrefixStore("ranks", store),
            rank=launch.rank,
            world_size=launch.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"rank {launch.rank} of {launch.world_size} has met the other ranks, but could not"
            f" connect to them ({first_line(error)}); another rank's message may tell why, or else"
            " let NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME name a network that all hosts share"
        ) from error


def pick_device(wanted: str, launch: Launch) -> torch.device:
    """The torch device of this rank.

    If only one device is visible it is that one, since Slurm may show each task its own GPU as
    number 0; else it is the one with the local rank's number. Raises UserError for a device that
    torch does not see.
    """
    kind = _available_kind() if wanted == "auto" else wanted
    if kind == "cpu":
        return torch.device("cpu")
    count = (
        getattr(torch, kind).device_count()
        if hasattr(torch, kind) and getattr(torch, kind).is_available()
        else 0
    )
    if count == 0:
        raise UserError(
            f"--device {kind}: torch {torch.__version__} sees no such device; --device cpu always"
            " works"
        )
    return torch.device(kind, ordinal(count, launch))


def ordinal(device_count: int, launch: Launch) -> int:
    """Number of the visible device that belongs to this rank. Raises UserError if there are too
    few.
    """
    if device_count == 1:
        return 0
    if launch.local_rank >= device_count:
        raise UserError(
            f"local rank {launch.local_rank} has no device: only {device_count} are visible; start"
            f" at most {device_count} processes a node, or check ROCR_VISIBLE_DEVICES and"
            " HIP_VISIBLE_DEVICES"
        )
    return launch.local_rank


def _available_kind() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "xpu"
    return "cpu"

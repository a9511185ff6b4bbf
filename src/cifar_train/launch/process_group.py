"""How the ranks of a job meet, and how they part."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed import Store
from torch.distributed.rendezvous import rendezvous

from cifar_train.errors import LostRankError, UserError
from cifar_train.launch.failure_watch import FailureWatch
from cifar_train.launch.ranks import Launch

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""Longest wait inside one collective; the first steps may compile kernels for minutes."""

BACKENDS = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}
"""Collective library by device; on ROCm torch's "nccl" is RCCL and its "cuda" is HIP."""


class ProcessGroup:
    """The ranks of one job: they meet, watch each other, and leave in order; nothing happens without a launcher.

    A rank that fails inside tells the others, and one that loses another raises LostRankError.
    """

    def __init__(self, launch: Launch, device: torch.device, timeout_seconds: int) -> None:
        self._launch = launch
        self._store = connect(launch, device, timeout_seconds)
        self.joined = self._store is not None
        several = self.joined and launch.world_size > 1
        self._watch = FailureWatch(self._store, launch.rank, launch.world_size, timeout_seconds) if several else None

    def agree(self, key: str, value: str) -> str:
        """Rank 0's value, on every rank."""
        if self._watch is None:
            return value
        if self._launch.rank == 0:
            self._store.set(key, value)
        return self._store.get(key).decode()

    def gather(self, key: str, value: str) -> list[str]:
        """All ranks' values on rank 0, its own alone on the others; through the store, without device or collective."""
        others = range(1, self._launch.world_size) if self._watch and self._launch.rank == 0 else ()
        if self._watch and self._launch.rank != 0:
            self._store.set(f"{key}/{self._launch.rank}", value)
        return [value, *(self._store.get(f"{key}/{rank}").decode() for rank in others)]

    def abandon(self) -> None:
        """This rank was told to stop: wait for nobody, and let nobody else's end cut its files short."""
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
    broken = any(word in str(error).lower() for word in ("gloo", "connection", "nccl"))
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and broken)


def connect(launch: Launch, device: torch.device, timeout_seconds: int) -> Store | None:
    """Meet the other ranks and start the process group; None for a plain single process.

    Waits at most `timeout_seconds` for the others, then raises UserError with the
    variables to check.
    """
    if launch.launcher is None:
        return None
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = launch.address or "127.0.0.1", str(launch.port or 0)
    try:
        store = dist.HashStore() if launch.world_size == 1 else _meet(launch, timeout_seconds)
        dist.init_process_group(
            BACKENDS[device.type],
            store=dist.PrefixStore("ranks", store),
            rank=launch.rank,
            world_size=launch.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
    except (RuntimeError, ValueError, ConnectionError) as error:
        raise UserError(
            f"rank {launch.rank} of {launch.world_size} could not meet the other ranks at {launch.meeting_point} "
            f"within {timeout_seconds} s ({_first_line(error)}); check that {launch.world_size} processes were "
            "started, that MASTER_ADDR names the host of rank 0, and that nobody else uses MASTER_PORT"
        ) from error
    return store


def _meet(launch: Launch, timeout_seconds: int) -> Store:
    """The job's store, shared by all ranks.

    Name and port are tried with plain sockets first, since torch's own attempts fill the
    log with C++ frames; and the handshake runs in a thread of its own, since it waits
    without limit for a server that is not torch's.
    """
    _check_name(launch)
    if launch.rank != 0:
        _await_listener(launch, timeout_seconds)
    outcome: list[Store | Exception] = []

    def shake_hands() -> None:
        try:
            limit = timedelta(seconds=timeout_seconds)
            outcome.append(next(rendezvous("env://", launch.rank, launch.world_size, timeout=limit))[0])
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=shake_hands, daemon=True)
    thread.start()
    # torch's own limit comes first where it works; the margin covers its retry.
    thread.join(2 * timeout_seconds + 5)
    if not outcome:
        raise ConnectionError("something that is not a rank of this job answers there")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _check_name(launch: Launch) -> None:
    try:
        socket.getaddrinfo(launch.address, launch.port)
    except socket.gaierror as error:
        raise UserError(
            f"MASTER_ADDR={launch.address} is not the name of a host that this one knows ({error.strerror}); "
            "set it to the host of rank 0"
        ) from error


def _await_listener(launch: Launch, timeout_seconds: int) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            with socket.create_connection((launch.address, launch.port), timeout=timeout_seconds):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(f"nobody listens there: {error.strerror or error}") from error
        time.sleep(0.2)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]

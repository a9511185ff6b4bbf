"""How the ranks of a job find each other, and what each of them is told when they do not.

Every rank says in the store of rank 0 that it is there, and how many ranks it was told of. Rank 0
judges whether all are there, or what is wrong. So no rank goes on to torch's own initialisation,
which would wait for a rank that never comes, and all ranks end with the same finding. Ranks that
leave early say so in the store, too. Rank 0, whose end takes the store away, waits for that.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist
from torch.distributed import Store
from torch.distributed.rendezvous import rendezvous

from cifar_train.launch.ranks import Launch
from tidyprof.errors import UserError

ARRIVALS, VERDICT = "meeting/arrivals", "meeting/verdict"
"""Keys of the store: how many entries there are (their own keys end with their number), and the
verdict of rank 0 on them.
"""

PROBLEMS = {kind.__name__: kind for kind in (UserError, ConnectionError)}
"""Kinds of a bad verdict: ranks were told different things (UserError), or some of them stay away
(ConnectionError).
"""

ADVICE = (
    "start all ranks with one command of your launcher, or give them the same WORLD_SIZE and each"
    " its own RANK"
)

NAMED = 8
"""How many missing ranks a message names."""

T = TypeVar("T")


class Deadline:
    """A point in time, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, but never less than one, so that what has come can still be read."""
        return max(1.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether that time has come."""
        return time.monotonic() > self._end


def job_store(launch: Launch, deadline: Deadline) -> tuple[Store, Store]:
    """Two connections to the store that all ranks of the job share, once all of them are there.

    Waits for the ranks until the deadline. Raises UserError if they do not come, or do not agree:
    on every rank for the same reason.
    """
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = (
        launch.address or "127.0.0.1",
        str(launch.port or 0),
    )
    if launch.world_size == 1:
        store = dist.HashStore()
        return store, store
    try:
        return _meet(launch, deadline)
    except (RuntimeError, ValueError, ConnectionError) as error:
        raise UserError(
            f"rank {launch.rank} of {launch.world_size} could not meet the other ranks at"
            f" {launch.meeting_point} within {deadline.seconds:.0f} s ({first_line(error)}); check"
            f" that {launch.world_size} processes were started, that MASTER_ADDR names the host of"
            " rank 0, and that nobody else uses MASTER_PORT"
        ) from error


def first_line(error: Exception) -> str:
    """What an error of a library says, without the C++ frames that follow."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def _meet(launch: Launch, deadline: Deadline) -> tuple[Store, Store]:
    """Meet the other ranks. Name and port are first tried with plain sockets, which say more about
    them than torch does.
    """
    _check_name(launch)
    if launch.rank != 0:
        _await_listener(launch, deadline)
    # Half of the time, so that torch, where it can, gives up before `_within` does: a thread that
    # returns while Python ends aborts the process.
    limit = timedelta(seconds=deadline.left / 2)
    with _without_frames():
        store, second = _within(
            deadline.left,
            "something that is not a rank of this job answers there",
            lambda: _connections(launch.rank, limit),
        )
    patience = deadline.left + 2 * PARTING_SECONDS
    try:
        _within(
            patience, "rank 0 is there but does not answer", lambda: agree(store, launch, deadline)
        )
    except RuntimeError as error:
        raise ConnectionError(f"the connection to rank 0 broke: {first_line(error)}") from error
    store.set_timeout(timedelta(seconds=deadline.seconds))
    return store, second


def _connections(rank: int, limit: timedelta) -> tuple[Store, Store]:
    # As if for one rank, since torch would wait for as many as it is told of, and not say who came.
    store = next(rendezvous("env://", rank, 1, timeout=limit))[0]
    # The second connection is made now: later rank 0 may be gone, and torch would try on and on.
    return store, store.clone()


@contextmanager
def _without_frames() -> Iterator[None]:
    """Drop what C++ writes to standard error: 15 lines of frames for each try to connect, which
    would hide our one line.
    """
    saved = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _within(seconds: float, otherwise: str, work: Callable[[], T]) -> T:
    """What `work` returns or raises; if it takes longer, a ConnectionError that says `otherwise`.

    It runs in a thread of its own, since torch waits for a silent server without a limit, and
    without heeding Ctrl-C.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise ConnectionError(otherwise)
    return results[0]


def _check_name(launch: Launch) -> None:
    try:
        socket.getaddrinfo(launch.address, launch.port)
    except socket.gaierror as error:
        raise UserError(
            f"MASTER_ADDR={launch.address} is not the name of a host that this one knows"
            f" ({error.strerror}); set it to the host of rank 0"
        ) from error


def _await_listener(launch: Launch, deadline: Deadline) -> None:
    while True:
        try:
            with socket.create_connection((launch.address, launch.port), timeout=deadline.left):
                return
        except OSError as error:
            if deadline.over:
                raise ConnectionError(f"nobody listens there: {error.strerror or error}") from error
        time.sleep(0.2)


def agree(store: Store, launch: Launch, deadline: Deadline) -> None:
    """Return once all ranks are there and were told the same.

    Raises UserError or ConnectionError, on all ranks that are there, for what is wrong.
    """
    if launch.rank == 0:
        _judge(store, launch, deadline)
        return
    number = _enter(store, launch)
    try:
        store.wait([VERDICT], timedelta(seconds=deadline.left))
    except dist.DistStoreError:
        _enter(store, launch, gone=True)
        say_farewell(store, launch.rank)
        raise ConnectionError("rank 0 is there, but still waits for others") from None
    verdict = json.loads(store.get(VERDICT))
    if verdict["problem"]:
        say_farewell(store, launch.rank)
        raise PROBLEMS[verdict["kind"]](verdict["problem"])
    if number > verdict["entries"]:
        raise UserError(
            f"rank {launch.rank} of {launch.world_size} came to {launch.meeting_point} after all"
            f" the others; rank 0 was told of {verdict['world_size']} ranks; {ADVICE}"
        )


def _enter(store: Store, launch: Launch, gone: bool = False) -> int:
    """Leave an entry for rank 0; returns the entry's number, from 1."""
    number = store.add(ARRIVALS, 1)
    store.set(
        f"{ARRIVALS}/{number}",
        json.dumps({"rank": launch.rank, "told": launch.world_size, "gone": gone}),
    )
    return number


def _judge(store: Store, launch: Launch, deadline: Deadline) -> None:
    """Rank 0's part: read entries until all ranks are there, and tell all of them. Raises UserError
    or ConnectionError for what is wrong.
    """
    there = {0}
    verdict = {"problem": "", "world_size": launch.world_size}
    try:
        verdict["entries"] = _count(store, launch, deadline, there)
    except (UserError, ConnectionError) as error:
        store.set(
            VERDICT, json.dumps(verdict | {"problem": str(error), "kind": type(error).__name__})
        )
        # The store ends with this process.
        wait_for_farewells(store, there - {0})
        raise
    store.set(VERDICT, json.dumps(verdict))


def _count(store: Store, launch: Launch, deadline: Deadline, there: set[int]) -> int:
    """Add ranks to `there` as they come, until it has all of them; returns how many entries that
    took. Raises UserError or ConnectionError for what is wrong.
    """
    number = 0
    while len(there) < launch.world_size:
        number += 1
        key = f"{ARRIVALS}/{number}"
        try:
            store.wait([key], timedelta(seconds=deadline.left))
        except dist.DistStoreError:
            raise ConnectionError(_who_is_missing(there, launch.world_size)) from None
        entry = json.loads(store.get(key))
        rank, told = entry["rank"], entry["told"]
        if entry["gone"]:
            raise ConnectionError(
                f"{_who_is_missing(there, launch.world_size)}, and rank {rank} waits no longer"
            )
        again = rank in there
        there.add(rank)
        if told != launch.world_size:
            raise UserError(
                f"the ranks at {launch.meeting_point} were told different world sizes: rank 0 of"
                f" {launch.world_size} ranks, rank {rank} of {told}; {ADVICE}"
            )
        if again:
            raise UserError(
                f"two processes came to {launch.meeting_point} as rank {rank}; {ADVICE}"
            )
    return number


def _who_is_missing(there: set[int], world_size: int) -> str:
    missing = world_size - len(there)
    some = list(islice((str(rank) for rank in count() if rank not in there), min(missing, NAMED)))
    more = f" and {missing - NAMED} more" if missing > NAMED else ""
    return (
        f"{len(there)} of {world_size} ranks came; not there: rank{'s' * (missing > 1)}"
        f" {', '.join(some)}{more}"
    )


PARTING_SECONDS = 10.0
"""Longest wait for the farewells of others: they only have to read the reason, and a rank that was
killed says no farewell.
"""


def say_farewell(store: Store, rank: int) -> None:
    """Say that this rank knows why the job ends, and no longer needs the store."""
    with suppress(RuntimeError):  # rank 0, which has it, may be gone
        store.set(_key(rank), "")


def wait_for_farewells(store: Store, ranks: Iterable[int]) -> None:
    """Return once all of these ranks have said farewell, or after PARTING_SECONDS."""
    with suppress(RuntimeError):
        store.wait([_key(rank) for rank in ranks], timedelta(seconds=PARTING_SECONDS))


def _key(rank: int) -> str:
    return f"farewell/{rank}"

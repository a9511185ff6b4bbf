"""One rank's failure ends the whole job, with its message, instead of a hang.

Collectives alone do not do that: on a GPU a collective waits for a dead rank until its own long
time-out is over. So every rank keeps a second connection to the job's store. There a failing rank
leaves its message, and every living rank shows a heartbeat.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from torch.distributed import Store

from cifar_train.launch.meeting import Deadline, say_farewell, wait_for_farewells
from tidyprof.standard_streams import tell

POLL_SECONDS = 1.0
"""How often a rank shows its heartbeat and looks at the store; a choice."""

FAILURE_KEY = "failure"

DEAD_AFTER_SECONDS = 5 * POLL_SECONDS
"""If a heartbeat has stood still for this long when the time for the start runs out, its rank is
the missing one.
"""


class FailureWatch:
    """A daemon thread that ends this process once another rank has failed or fallen silent.

    Only the watch uses `connection`, the second connection to the job's store; `store` is the first
    one. `silence_seconds` is how long the heartbeat of the next rank may stand still.
    """

    def __init__(
        self, store: Store, connection: Store, rank: int, world_size: int, silence_seconds: float
    ) -> None:
        self._store = store
        self._connection = connection
        self._rank = rank
        self._others = set(range(world_size)) - {rank}
        self._neighbour = (rank + 1) % world_size
        self._silence_seconds = silence_seconds
        self._start: Deadline | None = None
        self._stopped = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="failure-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def starting(self, limit: Deadline) -> Iterator[None]:
        """End this process if the block, which may wait for lost ranks, takes longer than the
        limit.
        """
        # A timer of its own, since the watch itself waits for the store if the host of rank 0 is
        # gone.
        timer = threading.Timer(limit.left, self._give_up_start, [limit.seconds])
        timer.daemon = True
        self._start = limit
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._start = None

    def report(self, message: str) -> None:
        """Tell the other ranks why this one fails, and leave them time to read it."""
        self.stop()
        self._tell(self._store, f"rank {self._rank} failed: {message}", self._others)

    def stop(self) -> None:
        """Stop watching: the run is over, and ranks may leave at different times."""
        self._stopped.set()

    def wait_for_verdict(self) -> None:
        """Give the watch time, after a collective broke, to end this process with the cause."""
        if not self._stopped.is_set() and self._leaving.wait(2.5 * POLL_SECONDS):
            self._thread.join()

    def _watch(self) -> None:
        # Each rank watches only the next one, so the store has little to do even for many ranks.
        last_beat, last_change = "", time.monotonic()
        while not self._stopped.wait(POLL_SECONDS):
            try:
                self._connection.set(f"beat/{self._rank}", str(time.monotonic_ns()))
                if self._connection.check([FAILURE_KEY]):
                    self._leave(self._connection.get(FAILURE_KEY).decode(), self._follow)
                beat = self._neighbour_beat()
            except RuntimeError:
                self._leave("rank 0 is gone: the connection to it broke")
                return
            silence = time.monotonic() - last_change
            if beat != last_beat:
                last_beat, last_change = beat, time.monotonic()
            elif silence > self._patience():
                reason = (
                    f"rank {self._neighbour} gave no sign of life for {silence:.0f} s; its log may"
                    " tell why"
                )
                self._leave(
                    reason,
                    partial(self._tell, self._connection, reason, self._others - {self._neighbour}),
                )

    def _patience(self) -> float:
        """How many seconds the next rank may be silent: fewer if the start must be over soon."""
        start = self._start
        urgent = start is not None and start.left < 2.5 * POLL_SECONDS
        return min(self._silence_seconds, DEAD_AFTER_SECONDS) if urgent else self._silence_seconds

    def _neighbour_beat(self) -> str:
        key = f"beat/{self._neighbour}"
        return self._connection.get(key).decode() if self._connection.check([key]) else ""

    def _give_up_start(self, seconds: float) -> None:
        reason = (
            f"the ranks have met, but could not connect to each other within {seconds:.0f} s;"
            " unless one was killed, let NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME name a network"
            " that all hosts share"
        )
        # The store ends with rank 0, so that rank tells the others. Any other rank can just leave.
        tell = partial(self._tell, self._connection, reason, self._others)
        self._leave(reason, tell if self._rank == 0 else None)

    def _tell(self, store: Store, reason: str, others: Iterable[int]) -> None:
        with suppress(
            RuntimeError
        ):  # the store went down with rank 0, whose own message is already out
            store.set(FAILURE_KEY, reason)
            say_farewell(store, self._rank)
            wait_for_farewells(store, others)

    def _follow(self) -> None:
        """Leave after another rank has said why the job ends."""
        say_farewell(self._connection, self._rank)
        if self._rank == 0:  # the store ends with this process
            wait_for_farewells(self._connection, self._others)

    def _leave(self, reason: str, last_act: Callable[[], None] | None = None) -> None:
        if self._stopped.is_set() or self._leaving.is_set():
            return
        self._leaving.set()
        tell(f"cifar_train: rank {self._rank} stops because {reason}")
        if last_act:
            last_act()
        # The main thread may be in a collective that never returns: only a hard exit ends it.
        os._exit(1)

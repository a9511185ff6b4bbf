"""One rank's failure ends the whole job, with its message, instead of a hang.

Collectives alone do not do that: a GPU collective waits for a dead rank until its
own long time-out. So every rank keeps a second connection to the job's store, where
a failing rank leaves its message and every living rank shows a heartbeat.
"""

from __future__ import annotations

import os
import threading
import time

from torch.distributed import Store

from cifar_train.console import complain

POLL_SECONDS = 1.0
FAILURE_KEY = "failure"


class FailureWatch:
    """A daemon thread that ends this process once another rank has failed or fallen silent.

    `silence_seconds` is how long the next rank's heartbeat may stand still.
    """

    def __init__(self, store: Store, rank: int, world_size: int, silence_seconds: float) -> None:
        self._store = store
        self._connection = store.clone()
        self._rank = rank
        self._neighbour = (rank + 1) % world_size
        self._silence_seconds = silence_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="failure-watch", daemon=True)
        self._thread.start()

    def report(self, message: str) -> None:
        """Tell the other ranks why this one fails, and leave them time to read it."""
        self.stop()
        try:
            self._store.set(FAILURE_KEY, f"rank {self._rank} failed: {message}")
            time.sleep(2.5 * POLL_SECONDS)
        except RuntimeError:
            # The store went down with rank 0, whose own message is already out.
            return

    def stop(self) -> None:
        """Stop watching: the run is over and ranks may leave at different times."""
        self._stopped.set()

    def wait_for_verdict(self) -> None:
        """After a broken collective: give the watch time to end this process with the cause."""
        if not self._stopped.is_set():
            time.sleep(2.5 * POLL_SECONDS)

    def _watch(self) -> None:
        last_beat, last_change = "", time.monotonic()
        while not self._stopped.wait(POLL_SECONDS):
            try:
                self._connection.set(f"beat/{self._rank}", str(time.monotonic_ns()))
                if self._connection.check([FAILURE_KEY]):
                    self._leave(self._connection.get(FAILURE_KEY).decode())
                beat = self._neighbour_beat()
            except RuntimeError:
                self._leave("rank 0 is gone: the connection to it broke")
                return
            if beat != last_beat:
                last_beat, last_change = beat, time.monotonic()
            elif time.monotonic() - last_change > self._silence_seconds:
                self._leave(f"rank {self._neighbour} gave no sign of life for {self._silence_seconds:.0f} s")

    def _neighbour_beat(self) -> str:
        key = f"beat/{self._neighbour}"
        return self._connection.get(key).decode() if self._connection.check([key]) else ""

    def _leave(self, reason: str) -> None:
        if not self._stopped.is_set():
            complain(f"rank {self._rank} stops because {reason}")
            # The main thread may sit in a collective that never returns: only a hard exit frees it.
            os._exit(1)

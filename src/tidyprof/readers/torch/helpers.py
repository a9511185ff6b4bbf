"""Further processes that decode parts of a large trace while this one decodes others.

Only one thread of a process makes Python objects at a time, so threads would not help. The processes are plain
commands: those of multiprocessing would run the user's script once more up to its `if __name__ == "__main__":`.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import parent_process
from queue import Queue
from threading import Thread
from typing import Any

from tidyprof.readers.torch.events import EventColumns

HEAD = struct.Struct("<QQ")
"""What precedes each part of the text on its way to a helper: its number and its bytes."""

MOST_HELPERS = 4
"""With more of them, unpacking and dividing the text would be what all wait for."""

BYTES_PER_HELPER = 96 * 2**20
"""Least text to come that makes up for starting another process, which takes as long as decoding this much."""

BYTES_BEFORE_HELPERS = 2**25
"""Text that is read before it is decided whether there will be helpers: a small file has none."""

_WAITING_PARTS = 2
_PIPE_BYTES = 2**20
_PROGRAM = """
import sys
sys.path[:] = sys.argv[2:]
from tidyprof.readers.torch.helper_process import serve
serve(python_functions=sys.argv[1] == "1")
"""


class HelperError(Exception):
    """A helper could not decode its part, or ended early: the trace has to be read without helpers."""


class Helpers:
    """Processes that share the decoding of one file; none at first."""

    def __init__(self, python_functions: bool) -> None:
        self._python_functions = python_functions
        self._helpers: list[_Helper] = []

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._helpers:
            helper.close()

    def __len__(self) -> int:
        return len(self._helpers)

    def start(self, bytes_to_come: int) -> None:
        """Start as many processes as are worth it for this much text."""
        for _ in range(min(_spare_processors(), MOST_HELPERS, bytes_to_come // BYTES_PER_HELPER)):
            try:
                self._helpers.append(_Helper(self._python_functions))
            except OSError:
                # No more processes are allowed: those at hand have to do.
                return

    def take(self, number: int, text: bytes) -> bool:
        """Give a part, a JSON list of events, to a helper with room for it; False if there is none."""
        return any(helper.take(number, text) for helper in self._helpers)

    def collected(self) -> Iterator[EventColumns]:
        """What each helper made of its parts. Raises HelperError."""
        for helper in self._helpers:
            helper.finish()
        for helper in self._helpers:
            yield helper.result()


class SharedDecoder:
    """Makes a list of events of the bytes of a JSON list, or an empty one where a helper took them.

    number  -- of the part that was decoded or taken last, from 1.
    helpers -- those who may take parts; None if nobody may.
    """

    def __init__(self, decode: Callable[[bytes], list[Any]], helpers: Helpers | None) -> None:
        self.number = 0
        self._decode = decode
        self._helpers = helpers
        self._asked = helpers is None
        self._bytes = 0

    def __call__(self, text: bytes) -> list[Any]:
        """The events in a part."""
        self.number += 1
        self._bytes += len(text)
        if self._helpers and self._helpers.take(self.number, text):
            return []
        return self._decode(text)

    def ask_for_help(self, stored: int, consumed: int) -> None:
        """Start helpers, once enough is read to tell how much there is to come, of a file's bytes as stored."""
        if not self._asked and self._bytes >= BYTES_BEFORE_HELPERS:
            self._asked = True
            self._helpers.start(self._bytes * (stored - consumed) // consumed)


class _Helper:
    def __init__(self, python_functions: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(int(python_functions)), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the program that reads; the helper ends with its pipe.
            pipesize=_PIPE_BYTES,
        )
        self._parts: Queue[tuple[int, bytes] | None] = Queue(_WAITING_PARTS)
        self._writer = Thread(target=self._write, daemon=True)
        self._writer.start()

    def take(self, number: int, text: bytes) -> bool:
        """Accept a part unless enough others wait."""
        if self._parts.full():
            return False
        self._parts.put((number, text))
        return True

    def finish(self) -> None:
        """Say that no more parts follow."""
        self._parts.put(None)

    def result(self) -> EventColumns:
        """What the process has collected. Raises HelperError where it failed."""
        try:
            collected = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError) as error:
            raise HelperError from error
        if collected is None:
            raise HelperError
        return collected

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._parts.put(None)
        self._writer.join()
        self._process.stdout.close()
        self._process.wait()

    def _write(self) -> None:
        pipe = self._process.stdin
        while part := self._parts.get():
            number, text = part
            # Where the process has ended, which `result` reports, the parts that still come must not pile up.
            with suppress(OSError):
                pipe.write(HEAD.pack(number, len(text)))
                pipe.write(text)
        with suppress(OSError):
            pipe.close()


def _spare_processors() -> int:
    """Processors that this process may use besides the one that it runs on; 0 in a worker of somebody's pool."""
    if parent_process() is not None or not sys.executable:
        return 0
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return allowed - 1

"""Watch processor, memory and GPUs while something runs: `with proflab.sampler("runs/01") as log: ...`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import warnings
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from proflab.errors import CourseError

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FILE = "system.csv"
"""Name of the log in a folder; notes on it go to the same name with `.notes.json`."""

LIMITS_S = (0.01, 3600.0)
"""Shortest and longest interval: below 10 ms Linux's clock of processor time hardly moves between two samples."""

START_S, STOP_S = 60, 10
"""Seconds to wait for the sampler's process: GPU libraries can take long to find many GPUs."""


def sampler(target: str | PathLike[str], every_s: float = 0.1) -> SystemLog:
    """Sample the machine every `every_s` seconds while the `with` block runs, into a folder or a .csv file.

    The file has the columns time_ns, device, name, value, unit and can be read with `tidyprof.read`, also while it
    is being written and after a run that was killed. Processor and memory are sampled of the whole machine and of
    this process with all its children; GPUs through amdsmi, rocm-smi's library or NVML, whichever sees one first.
    Where there is no GPU, `log.meta["no_gpu"]` says why, and there are no rows for one.

    Raises CourseError for a target or interval that can't be, and where nothing can be sampled.
    """
    if not isinstance(every_s, int | float) or not math.isfinite(every_s) or not LIMITS_S[0] <= every_s <= LIMITS_S[1]:
        raise CourseError(f"every_s must be {LIMITS_S[0]} to {LIMITS_S[1]:.0f} seconds, not {every_s!r}")
    path = Path(target)
    if path.suffix.lower() == ".csv" and not path.is_dir():
        return SystemLog(path, every_s)
    if path.suffix and not path.is_dir():
        raise CourseError(f"{path}: the log is a table in CSV; give a folder or a name that ends in .csv")
    return SystemLog(path / FILE, every_s)


class SystemLog:
    """A log that is written by a process of its own, so that it neither waits for this one's Python nor slows it.

    Measured by benchmarks/bench_sampler.py on two cores without a GPU: a sample costs 0.4 to 0.7 ms of processor
    time. Beside Python that never waits, and every 10 ms, a thread missed six moments of ten, the process none.

    path -- the file; meta -- notes on the run: `sources`, `gpus` (how many), `no_gpu` (why there is none),
    `every_s`, `cores`, and after the end `samples`, `skipped`, `failed` and `own_cpu_s`.
    """

    def __init__(self, path: Path, every_s: float) -> None:
        self.path = path
        self.every_s = every_s
        self.meta: dict[str, Any] = {}
        self._child: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    @property
    def notes(self) -> Path:
        """The file with `meta`."""
        return self.path.with_suffix(".notes.json")

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CourseError(f"{self.path.parent}: can't be made ({error.strerror}); give another folder") from None
        command = [sys.executable, "-m", "proflab.sampling.child", self.path, self.notes, self.every_s, os.getpid()]
        self._errors = tempfile.TemporaryFile("w+")
        # A session of its own: Ctrl-C is for the work in the block, not for the sampler.
        self._child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        try:
            answer = self._answer(START_S)
        except BaseException:  # an interrupt while it starts: no block will end that would end it
            self._end()
            raise
        if "began" not in answer:
            self._end()
            raise CourseError(f"the sampler can't start: {answer.get('error', 'its process ended without a word')}")
        self.meta = answer["began"]
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        assert self._child is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended by itself, and its last words tell why
            self._child.stdin.write("stop\n")
            self._child.stdin.flush()
        answer = self._answer(STOP_S)
        self._end()
        if "ended" in answer:
            self.meta = answer["ended"]
        else:
            reason = answer.get("error", "its process was stopped")
            self.meta["stopped_early"] = reason
            warnings.warn(f"{self.path}: the sampler did not reach the end: {reason}", stacklevel=2)

    def profile(self) -> Profile:
        """What has been sampled so far; `meta["sampler"]` holds the notes. Raises ProfileReadError if nothing was."""
        from tidyprof.readers.system.reader import read_system
        from tidyprof.tables.contract import Origin

        day = self.meta["started"][:10]
        origin = Origin("measured", f"sampled on {self.meta['host']} every {self.every_s:g} s, {day}")
        profile = read_system(self.path, origin=origin)
        profile.meta["sampler"] = dict(self.meta)
        if "no_gpu" in self.meta:
            profile.meta["warnings"].append(f"No GPU was sampled: {self.meta['no_gpu']}.")
        return profile

    def _answer(self, patience_s: float) -> dict[str, Any]:
        """The next line of the sampler's process, {} if none comes."""
        assert self._child is not None
        ready, _, _ = select.select([self._child.stdout], [], [], patience_s)
        line = self._child.stdout.readline() if ready else ""
        try:
            return json.loads(line)
        except ValueError:
            return {"error": message} if (message := self._last_error()) else {}

    def _last_error(self) -> str:
        """The last line that the process wrote to its standard error."""
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else ""

    def _end(self) -> None:
        assert self._child is not None
        for stream in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        try:
            self._child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._errors.close()

"""The time of the whole job by part, and its memory over steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

SAMPLES = 512
"""Memory samples to keep. When there are more, every second one goes, and later ones are rarer."""

SAMPLE_NS = 10_000_000
"""The shortest time between two samples, since one costs 6 to 20 µs."""


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM; 0 if Linux doesn't state it."""
    try:
        statm = os.open("/proc/self/statm", os.O_RDONLY)  # half as long as Python's `open`
    except OSError:
        return 0
    try:
        return int(os.read(statm, 256).split()[1]) * PAGE_BYTES
    finally:
        os.close(statm)


class Job:
    """Sums, in ns, of the job's parts since its launch, and samples of its memory.

    startup      -- from the launch to the end of the first step.
    training     -- all steps after that, without what follows.
    validation   -- calls of modules without gradients, and what is between two such calls.
    checkpoints  -- calls of functions that save tensors.
    recording    -- starting and writing the trace of the hooks.
    """

    def __init__(self, launched_ns: int) -> None:
        """launched_ns -- when the command started the program, in ns since 1970."""
        self.launched_ns = launched_ns
        self.memory: dict[str, int] = {}
        """Memory at the last sample, in bytes: resident, and the peak of the GPU's allocator."""
        self.samples: list[list[int]] = []
        """Step, resident memory and the peak of the GPU's allocator, of samples that are kept."""
        self.next_sample = self.next_kept = 0
        self.between = SAMPLE_NS
        self.training = self.validation = self.recording = self.checkpoints = self.startup = 0
        self.steps = self.validated_steps = 0
        self.interval = launched_ns
        """When the step under way began."""
        self.spent = 0
        """Time in this step so far that belongs to no step."""
        self.is_validated = False
        self.since: int | None = None
        """The end of the last thing in this step that isn't training; None within training."""

    def restart(self) -> None:
        """Forget the steps so far, which were none: they belong to the startup."""
        self.startup += self.training
        self.training = self.steps = self.validated_steps = 0

    def end_step(self) -> None:
        """Note the end of a step."""
        now = time.time_ns()
        length = now - self.interval - self.spent
        if self.steps:
            self.training += length
        else:
            self.startup += length
        self.validated_steps += self.is_validated and self.steps > 0
        self.steps += 1
        self.interval = self.since = now
        self.spent, self.is_validated = 0, False

    def begin_training(self) -> None:
        """Note that a module is called with gradients."""
        self.since = None

    def end_validation(self, began_ns: int) -> None:
        """Note the end of a module's call without gradients."""
        now = time.time_ns()
        length = now - (began_ns if self.since is None else self.since)
        self.validation += length
        self.spent += length
        self.since, self.is_validated = now, True

    def note(self, part: str, began_ns: int) -> None:
        """Count the time since `began_ns` to `checkpoints` or `recording`."""
        now = time.time_ns()
        setattr(self, part, getattr(self, part) + now - began_ns)
        self.spent += now - began_ns
        if self.since is not None:
            self.since = now

    def sample(self, gpu_peak_bytes: Callable[[], int | None]) -> None:
        """Add a sample of the memory if one is due."""
        now = time.time_ns()
        if now < self.next_sample:
            return
        self.next_sample = now + SAMPLE_NS
        peak = gpu_peak_bytes()
        self.memory = {"resident_bytes": resident_bytes()}
        if peak is not None:
            self.memory["gpu_peak_bytes"] = peak
        if now >= self.next_kept:
            self.samples.append([self.steps, *self.memory.values()])
            self.next_kept = now + self.between
        if len(self.samples) > SAMPLES:
            del self.samples[1::2]
            self.between *= 2

    def as_dict(self) -> dict[str, Any]:
        """Return all parts in ns, the number of steps, and the samples.

        If most steps call a module without gradients, such as a teacher, that is training.
        """
        training, validation = self.training, self.validation
        if self.validated_steps > self.steps / 2:
            training, validation = training + validation, 0
        return {
            "startup_ns": self.startup,
            "training_ns": training,
            "validation_ns": validation,
            "checkpoints_ns": self.checkpoints,
            "recording_ns": self.recording,
            "steps": self.steps,
            "memory": self.samples,
        }

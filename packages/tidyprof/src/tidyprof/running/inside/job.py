"""Measure the time in each part of a job."""

from __future__ import annotations

import os
import time
from typing import Any

from tidyprof_inside.whose import is_of_program

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the resident memory of this process, or 0 if Linux doesn't report it."""
    try:
        statm = os.open("/proc/self/statm", os.O_RDONLY)  # takes half the time of `open`
    except OSError as error:  # may be a TimeoutError from a signal handler of the program
        if is_of_program(error):
            raise
        return 0
    try:
        return int(os.read(statm, 256).split()[1]) * PAGE_BYTES
    finally:
        os.close(statm)


class Job:
    """The time in ns that a job spends in each part.

    - startup: the time from the launch to the end of the first step.
    - training: the time in all later steps, excluding the parts below.
    - validation: the time in module calls without gradients, including the time between two such
      calls.
    - checkpoints: the time in functions that save tensors.
    - recording: the time in which the hooks start the profiler and write the trace.
    """

    def __init__(self, launched_ns: int) -> None:
        """Start the clocks. `launched_ns` is the start time of the program in ns since 1970."""
        self.launched_ns = launched_ns
        self.training = self.validation = self.recording = self.checkpoints = self.startup = 0
        self.steps = self.validated_steps = 0
        self.interval = launched_ns
        """The start time of the current step."""
        self.spent = 0
        """The time in the current step that doesn't count as step time."""
        self.is_validated = False
        self.since: int | None = None
        """The end time of the last work in this step except for training, or None during training.
        """

    def restart(self) -> None:
        """Count all previous steps as startup, because they weren't real steps."""
        self.startup += self.training
        self.training = self.steps = self.validated_steps = 0

    def end_step(self) -> None:
        """Record the end of a step."""
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
        """Record the start of a module call with gradients."""
        self.since = None

    def end_validation(self, began_ns: int) -> None:
        """Record the end of a module call without gradients."""
        now = time.time_ns()
        length = now - (began_ns if self.since is None else self.since)
        self.validation += length
        self.spent += length
        self.since, self.is_validated = now, True

    def note(self, part: str, began_ns: int) -> None:
        """Add the time since `began_ns` to the part `checkpoints` or `recording`."""
        now = time.time_ns()
        setattr(self, part, getattr(self, part) + now - began_ns)
        self.spent += now - began_ns
        if self.since is not None:
            self.since = now

    def as_dict(self) -> dict[str, Any]:
        """Return all parts in ns and the number of steps.

        If most steps call a module without gradients, such as a teacher model, these calls count as
        training.
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
        }

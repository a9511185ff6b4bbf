"""Which steps torch.profiler waits for, warms up on and records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidyprof.errors import UserError


@dataclass(frozen=True)
class ProfileSchedule:
    """wait + warmup + active steps, `repeat` times over.

    The default records steps 9, 10 and 11, counted from 0, as AMD's example does, and fits into its
    20 steps. `shrunk` tells whether it was cut to a shorter run.
    """

    wait: int = 8
    warmup: int = 1
    active: int = 3
    repeat: int = 1
    shrunk: bool = False

    @property
    def steps_needed(self) -> int:
        """Number of steps after which the last cycle is recorded in full."""
        return self.repeat * (self.wait + self.warmup + self.active)

    @property
    def arithmetic(self) -> str:
        """The sum behind `steps_needed`, for messages."""
        total = f"wait {self.wait} + warmup {self.warmup} + active {self.active}"
        return f"({total}) x repeat {self.repeat} = {self.steps_needed} steps"

    def phase(self, step: int) -> str:
        """What the profiler does in this step, counted from 0: wait, warmup, active or done."""
        cycle, position = divmod(step, self.wait + self.warmup + self.active)
        if cycle >= self.repeat:
            return "done"
        if position < self.wait:
            return "wait"
        return "warmup" if position < self.wait + self.warmup else "active"

    @classmethod
    def fit(cls, steps: int, asked: Mapping[str, int]) -> ProfileSchedule:
        """The schedule for a run of `steps`.

        What is `asked` for is kept; if nothing is, the default shrinks to a shorter run. Raises
        UserError for a schedule that would never record.
        """
        schedule = cls(**asked)
        if schedule.steps_needed <= steps:
            return schedule
        if asked:
            raise UserError(
                f"the profiler would never record: {schedule.arithmetic}, but the run has only"
                f" {steps}; lower --profile-wait, or give --max-steps {schedule.steps_needed}"
            )
        return cls._shrink(steps)

    @classmethod
    def _shrink(cls, steps: int) -> ProfileSchedule:
        if steps < 2:
            raise UserError(
                "the profiler would never record: warmup 1 + active 1 = 2 steps, "
                f"but the run has only {steps}; give --max-steps 2 or more"
            )
        active = min(cls.active, steps - cls.warmup)
        return cls(wait=steps - cls.warmup - active, active=active, shrunk=True)

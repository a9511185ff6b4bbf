"""Which steps torch.profiler waits for, warms up on and records."""

from __future__ import annotations

from dataclasses import dataclass

from tidyprof.errors import UserError


@dataclass(frozen=True)
class ProfileSchedule:
    """wait + warmup + active steps.

    The default records steps 9, 10 and 11, counted from 0, as AMD's example does, and fits into its
    20 steps.
    """

    wait: int = 8
    warmup: int = 1
    active: int = 3

    def watches(self, step: int) -> bool:
        """Return True if the profiler warms up or records in this step, counted from 0."""
        return self.wait <= step < self.wait + self.warmup + self.active

    @classmethod
    def fit(cls, steps: int) -> ProfileSchedule:
        """Return the default schedule, cut to a run of `steps`.

        Raises UserError for a run that is too short to record.
        """
        if steps < 2:
            raise UserError(
                f"the profiler needs a step to warm up and one to record, but the run has {steps};"
                " give --max-steps 2 or more"
            )
        active = min(cls.active, steps - cls.warmup)
        return cls(min(cls.wait, steps - cls.warmup - active), cls.warmup, active)

"""The schedule of torch.profiler: steps to skip, steps to warm up and steps to record."""

from __future__ import annotations

from dataclasses import dataclass

from tidyprof.errors import UserError


@dataclass(frozen=True)
class ProfileSchedule:
    """A schedule of wait + warmup + active steps.

    Like AMD's example, the default schedule records steps 9, 10 and 11, counted from 0. The
    default schedule fits into the example's 20 steps.
    """

    wait: int = 8
    warmup: int = 1
    active: int = 3

    def watches(self, step: int) -> bool:
        """Return True if the profiler warms up or records during this step, counted from 0."""
        return self.wait <= step < self.wait + self.warmup + self.active

    @classmethod
    def fit(cls, steps: int) -> ProfileSchedule:
        """Return the default schedule, shortened to fit a run of `steps` steps.

        Raises UserError if the run is too short to record.
        """
        if steps < 2:
            raise UserError(
                f"the profiler needs one step to warm up and one step to record, but the run has"
                f" {steps}. Pass --max-steps 2 or more."
            )
        active = min(cls.active, steps - cls.warmup)
        return cls(min(cls.wait, steps - cls.warmup - active), cls.warmup, active)

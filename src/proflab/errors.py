"""Errors that a learner can put right: one line, also in a notebook."""

from __future__ import annotations

from tidyprof.errors import UserError


class CourseError(UserError):
    """A one-line message for the learner; notebooks show that line instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        # IPython asks an exception for this method before it formats a traceback.
        return [f"{type(self).__name__}: {self}"]

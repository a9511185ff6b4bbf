"""Errors that a learner can fix. Notebooks show each error on one line."""

from __future__ import annotations

from tidyprof.errors import UserError


class CourseError(UserError):
    """One-line message for the learner. Notebooks show the message instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        # IPython calls this method instead of formatting a traceback.
        return [f"{type(self).__name__}: {self}"]

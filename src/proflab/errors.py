"""Errors that a learner can fix. Notebooks also show them as one line."""

from __future__ import annotations

from tidyprof.errors import UserError


class CourseError(UserError):
    """A one-line message for the learner. Notebooks show this line instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        # IPython calls this method, if it exists, instead of formatting a traceback.
        return [f"{type(self).__name__}: {self}"]

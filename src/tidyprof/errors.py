"""The one error that readers raise about a file."""

from __future__ import annotations

from os import PathLike


class ProfileReadError(Exception):
    """A profiler file could not be read as what it should be.

    The text is always one line and names the file, what was found in it, the
    likely cause and the next step, so that it can be shown to a user as it is.
    """

    def __init__(self, path: str | PathLike[str], found: str, cause: str, next_step: str) -> None:
        self.path = str(path)
        self.found = found
        self.cause = cause
        self.next_step = next_step
        super().__init__(f"{self.path}: {found}. Likely cause: {cause}. Next step: {next_step}.")

    def __reduce__(self) -> tuple[type[ProfileReadError], tuple[str, str, str, str]]:
        """Pickle the four parts, so that the error crosses a process pool."""
        return ProfileReadError, (self.path, self.found, self.cause, self.next_step)

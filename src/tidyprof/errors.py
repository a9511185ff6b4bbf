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
        super().__init__(one_line(path, found, cause, next_step))

    def __reduce__(self) -> tuple[type[ProfileReadError], tuple[str, str, str, str]]:
        """Pickle the four parts, so that the error crosses a process pool."""
        return type(self), (self.path, self.found, self.cause, self.next_step)


def one_line(path: str | PathLike[str], found: str, cause: str, next_step: str) -> str:
    """The text of an error for users: file, what was found, likely cause and next step, without full stops."""
    return f"{path}: {found}. Likely cause: {cause}. Next step: {next_step}."

"""Errors that end a program with one line and no traceback, including errors about a file."""

from __future__ import annotations

import re
from os import PathLike

from tidyprof.escaping import printable

EMPTY = ("the file is empty", "the run ended before the tool wrote its results", "record again")
MISSING = ("no such file", "the path is wrong, or the profiler wrote nothing", "check the path")
NO_FILE = (
    "it's a pipe, socket or device",
    "the path is wrong, or you passed a command's output instead of a file",
    "write the output to a file and pass the file",
)
NO_MEMORY = (
    "it needs more than the available memory",
    "the trace covers too many steps, or the file was made to exhaust memory",
    "record fewer steps, or read the file on a machine with more memory",
)
NOT_PERMITTED = (
    "you don't have permission to read it",
    "it, its folder or a file in it belongs to another user",
    "ask the owner for a copy",
)
NO_ROWS = (
    "it has a header but no rows",
    "the program was killed before the profiler wrote its results",
    "record again, and let the program end normally",
)
"""Finding, likely cause and next step for faults that occur in files of every format."""

CUT_SHORT = (
    "the file or its copy is incomplete",
    "copy it again, or record again if the program was killed",
)
DAMAGED = (
    "the file is cut off or damaged, or another program changed it",
    "compare its size with the original and copy it again, or record again",
)
TOO_LARGE = (
    "the trace covers too many steps, or the file was made to exhaust memory",
    "record fewer steps, or pass a larger maximum_bytes if you trust the file",
)
"""Likely cause and next step for other faults."""

_EXTRAS = {
    "adbc_driver_sqlite": "rocm",
    "google": "rocm",
    "matplotlib": "plots",
    "perfetto": "rocm",
    "pyarrow": "rocm",
}
"""Package -> extra of tidyprof that installs it."""

SAME = "the same data was read from another file"
OWN = "a separate profile by"
NOTHING = "it contains no records"
FOREIGN = "not a file of this tool, or damaged at the beginning"
SEVERAL_NUMBERS = "several numbers for one label"
"""Reasons why a reader leaves out a file. The name of a format follows `OWN`."""


def missing_extra(module: str | None) -> tuple[str, str, str] | None:
    """Return finding, likely cause and next step if the missing module belongs to an extra of
    tidyprof, otherwise None.
    """
    extra = _EXTRAS.get((module or "").partition(".")[0])
    if extra is None:
        return None
    needed = f"tidyprof[{extra}]"
    return f"needs {needed}", "only the core of tidyprof is installed", f"pip install '{needed}'"


class UserError(Exception):
    """A one-line message about something that the user can fix; exit code 2.

    Text from other sources, such as a server or a file name, may contain control characters for a
    terminal. The message therefore shows such characters as escape sequences.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return (
            text
            if text.isprintable()
            else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        )


def shortened(text: str) -> str:
    """Return the text with the middle of very long words left out, so that it stays on one line."""
    return re.sub(r"(\S{40})\S{40,}(\S{10})", r"\1...\2", text)


class ProfileReadError(Exception):
    """A profiler file that couldn't be read.

    The text is always one line, so it can be shown to a user. It names the file, what was found in
    it, the likely cause and the next step.
    """

    def __init__(self, path: str | PathLike[str], finding: str, cause: str, next_step: str) -> None:
        self.path = str(path)
        self.finding = finding
        self.cause = cause
        self.next_step = next_step
        super().__init__(one_line(path, finding, cause, next_step))

    def __reduce__(self) -> tuple[type[ProfileReadError], tuple[str, str, str, str]]:
        """Return the four parts for pickling, so that the error can cross a process pool."""
        return type(self), (self.path, self.finding, self.cause, self.next_step)


class NothingRecordedError(ProfileReadError):
    """A valid file without records. The file of another process in the same run may have some."""


class SeveralRecordingsError(ProfileReadError):
    """A folder with several profiles of one format. A caller that supports all formats can add the
    folder's other contents.
    """


LONGEST_PART = 500
"""Maximum number of characters in each part of a line. A damaged file can contain names of several
megabytes.
"""

LONGEST_LINE = 5 * LONGEST_PART
"""Maximum number of characters in a whole line: its four parts and the words between them."""


def one_line(path: str | PathLike[str], finding: str, cause: str, next_step: str) -> str:
    """Return the text of an error for users.

    The four parts are passed without final periods.
    """
    path, finding, cause, next_step = (
        printable(str(part), LONGEST_PART) for part in (path, finding, cause, next_step)
    )
    return f"{path}: {finding}. Likely cause: {cause}. Next step: {next_step}."

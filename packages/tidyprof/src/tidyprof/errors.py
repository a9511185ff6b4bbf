"""Errors that end a program with one line and without a traceback, including errors about a
file.
"""

from __future__ import annotations

import re
from os import PathLike

from tidyprof.escaping import printable

EMPTY = ("the file is empty", "the run ended before the tool wrote its results", "record again")
MISSING = ("no such file", "the path is wrong, or the profiler wrote nothing", "check the path")
NO_FILE = (
    "it's a pipe, socket or device",
    "the path is wrong, or you passed the output of a command instead of a file",
    "write the output to a file, and pass this file",
)
NO_MEMORY = (
    "it needs more than the available memory",
    "the trace covers too many steps, or the file is designed to exhaust memory",
    "record fewer steps, or read the file on a machine with more memory",
)
NOT_PERMITTED = (
    "you don't have permission to read it",
    "the path, its folder or a file in it belongs to another user",
    "ask the owner for a copy",
)
NO_ROWS = (
    "it has a header but no rows",
    "the program was killed before the profiler wrote its results",
    "record again, and let the program end normally",
)
"""The finding, the likely cause and the next step for faults that can occur in files of any
format.
"""

CUT_SHORT = (
    "the file or its copy is incomplete",
    "copy it again, or record again if the program was killed",
)
DAMAGED = (
    "the file is cut off or damaged, or another program changed it",
    "compare its size with the original and copy it again, or record again",
)
TOO_LARGE = (
    "the trace covers too many steps, or the file is designed to exhaust memory",
    "record fewer steps, or pass a larger maximum_bytes if you trust the file",
)
"""The likely cause and the next step for other faults."""

_EXTRAS = {
    "adbc_driver_sqlite": "rocm",
    "google": "rocm",
    "matplotlib": "plots",
    "perfetto": "rocm",
    "pyarrow": "rocm",
}
"""The tidyprof extra that installs each package."""

SAME = "the same data was read from another file"
OWN = "a separate profile by"
NOTHING = "it contains no records"
FOREIGN = "another tool wrote it, or its beginning is damaged"
SEVERAL_NUMBERS = "several numbers for one label"
"""Reasons why a reader skips a file. The reason `OWN` is followed by the name of a format."""


def missing_extra(module: str | None) -> tuple[str, str, str] | None:
    """Return the finding, the likely cause and the next step if the missing module belongs to a
    tidyprof extra. Otherwise, return None.
    """
    extra = _EXTRAS.get((module or "").partition(".")[0])
    if extra is None:
        return None
    needed = f"tidyprof[{extra}]"
    return f"needs {needed}", "only the core of tidyprof is installed", f"pip install '{needed}'"


class UserError(Exception):
    """A one-line message about a problem that the user can fix. The exit code is 2.

    Text from other sources, such as a server or a file name, may contain control characters for a
    terminal. The message therefore shows `�` instead of control characters.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


def shortened(text: str) -> str:
    """Return the text on one line. The middle of very long words is left out."""
    return re.sub(r"(\S{40})\S{40,}(\S{10})", r"\1...\2", text)


class ProfileReadError(Exception):
    """A profiler file that couldn't be read.

    The message is always one line, so it can be shown to a user. The message contains the file, the
    problem, the likely cause and the next step.
    """

    def __init__(self, path: str | PathLike[str], finding: str, cause: str, next_step: str) -> None:
        self.path = str(path)
        self.finding = finding
        self.cause = cause
        self.next_step = next_step
        super().__init__(one_line(path, finding, cause, next_step))

    def __reduce__(self) -> tuple[type[ProfileReadError], tuple[str, str, str, str]]:
        """Return the four parts of the message for pickling, so that the error can be sent from one
        process to another.
        """
        return type(self), (self.path, self.finding, self.cause, self.next_step)


class NothingRecordedError(ProfileReadError):
    """A valid file that contains no records. Another file from the same run may contain records."""


LONGEST_PART = 500
"""Maximum number of characters in each part of a line. The limit is necessary because damaged files
can contain names of several megabytes.
"""

LONGEST_LINE = 5 * LONGEST_PART
"""Maximum number of characters in a whole line, which consists of four parts and the words between
them.
"""


def one_line(path: str | PathLike[str], finding: str, cause: str, next_step: str) -> str:
    """Return the text of an error message.

    The caller passes the four parts without final periods.
    """
    path, finding, cause, next_step = (
        printable(str(part), LONGEST_PART) for part in (path, finding, cause, next_step)
    )
    return f"{path}: {finding}. Likely cause: {cause}. Next step: {next_step}."

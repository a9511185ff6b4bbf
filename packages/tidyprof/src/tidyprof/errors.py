"""The errors that end a program with one line and no traceback, those about a file among them."""

from __future__ import annotations

import re
from os import PathLike

from tidyprof.escaping import printable

EMPTY = ("the file is empty", "the run ended before the tool wrote its results", "record again")
MISSING = ("no such file", "a wrong path, or the profiler wrote nothing", "check the path")
NO_FILE = (
    "a pipe, socket or device",
    "a wrong path, or a command's output was passed instead of a file",
    "write it to a file, and pass that",
)
NO_MEMORY = (
    "more than fits into the memory at hand",
    "a recording of too many steps, or a file made to exhaust memory",
    "record fewer steps, or read it where there is more memory",
)
NOT_PERMITTED = (
    "reading it is not permitted",
    "it, its folder or a file in it belongs to another user",
    "ask its owner for a copy",
)
NO_ROWS = (
    "a header without rows",
    "the program was killed before the profiler wrote its results",
    "record again, and let the program end by itself",
)
"""What was found, likely cause and next step of faults that files of every format have."""

CUT_SHORT = (
    "the file is half written, or its copy is incomplete",
    "copy it again, or record again if the program was killed",
)
DAMAGED = (
    "the file is cut off or damaged, or another program changed it",
    "compare its size with the original and copy it again, or record again",
)
TOO_LARGE = (
    "a recording of too many steps, or a file made to exhaust memory",
    "record fewer steps, or pass a larger maximum_bytes if you trust the file",
)
"""Likely cause and next step of others."""

_EXTRAS = {
    "adbc_driver_sqlite": "rocm",
    "google": "rocm",
    "matplotlib": "plots",
    "perfetto": "rocm",
    "pyarrow": "rocm",
}
"""Package -> the extra of tidyprof that installs it."""

SAME = "what was read says the same"
OWN = "a recording of its own, by"
NOTHING = "nothing was recorded in it"
FOREIGN = "no file of this tool, or damaged at its start"
SEVERAL_NUMBERS = "several numbers for one label"
"""Why a reader leaves a file out; OWN goes on with the name of a format."""


def missing_extra(module: str | None) -> tuple[str, str, str] | None:
    """Return finding, likely cause and next step if a module that can't be imported is in an extra
    of tidyprof, otherwise None.
    """
    extra = _EXTRAS.get((module or "").partition(".")[0])
    if extra is None:
        return None
    needed = f"tidyprof[{extra}]"
    return f"needs {needed}", "only the core of tidyprof is installed", f"pip install '{needed}'"


class UserError(Exception):
    """A one-line message on what the user can put right; exit code 2.

    What others say in it, such as a server or a file's name, may hold characters that command a
    terminal: its text shows them as Python writes them.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return (
            text
            if text.isprintable()
            else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        )


def shortened(text: str) -> str:
    """The text with the middle of endless words left out, so that a line stays a line."""
    return re.sub(r"(\S{40})\S{40,}(\S{10})", r"\1...\2", text)


class ProfileReadError(Exception):
    """A profiler file could not be read as what it should be.

    The text is always one line and names the file, what was found in it, the
    likely cause and the next step, so that it can be shown to a user as it is.
    """

    def __init__(self, path: str | PathLike[str], finding: str, cause: str, next_step: str) -> None:
        self.path = str(path)
        self.finding = finding
        self.cause = cause
        self.next_step = next_step
        super().__init__(one_line(path, finding, cause, next_step))

    def __reduce__(self) -> tuple[type[ProfileReadError], tuple[str, str, str, str]]:
        """Pickle the four parts, so that the error crosses a process pool."""
        return type(self), (self.path, self.finding, self.cause, self.next_step)


class NothingRecordedError(ProfileReadError):
    """A sound file without a record. The file of another process of the same run may have some."""


class SeveralRecordingsError(ProfileReadError):
    """A folder holds several recordings of one format. Whoever knows all formats can say what else
    lies there.
    """


LONGEST_PART = 500
"""Characters that are shown of each part of a line: a damaged file can hold names of megabytes."""

LONGEST_LINE = 5 * LONGEST_PART
"""Characters of a whole line: its four parts with what stands between them."""


def one_line(path: str | PathLike[str], finding: str, cause: str, next_step: str) -> str:
    """The text of an error for users: file, what was found, likely cause and next step, without
    full stops.
    """
    path, finding, cause, next_step = (
        printable(str(part), LONGEST_PART) for part in (path, finding, cause, next_step)
    )
    return f"{path}: {finding}. Likely cause: {cause}. Next step: {next_step}."

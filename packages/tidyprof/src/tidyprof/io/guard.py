"""A wrapper for file readers that converts system errors to ProfileReadError."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from os import PathLike
from typing import Concatenate, ParamSpec, TypeVar

from tidyprof.errors import DAMAGED, NO_MEMORY, NOT_PERMITTED, ProfileReadError, missing_extra

Options = ParamSpec("Options")
Result = TypeVar("Result")
Reader = Callable[Concatenate[str | PathLike[str], Options], Result]

_NOT_REACHED = (
    "the path is wrong, or the disk or the network has failed",
    "check the path, or copy the file to a local disk",
)


def guarded(reader: Reader[Options, Result]) -> Reader[Options, Result]:
    """Make a reader raise ProfileReadError for system errors.

    Examples of system errors are missing permissions, a failing disk, too little memory, text that
    is nested too deeply, and a format whose extra isn't installed. Other errors are bugs and aren't
    converted.
    """

    @wraps(reader)
    def careful(
        path: str | PathLike[str], *arguments: Options.args, **options: Options.kwargs
    ) -> Result:
        if "\0" in os.fspath(path):
            raise ProfileReadError(path, "the path contains a zero byte", *_NOT_REACHED)
        try:
            return reader(path, *arguments, **options)
        except PermissionError:
            refusal = NOT_PERMITTED
        except OSError as error:
            refusal = (f"the file can't be read ({error.strerror or error})", *_NOT_REACHED)
        except MemoryError:
            refusal = NO_MEMORY
        except RecursionError:
            refusal = ("values are nested too deeply", *DAMAGED)
        except ModuleNotFoundError as error:
            if (extra := missing_extra(error.name)) is None:
                raise
            refusal = extra
        # Raised outside of the handlers, so the error doesn't keep the tables that filled the
        # memory.
        raise ProfileReadError(path, *refusal)

    return careful

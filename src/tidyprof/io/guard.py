"""What the machine refuses while a file is read, in the words of the one error that readers raise."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from os import PathLike
from typing import Concatenate, ParamSpec, TypeVar

from tidyprof.errors import DAMAGED, NO_MEMORY, NOT_PERMITTED, ProfileReadError

Options = ParamSpec("Options")
Result = TypeVar("Result")
Reader = Callable[Concatenate[str | PathLike[str], Options], Result]

_NOT_REACHED = ("a wrong path, or a disk or network that fails", "check the path, or copy the file to a local disk")


def guarded(reader: Reader) -> Reader:
    """The reader, which raises ProfileReadError, too, for what the machine does not allow.

    That is a path that cannot be one or may not be looked at, a disk that fails, too little memory, and text nested too
    deeply to follow. Everything else that is no ProfileReadError is a bug, and stays what it is.
    """

    @wraps(reader)
    def careful(path: str | PathLike[str], *arguments: Options.args, **options: Options.kwargs) -> Result:
        if "\0" in os.fspath(path):
            raise ProfileReadError(path, "a zero byte in the path", *_NOT_REACHED)
        try:
            return reader(path, *arguments, **options)
        except PermissionError:
            refusal = NOT_PERMITTED
        except OSError as error:
            refusal = (f"it cannot be read ({error.strerror or error})", *_NOT_REACHED)
        except MemoryError:
            refusal = NO_MEMORY
        except RecursionError:
            refusal = ("values nested too deeply to be followed", *DAMAGED)
        # Outside of the handlers, so that the error does not keep the tables that filled the memory.
        raise ProfileReadError(path, *refusal)

    return careful

"""Decide whether an exception in a hook belongs to the program or to the hooks.

While a hook runs, Python may call a signal handler of the program. Python may also raise an
exception that another thread of the program sent. Exceptions of the program must reach the program.
"""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import traceback
from types import CodeType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def is_of_program(error: BaseException) -> bool:
    """Return True if this exception can't come from the hooks."""
    if not isinstance(error, Exception):  # such as KeyboardInterrupt and SystemExit
        return True
    defined_in = type(error).__module__
    if defined_in == "__main__" or not _is_known(
        getattr(sys.modules.get(defined_in), "__file__", None)
    ):
        return True
    # Exceptions from other threads have no arguments, because a thread sends only the exception
    # class.
    if not error.args and not isinstance(error, AssertionError | MemoryError | StopIteration):
        return True
    handlers = _handlers()
    return any(
        frame.f_code in handlers or not _is_known(frame.f_code.co_filename)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def _is_known(file: str | None) -> bool:
    """Return True if the code is from the hooks, torch or the standard library."""
    torch = os.path.dirname(str(sys.modules["torch"].__file__))
    library = sysconfig.get_path("stdlib")
    if file is None or file.startswith(("<frozen", HERE + os.sep, torch + os.sep)):
        return True
    return file.startswith(library + os.sep) and "site-packages" not in file


def _handlers() -> set[CodeType]:
    """Return the code of all signal handlers, including handlers in torch and Python."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return {code for handler in handlers if (code := _code_of(handler)) is not None}


def _code_of(handler: Any) -> CodeType | None:
    function = getattr(handler, "func", handler)  # of functools.partial
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) and not code.co_filename.startswith(HERE) else None

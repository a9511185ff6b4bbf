"""Pickles from elsewhere: dictionaries, lists, texts and numbers, and nothing that could run code.

A pickle is a program. What it may do is decided before it runs: every instruction is looked at, and a file with one
that names a class, calls a function, nests tuples or asks for more memory than it has bytes is refused.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import is_pickle

_INTEGERS = {pickle.BININT1[0]: 1, pickle.BININT2[0]: 2, pickle.BININT[0]: 4}
_PUT = {pickle.BINPUT[0]: 1, pickle.LONG_BINPUT[0]: 4}
_BARE = (
    *(pickle.MARK, pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.EMPTY_TUPLE, pickle.APPEND, pickle.APPENDS),
    *(pickle.SETITEM, pickle.SETITEMS, pickle.TUPLE2, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.MEMOIZE),
)
_COUNTED = {pickle.LONG1[0]: 1, pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE[0]: 4, pickle.BINUNICODE8[0]: 8}
"""Instruction whose argument says how many bytes follow -> bytes of that number."""

_ARGUMENT = dict.fromkeys((code[0] for code in _BARE), 0) | _INTEGERS | _PUT | _COUNTED
_ARGUMENT |= {pickle.BINGET[0]: 1, pickle.LONG_BINGET[0]: 4, pickle.BINFLOAT[0]: 8, pickle.FRAME[0]: 8}
"""Instruction -> bytes of its argument, for all that plain data need."""

_NAMES = {
    value[0]: name
    for name, value in vars(pickle).items()
    if name.isupper() and isinstance(value, bytes) and len(value) == 1
}
"""Instruction -> what Python calls it, for messages."""

_STOP, _TUPLE2 = pickle.STOP[0], pickle.TUPLE2[0]
_GET = (pickle.BINGET[0], pickle.LONG_BINGET[0])
_TEXTS = (pickle.SHORT_BINUNICODE[0], pickle.BINUNICODE[0], pickle.BINUNICODE8[0])
_FAULTS = (
    pickle.UnpicklingError, ValueError, TypeError, AttributeError, IndexError, EOFError, KeyError, OverflowError,
    MemoryError,
)  # fmt: skip


class _NoClasses(pickle.Unpickler):
    """The second lock: should an instruction that names something slip through, it gets nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def plain_objects(path: Path, data: bytes) -> Any:
    """What a pickle of plain data holds; tuples only of two whole numbers or two texts.

    Objects take some ten times the bytes of an honest file, and up to sixty times those of one that is made to: bound
    what is read. Raises ProfileReadError for damage and for every instruction that plain data don't need.
    """
    if not is_pickle(data):
        raise ProfileReadError(path, "no pickle of protocol 2 to 5", "another file, or a very old one", "record again")
    _look_through(path, data)
    try:
        return _NoClasses(io.BytesIO(data)).load()
    except _FAULTS as error:
        raise ProfileReadError(path, f"a pickle that cannot be loaded ({type(error).__name__})", *DAMAGED) from None


def _look_through(path: Path, data: bytes) -> None:
    """Raise ProfileReadError unless every instruction up to the end is one of plain data."""
    place, before, last = 2, None, None
    memo: dict[int, type | None] = {}
    while place < len(data):
        code = data[place]
        if code == _STOP:
            return
        place += 1
        length = _ARGUMENT.get(code, 0)
        argument = int.from_bytes(data[place : place + length], "little")
        if code in _COUNTED:
            length += argument
        elif (
            code not in _ARGUMENT
            or (code in _PUT and argument > len(data))
            or (code == _TUPLE2 and (last is None or before is not last))
        ):
            raise _refused(path, code, place - 1)
        place += length
        if code in _PUT or code == pickle.MEMOIZE[0]:
            memo[argument if code in _PUT else len(memo)] = last
        else:
            before, last = last, memo.get(argument) if code in _GET else _kind(code)
    raise ProfileReadError(path, "a pickle without an end", *DAMAGED)


def _kind(code: int) -> type | None:
    """What an instruction makes, of the two that a pair may hold: a tuple of anything else could nest without end."""
    return int if code in _INTEGERS else str if code in _TEXTS else None


def _refused(path: Path, code: int, place: int) -> ProfileReadError:
    return ProfileReadError(
        path,
        f"a pickle with an instruction that plain data don't need ({_NAMES.get(code, hex(code))} at byte {place})",
        "it is another program's pickle, or made to run code on your machine",
        "don't load it with anything else, and ask where it comes from",
    )

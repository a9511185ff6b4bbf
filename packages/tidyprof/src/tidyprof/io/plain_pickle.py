"""Pickles from elsewhere: dictionaries, lists, texts and numbers, and nothing that could run code.

A pickle is a program. Before it runs, every instruction is looked at. A file is refused if one of
them names a class, calls a function, nests tuples, has another key than a text or a short number,
or asks for more memory than plain data of its size need.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from tidyprof.errors import DAMAGED, TOO_LARGE, ProfileReadError
from tidyprof.io.byte_stream import is_pickle

MAX_OBJECT_BYTES = 2**31
"""Bytes of memory that the objects of one file may take, by COST."""

LONGEST_NUMBER = 9
"""Bytes of the longest whole number: 64 bits without a sign. Python's work on a number grows with
the square of its digits.
"""

_SHORT = {pickle.BININT1[0]: 1, pickle.BININT2[0]: 2, pickle.BININT[0]: 4}
_PUT = {pickle.BINPUT[0]: 1, pickle.LONG_BINPUT[0]: 4}
_BARE = (
    *(
        pickle.MARK,
        pickle.EMPTY_LIST,
        pickle.EMPTY_DICT,
        pickle.EMPTY_TUPLE,
        pickle.APPEND,
        pickle.APPENDS,
    ),
    *(
        pickle.SETITEM,
        pickle.SETITEMS,
        pickle.TUPLE2,
        pickle.NONE,
        pickle.NEWTRUE,
        pickle.NEWFALSE,
        pickle.MEMOIZE,
    ),
)
_COUNTED = {
    pickle.LONG1[0]: 1,
    pickle.SHORT_BINUNICODE[0]: 1,
    pickle.BINUNICODE[0]: 4,
    pickle.BINUNICODE8[0]: 8,
}
"""Instruction whose argument is the number of bytes that follow -> bytes of that argument."""

_ARGUMENT = dict.fromkeys((code[0] for code in _BARE), 0) | _SHORT | _PUT | _COUNTED
_ARGUMENT |= {
    pickle.BINGET[0]: 1,
    pickle.LONG_BINGET[0]: 4,
    pickle.BINFLOAT[0]: 8,
    pickle.FRAME[0]: 8,
}
"""Instruction -> bytes of its argument, for all that plain data need."""

COST = dict.fromkeys(_ARGUMENT, 24) | {pickle.FRAME[0]: 0}
COST |= {
    pickle.EMPTY_DICT[0]: 208,
    pickle.EMPTY_LIST[0]: 112,
    pickle.TUPLE2[0]: 64,
    pickle.MEMOIZE[0]: 96,
}
COST |= dict.fromkeys((*_PUT, *_COUNTED), 96) | dict.fromkeys((*_SHORT, pickle.BINFLOAT[0]), 56)
"""Instruction -> bytes that Python takes for it at most; for texts without their characters
(`sys.getsizeof` of the object that it makes, with room for one entry, and its references in the
stack, the memo and the list that holds it).
"""

_NAMES = {
    value[0]: name
    for name, value in vars(pickle).items()
    if name.isupper() and isinstance(value, bytes) and len(value) == 1
}
"""Instruction -> its name in Python, for messages."""

_STOP, _TUPLE2, _MARK, _LONG1, _MEMOIZE = (
    code[0] for code in (pickle.STOP, pickle.TUPLE2, pickle.MARK, pickle.LONG1, pickle.MEMOIZE)
)
_GET = (pickle.BINGET[0], pickle.LONG_BINGET[0])
_TEXTS = (pickle.SHORT_BINUNICODE[0], pickle.BINUNICODE[0], pickle.BINUNICODE8[0])
_SET = {pickle.SETITEM[0]: 2, pickle.APPEND[0]: 1}
_SET_MANY = (pickle.SETITEMS[0], pickle.APPENDS[0])
_NO_VALUE = pickle.FRAME[0]
_FAULTS = (
    pickle.UnpicklingError,
    ValueError,
    TypeError,
    AttributeError,
    IndexError,
    EOFError,
    KeyError,
    OverflowError,
    MemoryError,
)


class _NoClasses(pickle.Unpickler):
    """A second lock: should an instruction that names something slip through, it gets nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def plain_objects(path: Path, data: bytes) -> Any:
    """The content of a pickle of plain data. Tuples may only be of two whole numbers or two texts,
    and keys only texts or whole numbers of 32 bits: a file can hold many longer numbers with the
    same hash, which make Python's dictionaries slow.

    Raises ProfileReadError for damage, for every instruction that plain data don't need, and where
    the objects would take more than MAX_OBJECT_BYTES.
    """
    if not is_pickle(data):
        raise ProfileReadError(
            path, "no pickle of protocol 2 to 5", "another file, or a very old one", "record again"
        )
    try:
        _look_through(path, data)
        return _NoClasses(io.BytesIO(data)).load()
    except _FAULTS as error:
        raise ProfileReadError(
            path, f"a pickle that cannot be loaded ({type(error).__name__})", *DAMAGED
        ) from None


def _look_through(path: Path, data: bytes) -> None:
    """Raise ProfileReadError unless every instruction up to the end is one of plain data.

    Raises IndexError where an instruction takes more from the stack than is there.
    """
    # The first two bytes are the instruction PROTO and its argument, see is_pickle.
    position, cost = 2, 0
    stack = _Stack()
    while position < len(data):
        code = data[position]
        if code == _STOP:
            return
        position += 1
        length = _ARGUMENT.get(code, 0)
        argument = int.from_bytes(data[position : position + length], "little")
        cost += COST.get(code, 0)
        if code in _COUNTED:
            length += argument
            cost += min(argument, len(data))
        if (
            code not in _ARGUMENT
            or (code == _LONG1 and argument > LONGEST_NUMBER)
            or not stack.takes(code, argument)
        ):
            raise _refused(path, code, position - 1)
        if cost > MAX_OBJECT_BYTES:
            raise ProfileReadError(
                path, f"a pickle whose objects take more than {MAX_OBJECT_BYTES} bytes", *TOO_LARGE
            )
        position += length
    raise ProfileReadError(path, "a pickle without an end", *DAMAGED)


class _Stack:
    """The kinds of values that would lie on the unpickler's stack: `int` (of 32 bits), `str`, or
    None for all else.
    """

    def __init__(self) -> None:
        self._kinds: list[type | None] = []
        self._marks: list[int] = []
        self._memo: dict[int, type | None] = {}

    def takes(self, code: int, argument: int) -> bool:
        """Follow an instruction; False for one that plain data don't need."""
        kinds = self._kinds
        if code == _MARK:
            self._marks.append(len(kinds))
        elif code in _PUT or code == _MEMOIZE:
            number = argument if code in _PUT else len(self._memo)
            self._memo[number] = kinds[-1]
            # Python makes room for all numbers below.
            return number <= 2 * len(self._memo) + 256
        elif code in _SET:
            taken = [kinds.pop() for _ in range(_SET[code])]
            return len(taken) == 1 or taken[-1] is not None
        elif code in _SET_MANY:
            mark = self._marks.pop()
            keys = kinds[mark::2] if code == _SET_MANY[0] else []
            del kinds[mark:]
            return None not in keys
        elif code == _TUPLE2:
            second, first = kinds.pop(), kinds.pop()
            # A tuple of anything but numbers or texts could nest without end.
            kinds.append(None)
            return first is not None and first is second
        elif code != _NO_VALUE:
            kinds.append(self._memo.get(argument) if code in _GET else _kind(code))
        return True


def _kind(code: int) -> type | None:
    return int if code in _SHORT else str if code in _TEXTS else None


def _refused(path: Path, code: int, position: int) -> ProfileReadError:
    return ProfileReadError(
        path,
        f"a pickle with an instruction that plain data don't need ({_NAMES.get(code, hex(code))} at"
        f" byte {position})",
        "it is another program's pickle, or made to run code or to exhaust your machine",
        "don't load it with anything else, and ask where it comes from",
    )

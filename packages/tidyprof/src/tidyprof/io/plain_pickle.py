"""A safe loader for untrusted pickles that contain only dictionaries, lists, strings and numbers.

A pickle is a program, so every instruction is checked before it runs. A file is rejected if an
instruction names a class, calls a function or nests tuples. A file is also rejected if a dictionary
key is neither a string nor a short number, or if the objects need more memory than plain data of
this size.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from tidyprof.errors import DAMAGED, TOO_LARGE, ProfileReadError
from tidyprof.io.byte_stream import is_pickle

MAX_OBJECT_BYTES = 2**31
"""Maximum memory in bytes for the objects of one file, estimated with COST."""

LONGEST_NUMBER = 9
"""Maximum length of an integer in bytes, which corresponds to 64 bits without a sign. Python's
processing time for an integer grows with the square of its number of digits.
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
"""Instructions that are followed by a byte count and that many bytes. The value is the size of the
byte count.
"""

_ARGUMENT = dict.fromkeys((code[0] for code in _BARE), 0) | _SHORT | _PUT | _COUNTED
_ARGUMENT |= {
    pickle.BINGET[0]: 1,
    pickle.LONG_BINGET[0]: 4,
    pickle.BINFLOAT[0]: 8,
    pickle.FRAME[0]: 8,
}
"""Length of the argument in bytes for each instruction that plain data needs."""

COST = dict.fromkeys(_ARGUMENT, 24) | {pickle.FRAME[0]: 0}
COST |= {
    pickle.EMPTY_DICT[0]: 208,
    pickle.EMPTY_LIST[0]: 112,
    pickle.TUPLE2[0]: 64,
    pickle.MEMOIZE[0]: 96,
}
COST |= dict.fromkeys((*_PUT, *_COUNTED), 96) | dict.fromkeys((*_SHORT, pickle.BINFLOAT[0]), 56)
"""Maximum memory of each instruction in bytes, without the characters of strings. This memory
includes `sys.getsizeof` of the new object, with room for one entry, and the object's references in
the stack, the memo and its list.
"""

_NAMES = {
    value[0]: name
    for name, value in vars(pickle).items()
    if name.isupper() and isinstance(value, bytes) and len(value) == 1
}
"""Python's name for each instruction, for use in messages."""

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
    """A second safeguard: an instruction that names a class always fails."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} isn't plain data")


def plain_objects(path: Path, data: bytes) -> Any:
    """Load a pickle of plain data.

    A tuple may contain only two integers or two strings. A dictionary key must be a string or a
    32-bit integer. Many longer numbers with the same hash would make Python's dictionaries slow.

    Raises ProfileReadError if the pickle is damaged, contains an instruction that plain data
    doesn't need, or needs more than MAX_OBJECT_BYTES of memory.
    """
    if not is_pickle(data):
        raise ProfileReadError(
            path,
            "the file isn't a pickle of protocol 2 to 5",
            "it is a different kind of file, or a very old pickle",
            "record again",
        )
    try:
        _look_through(path, data)
        return _NoClasses(io.BytesIO(data)).load()
    except _FAULTS as error:
        raise ProfileReadError(
            path, f"the pickle can't be loaded ({type(error).__name__})", *DAMAGED
        ) from None


def _look_through(path: Path, data: bytes) -> None:
    """Raise ProfileReadError if an instruction isn't needed for plain data. Raises IndexError if
    the instruction takes more values from the stack than there are.
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
                path, f"the pickle's objects need more than {MAX_OBJECT_BYTES} bytes", *TOO_LARGE
            )
        position += length
    raise ProfileReadError(path, "the pickle has no end", *DAMAGED)


class _Stack:
    """Types of the values on the unpickler's stack: `int` (32 bits), `str`, or None for any other
    type.
    """

    def __init__(self) -> None:
        self._kinds: list[type | None] = []
        self._marks: list[int] = []
        self._memo: dict[int, type | None] = {}

    def takes(self, code: int, argument: int) -> bool:
        """Apply an instruction to the stack, and return False if plain data doesn't need the
        instruction.
        """
        kinds = self._kinds
        if code == _MARK:
            self._marks.append(len(kinds))
        elif code in _PUT or code == _MEMOIZE:
            number = argument if code in _PUT else len(self._memo)
            self._memo[number] = kinds[-1]
            # Python allocates memory for all lower numbers.
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
            # A tuple of other values could nest without limit.
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
        "the pickle contains an instruction that plain data doesn't need"
        f" ({_NAMES.get(code, hex(code))} at byte {position})",
        "another program wrote the pickle, or it is designed to run code or to exhaust memory",
        "don't load it with any other program, and find out where it comes from",
    )

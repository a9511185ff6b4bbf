"""A safe loader for untrusted pickles that contain only dictionaries, lists, strings and numbers.

A pickle is a program. This module limits Python's unpickler to the few instructions that plain data
needs, so a pickle can't name a class or call a function.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tidyprof.errors import DAMAGED, TOO_LARGE, ProfileReadError
from tidyprof.io.byte_stream import is_pickle

MAX_OBJECT_BYTES = 2**31
"""Maximum memory in bytes for the objects of one file, estimated with `_COST`."""

MAX_UNFOLDED = 2**30
"""Maximum number of values and characters of one file. Even a small file can exceed it, because it
can refer to the same list or string many times.
"""

_LONGEST_NUMBER = 9
"""Maximum length of an integer in bytes, which is enough for 64 bits. Many longer numbers with the
same hash would make Python's dictionaries slow.
"""

_COST = {
    **dict.fromkeys(b"\x80\x95.", 0),  # PROTO, FRAME, STOP
    **dict.fromkeys(b"hj(N\x88\x89)", 24),  # BINGET, LONG_BINGET, MARK, NONE, booleans, EMPTY_TUPLE
    **dict.fromkeys(b"aesu", 24),  # APPEND, APPENDS, SETITEM, SETITEMS
    **dict.fromkeys(b"qr\x94", 96),  # BINPUT, LONG_BINPUT, MEMOIZE
    **dict.fromkeys(b"JKM\x8a", 96),  # BININT, BININT1, BININT2, LONG1
    **dict.fromkeys(b"X\x8c\x8d", 96),  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
    **dict(zip(b"G\x86]}", (56, 112, 112, 208), strict=True)),  # BINFLOAT, TUPLE2, lists and dicts
}
"""Instructions that plain data needs, and the memory of each in bytes without the characters of
strings. This memory includes `sys.getsizeof` of the new object, with room for one entry, and the
object's references in the stack, the memo and its list.
"""

_FAULTS = (
    pickle.UnpicklingError,
    struct.error,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
Content = TypeVar("Content")


class _TooLargeError(Exception):
    pass


# The unpickler in C allocates memory for any number in the memo that the file states.
class _PlainUnpickler(pickle._Unpickler):
    """A loader of plain data. It raises KeyError for any other instruction."""

    stack: list[Any]
    read: Callable[[int], bytes]
    held_bytes = 0

    def load_pair(self) -> None:
        """Load a pair as a list, because a hash of pairs within pairs can overflow the stack."""
        self.stack[-2:] = [self.stack[-2:]]

    def load_number(self) -> None:
        """Load an integer of more than 32 bits."""
        (length,) = self.read(1)
        if length > _LONGEST_NUMBER:
            raise ValueError(f"an integer has {length} bytes")
        self.stack.append(pickle.decode_long(self.read(length)))


def _counted(code: int) -> Callable[[_PlainUnpickler], None]:
    own = {
        pickle.TUPLE2[0]: _PlainUnpickler.load_pair,
        pickle.LONG1[0]: _PlainUnpickler.load_number,
    }
    load, cost = own.get(code, pickle._Unpickler.dispatch[code]), _COST[code]

    def load_counted(unpickler: _PlainUnpickler) -> None:
        unpickler.held_bytes += cost
        if unpickler.held_bytes > MAX_OBJECT_BYTES:
            raise _TooLargeError
        load(unpickler)

    return load_counted


_PlainUnpickler.dispatch = {code: _counted(code) for code in _COST}


def plain_objects(path: Path, data: bytes) -> Any:
    """Load a pickle of plain data. Pairs become lists.

    Raises ProfileReadError if the pickle is damaged, contains an instruction that plain data
    doesn't need, or needs more than MAX_OBJECT_BYTES of memory.
    """
    try:
        if not is_pickle(data):
            raise ValueError("the protocol isn't 2 to 5")
        return _PlainUnpickler(BytesIO(data)).load()
    except _TooLargeError:
        finding = f"the pickle's objects need more than {MAX_OBJECT_BYTES} bytes"
        raise ProfileReadError(path, finding, *TOO_LARGE) from None
    except _FAULTS as error:
        raise ProfileReadError(
            path,
            f"the pickle isn't plain data ({type(error).__name__}: {error})",
            "the file is damaged, or another program wrote it, maybe to run code",
            "don't load it with any other program, and find out where it comes from",
        ) from None


def converted(path: Path, objects: Any, content: type[Content], what: str) -> Content:
    """Convert plain objects to a msgspec type.

    - what: description of the expected file contents for the error message.

    Raises ProfileReadError if the objects don't match the type, or if they contain the same values
    so often that they need more than MAX_UNFOLDED values and characters.
    """
    if _unfolded(objects, {}) > MAX_UNFOLDED:
        raise ProfileReadError(
            path, f"the file refers to more than {MAX_UNFOLDED} values and characters", *TOO_LARGE
        )
    try:
        return msgspec.convert(objects, content)
    except msgspec.ValidationError as error:
        raise ProfileReadError(path, f"the file isn't a {what} ({error})", *DAMAGED) from None


def _unfolded(value: Any, sizes: dict[int, int]) -> int:
    """Return the number of values and characters if every reference was a copy."""
    if not isinstance(value, dict | list):
        return 1 + len(value) if isinstance(value, str) else 1
    if id(value) not in sizes:
        # A list that contains itself counts as empty there.
        sizes[id(value)] = 1
        inner = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_unfolded(one, sizes) for one in inner)
    return sizes[id(value)]

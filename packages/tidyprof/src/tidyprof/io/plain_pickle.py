"""A safe loader for untrusted pickles that contain only dictionaries, lists, strings and numbers.

A pickle is a program. Python's unpickler runs all of it, so this module has its own interpreter for
the few instructions that plain data needs. It refuses every other instruction, so a pickle can't
name a class or call a function.
"""

from __future__ import annotations

from pathlib import Path
from pickletools import genops
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

LONGEST_NUMBER = 64
"""Maximum length of an integer in bits. Python's processing time for an integer grows with the
square of its number of digits.
"""

_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_NUMBERS = {"BININT1", "BININT2", "BININT", "BINFLOAT"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_CONTAINERS = {"EMPTY_LIST": list, "EMPTY_DICT": dict}
_PUTS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"BINGET", "LONG_BINGET"}
_ADDS = {"APPEND", "APPENDS", "SETITEM", "SETITEMS"}
"""Instructions that plain data needs, by their names in `pickletools`."""

_COST = {"PROTO": 0, "FRAME": 0, "EMPTY_DICT": 208, "EMPTY_LIST": 112, "BINFLOAT": 56}
_COST |= dict.fromkeys(_GETS | _ADDS | {"MARK"}, 24) | dict.fromkeys(_CONSTANTS, 24)
_OTHER_COST = 96
"""Maximum memory of an instruction in bytes, without the characters of strings. This memory
includes `sys.getsizeof` of the new object, with room for one entry, and the object's references in
the stack, the memo and its list.
"""

_FAULTS = (ValueError, TypeError, AttributeError, IndexError, KeyError)
Content = TypeVar("Content")


def plain_objects(path: Path, data: bytes) -> Any:
    """Load a pickle of plain data.

    A dictionary key must be a string or a 32-bit integer. Many longer numbers with the same hash
    would make Python's dictionaries slow.

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
        return _loaded(path, data)
    except _FAULTS as error:
        raise ProfileReadError(
            path, f"the pickle can't be loaded ({type(error).__name__})", *DAMAGED
        ) from None


def _loaded(path: Path, data: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    cost = 0
    for instruction, argument, position in genops(data):
        name = instruction.name
        is_needed = True
        cost += _COST.get(name, _OTHER_COST)
        if cost > MAX_OBJECT_BYTES:
            raise ProfileReadError(
                path, f"the pickle's objects need more than {MAX_OBJECT_BYTES} bytes", *TOO_LARGE
            )
        if name in _TEXTS:
            cost += len(argument)
            stack.append(argument)
        elif name in _GETS:
            stack.append(memo[argument])
        elif name in _PUTS:
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif name in _NUMBERS:
            stack.append(argument)
        elif name in _ADDS:
            first = marks.pop() if name.endswith("S") else len(stack) - 1 - (name == "SETITEM")
            added = stack[first:]
            del stack[first:]
            if name.startswith("APPEND"):
                stack[-1].extend(added)
            elif is_needed := all(isinstance(key, str) or _is_short(key) for key in added[::2]):
                stack[-1].update(zip(added[::2], added[1::2], strict=True))
        elif name in _CONTAINERS:
            stack.append(_CONTAINERS[name]())
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE2":
            stack[-2:] = [(stack[-2], stack[-1])]
        elif name == "LONG1":
            is_needed = argument.bit_length() <= LONGEST_NUMBER
            stack.append(argument)
        else:
            is_needed = name in ("PROTO", "FRAME", "STOP")
        if not is_needed:
            raise ProfileReadError(
                path,
                "the pickle contains an instruction that plain data doesn't need"
                f" ({name} at byte {position})",
                "another program wrote the pickle, or it is designed to run code or to exhaust"
                " memory",
                "don't load it with any other program, and find out where it comes from",
            )
    return stack.pop()


def _is_short(key: Any) -> bool:
    return type(key) is int and abs(key) <= 2**31


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
    if not isinstance(value, dict | list | tuple):
        return 1 + len(value) if isinstance(value, str) else 1
    if id(value) not in sizes:
        # A list that contains itself counts as empty there.
        sizes[id(value)] = 1
        inner = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_unfolded(one, sizes) for one in inner)
    return sizes[id(value)]

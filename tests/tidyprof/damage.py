"""Ways to damage a file, for the tests of readers on files that are not sound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from tidyprof import ProfileReadError


def flipped(data: bytes, place: int, value: int) -> bytes:
    return data[:place] + bytes([value]) + data[place + 1 :]


def cut(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + data[end:]


def overwritten(data: bytes, start: int, end: int, target: int) -> bytes:
    """A piece of the file written over another place, as a lost page would be."""
    piece = data[start:end]
    return data[:target] + piece + data[target + len(piece) :]


def mutations(size: int) -> st.SearchStrategy[Callable[[bytes], bytes]]:
    """Changes to a file of about this size: a byte, a piece lost, a piece repeated elsewhere, a piece set to zero."""
    place = st.integers(0, size)
    length = st.integers(1, 3000)
    return st.one_of(
        st.builds(lambda p, v: lambda data: flipped(data, p, v), place, st.integers(0, 255)),
        st.builds(lambda p, n: lambda data: cut(data, p, p + n), place, length),
        st.builds(lambda a, n, t: lambda data: overwritten(data, a, a + n, t), place, length, place),
        st.builds(lambda p, n: lambda data: data[:p] + bytes(len(data[p : p + n])) + data[p + n :], place, length),
    )


def one_line(error: ProfileReadError, path: Path) -> str:
    """What was found, after a check that the error has all four parts in one line."""
    assert "\n" not in str(error)
    assert "\r" not in str(error)
    assert str(path) in str(error)
    assert error.found
    assert error.cause
    assert error.next_step
    return error.found

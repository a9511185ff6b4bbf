"""Ways to damage a file, for the tests of readers on files that are not sound."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from tidyprof import Profile, ProfileReadError, read
from tidyprof_tests.conftest import LONG

Mutation = Callable[[bytes], bytes]


def fuzzed(cases: int) -> settings:
    """How many cases a test with damaged files runs: `cases` by hand, ten times as many in a long
    run.
    """
    return settings(max_examples=cases * (10 if LONG else 1))


def flipped(data: bytes, place: int, value: int) -> bytes:
    return data[:place] + bytes([value]) + data[place + 1 :]


def cut(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + data[end:]


def inserted(data: bytes, start: int, end: int, target: int) -> bytes:
    """A piece of the file repeated at another place."""
    return data[:target] + data[start:end] + data[target:]


def overwritten(data: bytes, start: int, end: int, target: int) -> bytes:
    """A piece of the file written over another place, as a lost page would be."""
    piece = data[start:end]
    return data[:target] + piece + data[target + len(piece) :]


def mutations(size: int) -> st.SearchStrategy[Mutation]:
    """Changes to a file of about this size: a byte, a piece lost, a piece repeated elsewhere, a
    piece set to zero.
    """
    place = st.integers(0, size)
    length = st.integers(1, 3000)
    return st.one_of(
        st.builds(lambda p, v: lambda data: flipped(data, p, v), place, st.integers(0, 255)),
        st.builds(lambda p, n: lambda data: cut(data, p, p + n), place, length),
        st.builds(
            lambda a, n, t: lambda data: overwritten(data, a, a + n, t), place, length, place
        ),
        st.builds(
            lambda p, n: lambda data: data[:p] + bytes(len(data[p : p + n])) + data[p + n :],
            place,
            length,
        ),
    )


ODD_TEXTS = (
    b'"',
    b'""',
    b",",
    b"\n",
    b"\r",
    b"\x00",
    b"-",
    b"nan",
    b"inf",
    b"1e400",
    b"9" * 30,
    b"\xff\xfe",
    b"null",
    b"{}",
    b"[[",
    b"]",
    b"\\ud800",
    b"\xef\xbb\xbf",
    b"N/A",
    b"1e999",
    b"9" * 400,
    b",,,",
    b"1_000",
    "٣".encode(),
    b"65535",
)
"""What is put somewhere into the file."""

ODD_NUMBERS = (
    b"-1",
    b"0",
    b"1.5",
    b"",
    b"18446744073709551615",
    b"9223372036854775807",
    b"9" * 30,
    b"NaN",
    b"x",
)
"""What takes the place of a number."""


def replaced_number(data: bytes, place: int, text: bytes) -> bytes:
    """The data with the first number behind `place` replaced."""
    match = re.compile(rb"\d+").search(data, place)
    return data if match is None else data[: match.start()] + text + data[match.end() :]


def text_mutations(
    size: int,
    inserts: Sequence[bytes] = ODD_TEXTS,
    favorites: bytes = b'{}[]",:\n\r\\-+.eE0919 \x00_',
) -> st.SearchStrategy[Mutation]:
    """Changes of one place in a text of about this many bytes: flipped, cut, repeated, inserted,
    renumbered.

    inserts    -- what may be put somewhere.
    favorites -- bytes that a flipped one becomes more often than by chance: those with a meaning
                  in the format.
    """
    place = st.integers(0, size)
    value = st.one_of(st.integers(0, 255), st.sampled_from(list(favorites)))
    return st.one_of(
        st.builds(lambda p, v: lambda data: flipped(data, p, v), place, value),
        st.builds(lambda a, n: lambda data: cut(data, a, a + n), place, st.integers(1, 200)),
        st.builds(lambda p: lambda data: data[:p], place),
        st.builds(
            lambda a, n, t: lambda data: inserted(data, a, a + n, t),
            place,
            st.integers(1, 2000),
            place,
        ),
        st.builds(
            lambda p, text: lambda data: data[:p] + text + data[p:],
            place,
            st.sampled_from(list(inserts)),
        ),
        st.builds(
            lambda p, text: lambda data: replaced_number(data, p, text),
            place,
            st.sampled_from(ODD_NUMBERS),
        ),
    )


def damaged(data: bytes, changes: Sequence[Mutation]) -> bytes:
    """The data after all changes."""
    for change in changes:
        data = change(data)
    return data


def one_line(error: ProfileReadError, path: Path) -> str:
    """What was found, after a check that the error has all four parts in one line."""
    assert "\n" not in str(error)
    assert "\r" not in str(error)
    assert str(path) in str(error)
    assert error.finding
    assert error.cause
    assert error.next_step
    return error.finding


def refusal(path: Path, own: Callable[..., Profile]) -> str:
    """What a reader finds wrong at a path, which `tidyprof.read` has to refuse too: each in one
    line with all parts.
    """
    found = []
    for door in (own, read):
        with pytest.raises(ProfileReadError) as caught:
            door(path)
        found.append(one_line(caught.value, path))
    return found[0]


def read_or_refused(path: Path, own: Callable[..., Profile]) -> list[Profile]:
    """What a reader and `tidyprof.read` make of a file that may be damaged: sound tables, or a
    refusal in one line.
    """
    profiles = []
    for door in (own, read):
        try:
            profile = door(path)
        except ProfileReadError as error:
            one_line(error, path.parent if path.is_file() else path)
        else:
            assert (profile.events["duration_ns"] >= 0).all()
            assert profile.events["start_ns"].is_monotonic_increasing
            assert np.isfinite(profile.counters["value"]).all()
            assert str(profile.meta)
            profiles.append(profile)
    return profiles

"""Pickles of plain data are loaded, and nothing else: no code runs, and no memory is taken that the
file doesn't have.
"""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidyprof.errors import ProfileReadError
from tidyprof.io import plain_pickle
from tidyprof.io.plain_pickle import converted, plain_objects

PATH = Path("snapshot.pickle")
PLAIN = {
    "numbers": [0, 255, 65_535, 2**31 - 1, -1, 2**31, 2**63, -(2**63), 1.5],
    "texts": ["", "short", "µ" * 200, "long" * 100],
    "flags": [True, False, None],
    "pairs": [[0, 0], [2**20, 0], ["", "µ" * 300]],
    "nested": {
        "empty": [{}, [], ()],
        "again": [[1] * 1500, {str(key): key for key in range(1500)}],
    },
}


def refused(data: bytes) -> str:
    with pytest.raises(ProfileReadError) as error:
        plain_objects(PATH, data)
    return error.value.finding


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_come_back_as_they_are(protocol: int) -> None:
    assert plain_objects(PATH, pickle.dumps(PLAIN, protocol)) == PLAIN


class _Runs:
    """A pickle that runs a command when it is loaded as usual."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch ran",)


OBJECTS = [_Runs(), OrderedDict(a=1), len, Path, {1, 2}, b"bytes", bytearray(2)]
COLLIDING = {key * (2**61 - 1): 0 for key in range(1, 2**11, 100)}
KEYS = [COLLIDING, {(1, 2): 0}, 2**80]


@pytest.mark.parametrize(
    "data",
    [
        *(pickle.dumps(value, protocol) for value in OBJECTS + KEYS for protocol in (2, 4)),
        b"\x80\x05\x96" + struct.pack("<Q", 2) + b"ab.",
        b"\x80\x04}" + b")" + b"\x85" * 1_000_000 + b"K\x01s.",
        b"\x80\x04}" + b")" + b"N\x86" * 1_000_000 + b"K\x01s.",
        b"\x80\x02\x82\x01.",
        b"\x80\x04K\x01Q.",
        b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b".",
        b"\x80\x04J\x01\x00",
        b"\x80\x04}",
        b"\x80\x04.",
        b"\x80\x04h\x07.",
        b"\x80\x04]\x8c\x01aK\x01s.",
        b"\x80\x04}K\x01a.",
        b"\x80\x04\x8c\x02\xff\xfe.",
        b"(dp0\n.",
        b"",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_could_run_code_or_take_all_memory_is_refused(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "isn't plain data" in refused(data)
    assert list(tmp_path.iterdir()) == []


PIECES = [b"}", b"]", b"\x8c\x02ab", b"M\xff\x01", b"N", b"}\x94\x8c\x01aNs"]


@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_what_is_counted_is_no_less_than_what_python_takes(
    piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"\x80\x04](" + piece * 20_000 + b"e."
    tracemalloc.start()
    held = plain_objects(PATH, data)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held) == 20_000
    monkeypatch.setattr(plain_pickle, "MAX_OBJECT_BYTES", taken)
    assert f" {taken} bytes" in refused(data)


class _Held(msgspec.Struct):
    segments: list[list[str]]


def _itself() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


@pytest.mark.parametrize(
    ("segments", "finding"),
    [
        ([["a"] * 100] * 100, "more than 10000 values"),
        ([["a" * 5_000] * 3], "more than 10000 values"),
        (_itself(), "isn't a test"),
        (["a"], "isn't a test"),
    ],
)
def test_what_is_repeated_or_of_another_type_is_refused(
    segments: list[Any], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_pickle, "MAX_UNFOLDED", 10_000)
    objects = plain_objects(PATH, pickle.dumps({"segments": segments}, 4))
    with pytest.raises(ProfileReadError, match=finding):
        converted(PATH, objects, _Held, "test")

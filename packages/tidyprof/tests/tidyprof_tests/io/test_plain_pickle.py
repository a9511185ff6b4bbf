"""Pickles of plain data are loaded, and nothing else: no code runs, and no memory is taken that the
file has not.
"""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from collections import OrderedDict
from pathlib import Path

import pytest

from tidyprof.errors import ProfileReadError
from tidyprof.io import plain_pickle
from tidyprof.io.plain_pickle import plain_objects

PATH = Path("snapshot.pickle")
PLAIN = {
    "numbers": [0, 255, 65_535, 2**31 - 1, -1, 2**31, 2**63, -(2**63), 1.5],
    "texts": ["", "short", "µ" * 200, "long" * 100],
    "flags": [True, False, None],
    "pools": [(0, 0), (300, 70_000), (2**20, 0)],
    "groups": [("0", "default_pg"), ("0", "default_pg"), ("default_pg", "0"), ("", "µ" * 300)],
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
    """What a pickle can do when it is loaded as usual."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "value",
    [_Runs(), OrderedDict(a=1), len, pytest, {1, 2}, b"bytes", bytearray(2)],
    ids=lambda value: type(value).__name__,
)
def test_what_names_a_class_or_a_function_is_refused_and_not_run(
    value, protocol, tmp_path, monkeypatch
) -> None:
    if value is pytest:
        value = Path
    monkeypatch.chdir(tmp_path)
    assert "an instruction" in refused(pickle.dumps({"segments": [value]}, protocol))
    assert list(tmp_path.iterdir()) == []


def test_what_slips_through_the_first_look_gets_no_function(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(plain_pickle, "_look_through", lambda path, data: None)
    monkeypatch.chdir(tmp_path)
    assert "(UnpicklingError)" in refused(pickle.dumps(_Runs()))
    assert list(tmp_path.iterdir()) == []


FAR_MEMO = b"\x80\x04K\x01r" + struct.pack("<I", 2**32 - 1) + b"."
HUGE_BYTES = b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"."
HUGE_TEXT = b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"."
DEEP_TUPLE = b"\x80\x04}" + b")" + b"\x85" * 1_000_000 + b"K\x01s."
DEEP_PAIR = b"\x80\x04}" + b")" + b"N\x86" * 1_000_000 + b"K\x01s."
HIDDEN_PAIR = (
    b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01h\x01\x86q\x01"
    + b"h\x01h\x01\x86q\x01" * 1_000_000
    + b"K\x01s."
)
HIDDEN_BY_COUNT = (
    b"\x80\x04}\x8c\x01a\x94\x8c\x01a\x86\x94" + b"h\x01h\x01\x86q\x01" * 1_000_000 + b"K\x01s."
)
MIXED_PAIR = b"\x80\x02K\x01X\x01\x00\x00\x00aq\x01\x86."
REGISTERED = b"\x80\x02\x82\x01."
OF_A_PERSON = b"\x80\x04K\x01Q."
COLLIDING = pickle.dumps({key * (2**61 - 1): 0 for key in range(1, 60)}, 4)
ONE_KEY_AT_A_TIME = pickle.dumps({2**61 - 1: 0}, 4)
FLOAT_KEY = pickle.dumps({2.0**61: 0}, 4)
PAIR_KEY = pickle.dumps({(1, 2): 0}, 4)
LONG_NUMBER = pickle.dumps(2**80, 4)


@pytest.mark.parametrize(
    "data",
    [
        *(
            FAR_MEMO,
            HUGE_BYTES,
            DEEP_TUPLE,
            DEEP_PAIR,
            HIDDEN_PAIR,
            HIDDEN_BY_COUNT,
            MIXED_PAIR,
            REGISTERED,
        ),
        *(OF_A_PERSON, COLLIDING, ONE_KEY_AT_A_TIME, FLOAT_KEY, PAIR_KEY, LONG_NUMBER),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_could_take_all_memory_or_crash_is_not_even_begun(data: bytes) -> None:
    assert "an instruction" in refused(data)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (HUGE_TEXT, "no end"),
        (b"\x80\x04}", "no end"),
        (b"\x80\x04.", "can't be loaded"),
        (b"\x80\x04h\x07.", "can't be loaded"),
        (b"\x80\x04]\x8c\x01aK\x01s.", "can't be loaded (TypeError)"),
        (b"\x80\x04}K\x01a.", "can't be loaded (AttributeError)"),
        (b"\x80\x04\x8c\x02\xff\xfe.", "can't be loaded (UnicodeDecodeError)"),
        (b"(dp0\n.", "protocol 2 to 5"),
        (b"", "a pickle"),
    ],
)
def test_damage_is_one_line(data: bytes, found: str) -> None:
    assert found in refused(data)


@pytest.mark.parametrize(
    "piece",
    [b"}", b"]", b"N", b"K\xff", b"\x94", b"(", b"\x8c\x02ab", b"h\x00", b"M\xff\x01"],
    ids=lambda piece: repr(piece),
)
def test_objects_are_counted_before_any_is_made(piece: bytes, monkeypatch) -> None:
    monkeypatch.setattr(plain_pickle, "MAX_OBJECT_BYTES", 24_000)
    monkeypatch.setattr(plain_pickle, "_NoClasses", None)
    head = b"\x80\x04K\x01q\x00"
    assert "24000 bytes" in refused(head + piece * 1000 + b".")


@pytest.mark.parametrize(
    "piece", [b"}", b"]", b"\x8c\x02ab", b"M\xff\x01", b"N", b"}\x94\x8c\x01ah\x01s"]
)
def test_what_is_counted_is_no_less_than_what_python_takes(piece: bytes, monkeypatch) -> None:
    data = b"\x80\x04](" + piece.replace(b"h\x01", b"N") * 20_000 + b"e."
    tracemalloc.start()
    held = plain_objects(PATH, data)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held) == 20_000
    monkeypatch.setattr(plain_pickle, "MAX_OBJECT_BYTES", taken)
    assert f" {taken} bytes" in refused(data)


def test_a_list_that_holds_itself_does_no_harm() -> None:
    held: list = []
    held.append(held)
    found = plain_objects(PATH, pickle.dumps({"segments": held}, 4))
    assert found["segments"][0] is found["segments"]

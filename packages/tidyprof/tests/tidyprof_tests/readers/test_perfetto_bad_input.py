"""Files that are no sound Perfetto traces: one line on what was found and what to do, never another
exception.
"""

from __future__ import annotations

import pytest

from tidyprof.readers.perfetto.reader import read_perfetto
from tidyprof_tests import perfetto_writer as w
from tidyprof_tests.damage import refusal
from tidyprof_tests.perfetto_writer import (
    BASE,
    event,
    slice_,
    small_trace,
    start,
    tracks,
)

TRACE = small_trace()
WHOLE = [slice_(BASE + i, BASE + i + 1, f"a{i}") for i in range(50)]


def trace(*parts: bytes) -> bytes:
    return b"".join((start(), tracks(), *WHOLE, *parts))


BAD_CONTENT = {
    "cut in a packet": TRACE[:-1],
    "cut in the length of a packet": TRACE + b"\x0a\x80",
    "half of it": TRACE[: len(TRACE) // 2],
    "one byte": b"\x0a",
    "zeros at the end": TRACE + bytes(64),
    "text at the end": TRACE + b"trailing text",
    "a length that never ends": b"\x0a" + b"\xff" * 30,
    "a packet of a terabyte": TRACE + b"\x0a" + w.varint(2**40) + b"x" * 99,
    "JSON": b'{"traceEvents": []}',
    "text": b"Kind,Agent_Id\n1,2\n",
    "an empty line and JSON": b'\n{"a": 1, "b": [1, 2, 3]}' + b" " * 200,
    "a packet that is no message": trace(w.block(1, b"\xff\xff\xff")),
    "nested too deep": trace(w.block(1, w.block(60, b"\x1a\x05\x1a\x05"))),
    "an argument that is no message": (
        trace(
            w.packet(w.time_of(BASE), w.block(11, w.number(9, w.INSTANT) + w.block(4, b"\x08\xff")))
        )
    ),
    "only a descriptor": start() + tracks(),
    "only lost data": start() + w.statistics(chunks_overwritten=7),
    "compressed packets": trace(w.compressed(TRACE)),
    "a ring buffer that lost the start": b"".join(WHOLE),
    "ends that are all missing": trace(
        *[event(w.BEGIN, BASE + i, name="a", category="user") for i in range(2000)]
    ),
    "begins that are all missing": trace(*[event(w.END, BASE + i) for i in range(2000)]),
}


LEFT_OUT = {
    "names that are missing": trace(slice_(BASE, BASE + 1, 99)),
    "categories that are missing": trace(slice_(BASE, BASE + 1, "a", 99)),
    "a clock that is missing": trace(slice_(BASE, BASE + 1, "a", clock=70)),
    "a clock that nothing relates": w.clock_snapshot((3, 5))
    + trace(slice_(BASE, BASE + 1, "a", clock=3)),
    "a sequence without its start": trace(slice_(BASE, BASE + 1, "a", sequence=9)),
}
"""Traces with one event that can't be read."""


@pytest.mark.parametrize("what", LEFT_OUT)
def test_an_event_that_lacks_something_is_left_out_and_counted(tmp_path, what):
    (tmp_path / "trace.pftrace").write_bytes(LEFT_OUT[what])
    profile = read_perfetto(tmp_path / "trace.pftrace")
    assert sum(profile.meta["repairs"].values())
    assert any("damaged" in warning for warning in profile.meta["warnings"])


@pytest.mark.parametrize("what", BAD_CONTENT)
def test_bad_content(tmp_path, what):
    content = BAD_CONTENT[what]
    path = tmp_path / "trace.pftrace"
    path.write_bytes(content)
    refusal(path, read_perfetto)

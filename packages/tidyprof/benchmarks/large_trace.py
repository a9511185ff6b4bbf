"""Makes a large Chrome trace of a real one: its events repeated, later each time."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

_NUMBERS = re.compile(rb'"(ts|correlation|External id|id)": (\d+)')
_IDENTIFIERS_APART = 10_000_000
_PAUSE_US = 1000


def repeat_trace(source: Path, target: Path, uncompressed_bytes: int) -> int:
    """Write gzip file `target` with the events of `source` (a Kineto trace) again and again.

    Every repetition starts after the one before it and has its own correlation and external ids,
    so that kernels find their launches. Stops at `uncompressed_bytes`; returns the repetitions.
    """
    text = gzip.decompress(source.read_bytes())
    start = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"}", 0, text.rindex(b"]")) + 1
    events = text[start:end]
    times = [int(value) for key, value in _NUMBERS.findall(events) if key == b"ts"]
    step = max(times) - min(times) + _PAUSE_US
    repetitions = max(1, round(uncompressed_bytes / len(events)))
    with gzip.open(target, "wb", compresslevel=4) as file:
        file.write(text[:start])
        for repetition in range(repetitions):
            file.write(b"," * bool(repetition))
            file.write(_shifted(events, repetition * step, repetition * _IDENTIFIERS_APART))
        file.write(text[end:])
    return repetitions


def _shifted(events: bytes, microseconds: int, identifiers: int) -> bytes:
    def later(match: re.Match[bytes]) -> bytes:
        key, value = match.groups()
        return b'"%s": %d' % (key, int(value) + (microseconds if key == b"ts" else identifiers))

    return _NUMBERS.sub(later, events)

"""rocprofv3's JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests.readers.kit import Event, Writer
from tidyprof_tests.readers.kit.rocprofv3_csv import KINDS, parts
from tidyprof_tests.readers.text_samples import text_samples
from tidyprof_tests.rocprofv3_writer import START_NS, write_results

SAMPLES = text_samples("rocprofv3_json", tidyprof.read_rocprofv3)


def write(folder: Path, events: Sequence[Event]) -> Path:
    return write_results(folder / "1_results.json", *parts(events))


WRITER = Writer(write, START_NS, KINDS, streams=True)

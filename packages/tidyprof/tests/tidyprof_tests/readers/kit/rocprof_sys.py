"""The tables of rocprof-sys (timemory)."""

from __future__ import annotations

import tidyprof
from tidyprof_tests.readers.kit import Sample
from tidyprof_tests.readers.test_rocprof_sys import JSON

SAMPLES = {"": Sample("wall_clock-7.json", JSON.encode(), tidyprof.read_rocprof_sys)}

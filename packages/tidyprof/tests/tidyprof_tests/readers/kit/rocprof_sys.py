"""The tables of rocprof-sys (timemory)."""

from __future__ import annotations

import tidyprof
from tidyprof_tests.readers.kit import Sample
from tidyprof_tests.readers.test_rocprof_sys import JSON, TEXT

SAMPLES = {
    name: Sample(f"wall_clock-7.{name}", content.encode(), tidyprof.read_rocprof_sys)
    for name, content in {"json": JSON, "txt": TEXT}.items()
}

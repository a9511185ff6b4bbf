"""The CSV files of rocprof 1."""

from __future__ import annotations

import tidyprof
from tidyprof_tests.readers.text_samples import text_samples

SAMPLES = text_samples("rocprof_v1", tidyprof.read_rocprof_v1)

"""The CSV files of rocprof 1."""

from __future__ import annotations

import tidyprof
from tidyprof_tests.readers.kit import Sample
from tidyprof_tests.readers.test_rocprof_v1 import SEEDS

SAMPLES = {
    name.removesuffix(".csv"): Sample(name, content, tidyprof.read_rocprof_v1)
    for name, content in SEEDS.items()
}

"""Logs of amd-smi, rocm-smi, omnistat and of scripts."""

from __future__ import annotations

import tidyprof
from tidyprof_tests.readers.kit import Sample
from tidyprof_tests.readers.test_system_bad_input import SOURCES

SAMPLES = {
    name.replace(" ", "-"): Sample("log.csv", content.encode(), tidyprof.read_system)
    for name, content in sorted(SOURCES.items(), key=lambda pair: pair[0] != "metric")
}

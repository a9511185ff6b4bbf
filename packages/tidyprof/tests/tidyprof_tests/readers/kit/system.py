"""Logs of amd-smi, rocm-smi, omnistat and of scripts."""

from __future__ import annotations

import tidyprof
from tidyprof_tests.readers.text_samples import text_samples

SAMPLES = text_samples("system", tidyprof.read_system)

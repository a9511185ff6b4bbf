"""Samples of PyTorch's allocator as a counter table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tidyprof.readers.torch.events import Event, integers, nanoseconds
from tidyprof.tables.codes import ABSENT, nullable

_CPU = 0
"""Device type of the host's memory in PyTorch (c10/core/DeviceType.h)."""


def memory_tables(samples: list[Event], base_ns: int) -> Iterator[pd.DataFrame]:
    """Allocated and reserved memory in bytes (`profile_memory=True`); `device` is <NA> for the host's memory."""
    samples = [sample for sample in samples if sample.args]
    if not samples:
        return
    arguments = [sample.args for sample in samples]
    time = base_ns + nanoseconds(np.array([sample.ts for sample in samples], np.float64))
    device = integers([argument.memory_device for argument in arguments])
    device[integers([argument.memory_device_type for argument in arguments]) == _CPU] = ABSENT
    devices = nullable(device, "Int32")
    for name, attribute in (("allocated memory", "allocated"), ("reserved memory", "reserved")):
        value = integers([getattr(argument, attribute) for argument in arguments])
        part = {"time_ns": time, "device": devices, "name": name, "value": value.astype(float)}
        known = pd.DataFrame(part).assign(unit="bytes")[value != ABSENT]
        if len(known):
            yield known

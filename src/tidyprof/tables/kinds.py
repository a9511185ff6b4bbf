"""What events can be; in a module of its own, since processes that only decode traces have no use for pandas."""

from __future__ import annotations

KINDS = (
    "kernel",
    "copy",
    "fill",
    "collective",
    "runtime",
    "operator",
    "annotation",
    "sample",
)
"""What an event can be. The first four run on a device, the rest on a host thread."""

DEVICE_KINDS = ("kernel", "copy", "fill", "collective")
"""Kinds that occupy a device; their union over time is what `busy` measures."""

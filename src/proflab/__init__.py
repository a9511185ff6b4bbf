"""The bench of the course: recordings, exercises, predictions and the first cell of a lesson.

Names are looked up when first used, so that `import proflab` stays quick and needs
neither torch nor pandas.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "CorrectnessGate": "proflab.correctness_gate",
    "Recording": "proflab.recordings",
    "RecordingUnavailable": "proflab.recordings",
    "check_up": "proflab.doctor",
    "exercise": "proflab.exercises",
    "job": "proflab.jobs",
    "perfetto": "proflab.perfetto_button",
    "predict": "proflab.predictions",
    "recording": "proflab.recordings",
    "reveal": "proflab.predictions",
    "say": "proflab.showing",
    "show_figure": "proflab.showing",
    "show_table": "proflab.showing",
    "source": "proflab.sources",
    "start": "proflab.session",
    "try_recording": "proflab.recordings",
}

__all__ = [
    "CorrectnessGate",
    "Recording",
    "RecordingUnavailable",
    "check_up",
    "exercise",
    "job",
    "perfetto",
    "predict",
    "recording",
    "reveal",
    "say",
    "show_figure",
    "show_table",
    "source",
    "start",
    "try_recording",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'proflab' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

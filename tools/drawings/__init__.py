"""Drawings that explain a thought: `python -m tools.drawings` writes docs/drawings.

A line `{drawing NAME}`, alone in a lesson's markdown cell, shows docs/drawings/NAME.svg with the
drawing's words as its alternative text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.drawings import many_ranks, one_gpu
from tools.drawings.pen import Drawing

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "drawings"

DRAWINGS: Mapping[str, Callable[[], Drawing]] = {
    "00_clock": one_gpu.clock,
    "02_launch": one_gpu.launch,
    "02_queue": one_gpu.queue,
    "02_observer": one_gpu.observer,
    "05_roofline": one_gpu.roofline,
    "05_memory": one_gpu.memory,
    "07_all_reduce": many_ranks.all_reduce,
    "15_missing_call": many_ranks.missing_call,
    "16_tile": one_gpu.tile,
    "17_layers": many_ranks.sharded_layers,
}
"""All drawings by the name of their file, which begins with the lesson's number."""

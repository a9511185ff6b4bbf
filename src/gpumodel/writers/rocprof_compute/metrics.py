"""Which counters the report blocks and sets of rocprof-compute need, and in which runs of the program they are counted.

Source: ROCm/rocm-systems, projects/rocprofiler-compute, src/rocprof_compute_soc/analysis_configs/gfx942 and
docs/how-to/profile/mode.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from cifar_train.errors import UserError

HARDWARE_BLOCKS = ("SQ", "SQC", "TA", "TD", "TCP", "TCC", "SPI", "CPC", "CPF")
"""What `--block` takes before ROCm 7.1 (src/argparser.py): the counters whose names begin so."""

LEVEL = "SQ_LEVEL_WAVES_ACCUM"
"""Sum of a level over cycles: counted in a run of its own."""

_ALWAYS = re.compile(r"GRBM_|SQ_BUSY_CYCLES")

_OPERATIONS = r"SQ_INSTS_VALU_(ADD|MUL|FMA|TRANS|MFMA_MOPS)_|SQ_INSTS_VALU_INT"
_FABRIC = r"TCC_"
_UTILISATION = r"SQ_ACTIVE_|SQ_THREAD_|SQ_BUSY_CU|SQ_VALU_MFMA_BUSY|SQ_INSTS$|SQ_WAVES$|SQ_CYCLES"
_WAVES = r"SPI_|SQ_WAVE|SQ_LEVEL|SQ_ITEMS|SQ_CYCLES|SQ_BUSY_CU"
_INSTRUCTIONS = r"SQ_INSTS|SQ_WAVES$"

BLOCKS: Mapping[int, str] = {
    2: "|".join((_OPERATIONS, _FABRIC, _UTILISATION, LEVEL)),
    3: "|".join((_FABRIC, _INSTRUCTIONS, LEVEL)),
    4: "|".join((_OPERATIONS, _FABRIC)),
    6: _WAVES,
    7: _WAVES,
    10: _INSTRUCTIONS,
    11: "|".join((_OPERATIONS, _UTILISATION, _INSTRUCTIONS)),
    17: _FABRIC,
}
"""Report block -> pattern of its counters. Of the other blocks (5, 12 to 16, 18) the model knows nothing."""

SETS: Mapping[str, str] = {
    "compute_thruput_util": _UTILISATION,
    "compute_thruput_flops": _OPERATIONS,
    "mem_thruput": _FABRIC,
    "launch_stats": _WAVES,
}
"""Set of metrics (`--set`) -> pattern of its counters, as far as the model knows them."""

_PER_RUN: Mapping[str, int] = {"SQ": 8, "TCC": 4, "SPI": 2, "GRBM": 2}
"""Counters that each part of the device can count at once."""


def chosen(counters: Iterable[str], blocks: Sequence[str], metric_set: str | None) -> list[str]:
    """Those of the counters that report blocks (`2`, `2.1.4`), hardware blocks (`SQ`) or a set need; else all.

    Raises UserError for a block or set that is unknown, or of which the model knows nothing.
    """
    if blocks and metric_set:
        raise UserError("report blocks (-b) and a set of metrics (--set) exclude each other; pass one of them")
    if metric_set is not None and metric_set not in SETS:
        raise UserError(f"no set {metric_set!r} of metrics; there are {', '.join(SETS)}")
    patterns = [SETS[metric_set]] if metric_set else [_pattern(text) for text in blocks]
    wanted = re.compile("|".join(patterns)) if patterns else re.compile("")
    return [name for name in counters if _ALWAYS.match(name) or wanted.match(name)]


def _pattern(text: str) -> str:
    """The counters of a block."""
    if text in HARDWARE_BLOCKS:
        return f"{text}_"
    number = text.split(".")[0]
    if not re.fullmatch(r"\d+(\.\d+){0,2}", text) or int(number) not in BLOCKS:
        known = ", ".join(map(str, BLOCKS))
        raise UserError(f"report block {text!r} is not modelled; pass one of {known}, or an id within it such as 2.1")
    return BLOCKS[int(number)]


def runs_of(counters: Sequence[str]) -> dict[str, list[str]]:
    """Name of the request file -> counters of one run of the program, as many as can be counted at once."""
    runs: list[list[str]] = []
    for name in counters:
        if name == LEVEL:
            continue
        part = _part(name)
        free = next((run for run in runs if sum(_part(other) == part for other in run) < _PER_RUN[part]), None)
        if free is None:
            runs.append([name])
        else:
            free.append(name)
    found = {"SQ_LEVEL_WAVES": [LEVEL]} if LEVEL in counters else {}
    return found | {f"pmc_perf_{number}": run for number, run in enumerate(runs)}


def _part(counter: str) -> str:
    return counter.split("_")[0]

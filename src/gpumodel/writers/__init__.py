"""Writes a Run into the files of a profiler: one module per format, imported at its first use."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from gpumodel.run import Run
from tidyprof.errors import UserError

MODULE_OF_FORMAT = {
    "kineto": "gpumodel.writers.kineto.writer",
    "rocprofv3-csv": "gpumodel.writers.rocprofv3.csv_files",
    "rocprofv3-json": "gpumodel.writers.rocprofv3.json_file",
    "rocpd": "gpumodel.writers.rocpd",
    "rpd": "gpumodel.writers.rpd",
    "perfetto": "gpumodel.writers.perfetto.writer",
    "rocprof-sys": "gpumodel.writers.rocprof_sys.writer",
    "rocprof-compute": "gpumodel.writers.rocprof_compute.writer",
    "memory-snapshot": "gpumodel.writers.memory_snapshot",
    "amd-smi": "gpumodel.writers.system.amd_smi",
    "omnistat": "gpumodel.writers.system.omnistat",
}
"""Format -> the module whose function `write` writes it."""


def formats() -> list[str]:
    """The names that `write` knows."""
    return list(MODULE_OF_FORMAT)


def write(format_name: str, run: Run, folder: Path, **options: Any) -> list[Path]:
    """Write `run` into `folder` in this format; returns the files that were written, in order of
    rank.

    options -- those of the format's own function; all take `rank` (None: every rank).

    Raises UserError for an unknown format, and for a rank that the run does not have.
    """
    if format_name not in MODULE_OF_FORMAT:
        raise UserError(
            f"no writer for the format {format_name!r}; there are {', '.join(MODULE_OF_FORMAT)}"
        )
    return import_module(MODULE_OF_FORMAT[format_name]).write(run, Path(folder), **options)

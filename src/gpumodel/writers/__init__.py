"""A Run in the files of a profiler: one module per format, imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from cifar_train.errors import UserError
from gpumodel.run import Run

MODULE_OF_FORMAT = {
    "kineto": ("gpumodel.writers.kineto.writer", "write"),
    "rocprofv3-csv": ("gpumodel.writers.rocprofv3.csv_files", "write"),
    "rocprofv3-json": ("gpumodel.writers.rocprofv3.json_file", "write"),
    "rocpd": ("gpumodel.writers.rocpd.writer", "write"),
    "rpd": ("gpumodel.writers.rpd.writer", "write"),
    "perfetto": ("gpumodel.writers.perfetto.writer", "write"),
    "rocprof-sys": ("gpumodel.writers.rocprof_sys.writer", "write"),
    "rocprof-compute": ("gpumodel.writers.rocprof_compute.writer", "write"),
    "amd-smi": ("gpumodel.writers.system.writer", "write_amd_smi"),
    "rocm-smi": ("gpumodel.writers.system.writer", "write_rocm_smi"),
    "omnistat": ("gpumodel.writers.system.writer", "write_omnistat"),
}
"""For each format, the module that writes it and the function in it."""


def formats() -> list[str]:
    """The names that `write` knows."""
    return list(MODULE_OF_FORMAT)


def write(format_name: str, run: Run, folder: Path, **options: Any) -> list[Path]:
    """Write `run` into `folder` in this format; the files that were written, in order of rank.

    options -- those of the format's own function; all take `rank` (None: every rank).

    Raises UserError for a format or a rank that there is not.
    """
    if format_name not in MODULE_OF_FORMAT:
        raise UserError(f"no writer for the format {format_name!r}; there are {', '.join(MODULE_OF_FORMAT)}")
    module, function = MODULE_OF_FORMAT[format_name]
    return getattr(import_module(module), function)(run, Path(folder), **options)

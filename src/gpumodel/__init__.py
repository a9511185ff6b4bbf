"""A model of an AMD GPU: a workload's operators in, a timeline with known truth out, in any tool's format.

Nothing that comes from here was measured. `simulate` plays a workload, `gpumodel.writers` puts the
result into the files of a profiler, and `python -m gpumodel validate` prints the model's known error.
Names are loaded at their first use: `import gpumodel` imports neither torch nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULE_OF_NAME = {
    "MatrixProduct": "gpumodel.workload",
    "RankRun": "gpumodel.run",
    "Run": "gpumodel.run",
    "ShardedStep": "gpumodel.workload",
    "Training": "gpumodel.workload",
    "simulate": "gpumodel.simulation",
    "step_rates": "gpumodel.simulation",
    "workload_of": "gpumodel.command",
}

__all__ = sorted(_MODULE_OF_NAME)


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name in _MODULE_OF_NAME:
        value = getattr(import_module(_MODULE_OF_NAME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gpumodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

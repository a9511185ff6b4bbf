"""The public names of gpumodel: what is imported here is loaded at its first use."""

from gpumodel.command import workload_of
from gpumodel.run import RankRun, Run
from gpumodel.simulation import simulate, step_rates
from gpumodel.workload import MatrixProduct, ShardedStep, Training

__all__ = [
    "MatrixProduct",
    "RankRun",
    "Run",
    "ShardedStep",
    "Training",
    "simulate",
    "step_rates",
    "workload_of",
]

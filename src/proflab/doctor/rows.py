"""The rows of the table: their order, their titles, and the probes that fill them."""

from __future__ import annotations

from proflab.doctor.findings import Probe
from proflab.doctor.probes import cluster, course, gpu, limits, pytorch, rocm, tools

_ROWS = """
GPU: amd-gpu = AMD GPU, amd-driver = AMD driver, gpu-access = access to the GPU, gpu-visibility = visible GPUs,
    nvidia-gpu = NVIDIA GPU
ROCm and tools: rocm = ROCm, rocprofv3 = rocprofv3, rocprof-sys = rocprof-sys, rocprof-compute = rocprof-compute,
    rpd = rpd, amd-smi = amd-smi, rocm-smi = rocm-smi, omnistat = omnistat, rocminfo = rocminfo,
    tools-loaded = preloaded tools, rocprofv3-kernel = rocprofv3 at work
PyTorch: python = Python, torch = torch, torch-device = torch at work, torch-profiler = torch.profiler,
    bfloat16 = bfloat16, collectives = RCCL or NCCL
Cluster: slurm = Slurm, mpi = MPI, ranks = ranks
Limits: cores = cores, memory = memory, disk-runs = space for results, disk-temporary = temporary space,
    miopen-cache = MIOpen databases, perf-counters = CPU counters, ptrace-scope = attaching
Course: data = data set, jupyter = notebook's address, perfetto = Perfetto
"""


def _sections(text: str) -> dict[str, dict[str, str]]:
    lines = (line.partition(": ") for line in text.replace(",\n", ",").strip().splitlines())
    return {name: dict(row.strip().split(" = ") for row in rows.split(",")) for name, _, rows in lines}


SECTIONS = _sections(_ROWS)
"""Section -> key of a row -> its title. Keys are stable: scripts may rely on them."""

TITLES = {key: title for rows in SECTIONS.values() for key, title in rows.items()}

PROBES: tuple[Probe, ...] = tuple(
    probe for module in (gpu, rocm, tools, pytorch, cluster, limits, course) for probe in module.PROBES
)

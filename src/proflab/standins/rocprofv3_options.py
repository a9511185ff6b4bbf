"""The meaning of rocprofv3's options, and which of them go together; the options themselves are in
options/rocprofv3.toml.

Source: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/bin/rocprofv3.py (ROCm 7.0 to
10.2).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from proflab.releases import change
from proflab.standins.options import ToolError, at_dashes, build_parser
from proflab.standins.release import default, is_at_least

DOMAINS = (
    "hip_compiler_trace",
    "hip_runtime_trace",
    "hsa_core_trace",
    "hsa_amd_trace",
    "hsa_image_trace",
    "hsa_finalizer_trace",
    "marker_trace",
    "rccl_trace",
    "rocdecode_trace",
    "rocjpeg_trace",
    "kernel_trace",
    "memory_copy_trace",
    "memory_allocation_trace",
    "scratch_memory_trace",
)
"""Domains that can be traced each by itself."""

_RUNTIME = (
    "hip_runtime_trace",
    "marker_trace",
    "kernel_trace",
    "memory_copy_trace",
    "memory_allocation_trace",
    "scratch_memory_trace",
    "rccl_trace",
    "rocdecode_trace",
    "rocjpeg_trace",
)
_HSA = ("hsa_core_trace", "hsa_amd_trace", "hsa_image_trace", "hsa_finalizer_trace")

AGGREGATES = {
    "sys_trace": (*_RUNTIME, "hip_compiler_trace", *_HSA),
    "runtime_trace": _RUNTIME,
    "hip_trace": ("hip_compiler_trace", "hip_runtime_trace"),
    "hsa_trace": _HSA,
}
"""Option -> the domains that it switches on."""

NEEDS_TRACE = (
    "stats",
    "summary",
    "summary_per_domain",
    "summary_groups",
    "summary_output_file",
    "summary_units",
)
"""Options that are a fatal error if nothing is traced."""


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """rocprofv3's own options, and the program after the first `--`. argparse ends with code 2 for
    a wrong option.
    """
    own, program = at_dashes(arguments)
    return build_parser("rocprofv3", "rocprofv3").parse_args(own), program


def enabled_domains(options: argparse.Namespace) -> frozenset[str]:
    """The members of DOMAINS that are switched on. A domain that is switched off by its own option
    stays off.
    """
    chosen = {name: getattr(options, name) for name in DOMAINS}
    if options.kokkos_trace and chosen["marker_trace"] is None:
        chosen["marker_trace"] = True
    for aggregate, members in AGGREGATES.items():
        if getattr(options, aggregate):
            chosen |= {name: True for name in members if chosen[name] is None}
    return frozenset(name for name, on in chosen.items() if on)


def passes(options: argparse.Namespace) -> list[argparse.Namespace]:
    """The options of each run of the program: a run for each `--pmc`; before ROCm 7.13 one run,
    with the last `--pmc`.

    Each of several runs has a folder of its own, pass_1, pass_2. Raises ToolError if one of several
    lists is empty.
    """
    lists = [" ".join(words).split() for words in options.pmc or ()]
    if len(lists) < 2 or not is_at_least("7.13"):
        return [argparse.Namespace(**{**vars(options), "pmc": lists[-1] if lists else None})]
    for number, counters in enumerate(lists, start=1):
        if not counters:
            reason = "Each --pmc must specify at least one counter."
            raise ToolError(f"Fatal error: Empty counter group in --pmc flag {number}. {reason}", 1)
    folder = Path(options.output_directory or ".")
    return [
        argparse.Namespace(
            **{**vars(options), "pmc": counters, "output_directory": str(folder / f"pass_{number}")}
        )
        for number, counters in enumerate(lists, start=1)
    ]


def check(options: argparse.Namespace) -> list[str]:
    """Warnings for a run with options from `passes`. Raises ToolError for a fatal error of
    rocprofv3.
    """
    if (options.mpi_world_rank_variable is None) != (options.mpi_world_size_variable is None):
        both = "both --mpi-world-rank-variable and --mpi-world-size-variable must be specified"
        raise ToolError(f"Fatal error: When using custom MPI environment variables, {both}", 1)
    collecting = options.pmc or options.pc_sampling_beta_enabled or options.advanced_thread_trace
    if enabled_domains(options) or options.group_by_queue or collecting:
        return _without_effect(options)
    for name in NEEDS_TRACE:
        if getattr(options, name):
            listed = "\n    ".join(_flag(domain) for domain in ("hip_trace", "hsa_trace", *DOMAINS))
            raise ToolError(
                "Warning: No tracing options were enabled.\n"
                f"Fatal error: No tracing options were enabled for {_flag(name)} option.\n\n"
                f"Tracing options:\n    {listed}",
                1,
            )
    return ["Warning: No tracing options were enabled."]


def _without_effect(options: argparse.Namespace) -> list[str]:
    """The warning of ROCm 10.2 that `--stats` has no effect for a database alone; earlier releases
    don't warn, though it has none there either.
    """
    formats = options.output_format or [default("rocprofv3", "--output-format", "rocpd")]
    if not options.stats or {*formats} != {"rocpd"} or not is_at_least("10.2"):
        return []
    return [f"Warning: {change('rocprofv3', '--stats').message}"]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

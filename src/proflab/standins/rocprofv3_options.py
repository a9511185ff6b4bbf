"""The options of rocprofv3, and which of them go together.

Source: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/bin/rocprofv3.py (ROCm 7.0 to 7.2).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from proflab.standins.command_lines import at_dashes
from proflab.standins.errors import ToolError

FORMATS = ("csv", "json", "pftrace", "otf2", "rocpd")

DOMAINS = {
    "hip_compiler_trace": "calls that the HIP compiler inserts",
    "hip_runtime_trace": "calls of the HIP runtime",
    "hsa_core_trace": "calls of the HSA core",
    "hsa_amd_trace": "calls of AMD's extension of HSA",
    "hsa_image_trace": "calls of the image extension of HSA",
    "hsa_finalizer_trace": "calls of the finalizer extension of HSA",
    "marker_trace": "ROCTx ranges and marks",
    "rccl_trace": "calls of RCCL",
    "rocdecode_trace": "calls of rocDecode",
    "rocjpeg_trace": "calls of rocJPEG",
    "kernel_trace": "kernel dispatches",
    "memory_copy_trace": "memory copies",
    "memory_allocation_trace": "memory allocations",
    "scratch_memory_trace": "scratch memory",
}
"""What can be traced by itself."""

_RUNTIME = (
    "hip_runtime_trace", "marker_trace", "kernel_trace", "memory_copy_trace", "memory_allocation_trace",
    "scratch_memory_trace", "rccl_trace", "rocdecode_trace", "rocjpeg_trace",
)  # fmt: skip
_HSA = ("hsa_core_trace", "hsa_amd_trace", "hsa_image_trace", "hsa_finalizer_trace")

AGGREGATES = {
    "sys_trace": (*_RUNTIME, "hip_compiler_trace", *_HSA),
    "runtime_trace": _RUNTIME,
    "hip_trace": ("hip_compiler_trace", "hip_runtime_trace"),
    "hsa_trace": _HSA,
}
"""Options that switch several domains on."""

NEEDS_TRACE = ("stats", "summary", "summary_per_domain", "summary_groups", "summary_output_file", "summary_units")
"""Options that are a fatal error without anything to trace."""

_YES, _NO = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """rocprofv3's own options, and the program behind the first `--`. argparse ends with code 2 for a wrong one."""
    own, program = at_dashes(arguments)
    return build_parser("rocprofv3").parse_args(own), program


def enabled_domains(options: argparse.Namespace) -> frozenset[str]:
    """The members of DOMAINS that are switched on; one that is switched off by itself stays off."""
    chosen = {name: getattr(options, name) for name in DOMAINS}
    if options.kokkos_trace and chosen["marker_trace"] is None:
        chosen["marker_trace"] = True
    for aggregate, members in AGGREGATES.items():
        if getattr(options, aggregate):
            chosen |= {name: True for name in members if chosen[name] is None}
    return frozenset(name for name, on in chosen.items() if on)


def check(options: argparse.Namespace) -> list[str]:
    """Warnings for a run with these options. Raises ToolError for what rocprofv3 calls a fatal error."""
    collecting = options.pmc or options.pc_sampling_beta_enabled or options.advanced_thread_trace
    if enabled_domains(options) or options.group_by_queue or collecting:
        return []
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


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _truth(text: str) -> bool:
    if text.lower() not in _YES + _NO:
        raise argparse.ArgumentTypeError(f"invalid truth value {text}")
    return text.lower() in _YES


def _switch(group: argparse._ArgumentGroup, *names: str, help: str) -> None:
    group.add_argument(*names, nargs="?", const=True, default=None, type=_truth, metavar="BOOL", help=help)


def build_parser(tool: str) -> argparse.ArgumentParser:
    """All options, in rocprofv3's groups."""
    parser = argparse.ArgumentParser(
        prog=tool,
        usage="%(prog)s [options] -- <application> [application options]",
        description=f"Stand-in for {tool} of ROCm 7.2. The double hyphen before the application is required.",
        epilog="With mpirun or srun, rocprofv3 stands inside: srun -n 4 rocprofv3 --kernel-trace -- ./app",
        allow_abbrev=False,
    )
    parser.add_argument("-v", "--version", action="store_true", help="print versions and exit")
    for add in (_add_output, _add_tracing, _add_collection, _add_summary, _add_filters, _add_display, _add_advanced):
        add(parser)
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("I/O options")
    group.add_argument("-i", "--input", help="file of jobs (JSON, YAML) or of counters (TXT)")
    group.add_argument(
        "-o", "--output-file", default=os.environ.get("ROCPROF_OUTPUT_FILE_NAME"), help="default: %%hostname%%/%%pid%%"
    )
    group.add_argument(
        "-d", "--output-directory", default=os.environ.get("ROCPROF_OUTPUT_PATH"), help="default: the current folder"
    )
    group.add_argument("-f", "--output-format", nargs="+", choices=FORMATS, type=str.lower, help="default: rocpd")
    _switch(group, "--output-config", help="write the configuration too")
    levels = ("fatal", "error", "warning", "info", "trace", "env", "config")
    group.add_argument("--log-level", choices=levels, type=str.lower, help="of the tool's own log")
    group.add_argument("-E", "--extra-counters", help="YAML file with counter definitions")


def _add_tracing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Aggregate tracing options")
    _switch(group, "-r", "--runtime-trace", help="HIP runtime, markers, RCCL, memory and kernels")
    _switch(group, "-s", "--sys-trace", help="the same with HSA and the HIP compiler's calls")
    group = parser.add_argument_group("Tracing options")
    _switch(group, "--hip-trace", help="HIP runtime and compiler calls; no kernels and no copies")
    _switch(group, "--hsa-trace", help="all HSA calls; no kernels and no copies")
    _switch(group, "--kokkos-trace", help="implies --marker-trace and --kernel-rename")
    for name, text in DOMAINS.items():
        _switch(group, _flag(name), help=text)


def _add_collection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Counter collection, PC sampling and thread trace")
    group.add_argument("--pmc", nargs="*", help="hardware counters of one pass")
    _switch(group, "--pc-sampling-beta-enabled", help="allow PC sampling")
    group.add_argument("--pc-sampling-unit", type=str.lower, choices=("instructions", "cycles", "time"))
    group.add_argument("--pc-sampling-method", type=str.lower, choices=("stochastic", "host_trap"))
    group.add_argument("--pc-sampling-interval", type=int)
    _switch(group, "--advanced-thread-trace", "--att", help="thread trace; needs rocprof-trace-decoder")
    group.add_argument("--att-library-path", nargs="+")
    for name in (
        "target-cu", "simd-select", "buffer-size", "shader-engine-mask", "gpu-index", "perfcounters",
        "perfcounter-ctrl", "activity",
    ):  # fmt: skip
        group.add_argument(f"--att-{name}")
    _switch(group, "--att-serialize-all", help="serialise all kernels")


def _add_summary(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Post-processing and summary options")
    _switch(group, "--stats", help="statistics of what is traced; needs a tracing option")
    _switch(group, "-S", "--summary", help="one table at the end")
    _switch(group, "-D", "--summary-per-domain", help="one table per domain at the end")
    group.add_argument("--summary-groups", nargs="+", metavar="REGULAR_EXPRESSION", help="one table per group")
    group.add_argument("--summary-output-file", help="a file, stdout or stderr (default)")
    group.add_argument("-u", "--summary-units", choices=("sec", "msec", "usec", "nsec"), help="default: nsec")
    group = parser.add_argument_group("Kernel naming options")
    _switch(group, "-M", "--mangled-kernels", help="do not demangle kernel names")
    _switch(group, "-T", "--truncate-kernels", help="kernel names without arguments and templates")
    _switch(group, "--kernel-rename", help="name kernels after the ROCTx range around them")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Filtering options")
    group.add_argument("--kernel-include-regex", metavar="REGULAR_EXPRESSION", help="of counters and thread trace only")
    group.add_argument("--kernel-exclude-regex", metavar="REGULAR_EXPRESSION", help="of counters and thread trace only")
    group.add_argument("--kernel-iteration-range", nargs="+", help="of counters and thread trace only")
    group.add_argument("-P", "--collection-period", nargs="+", metavar="DELAY:DURATION:REPEAT", help="time windows")
    units = ("hour", "min", "sec", "msec", "usec", "nsec")
    group.add_argument("--collection-period-unit", nargs=1, default=["sec"], choices=units, help="default: sec")
    group.add_argument("--profile-mpi-ranks", default=os.environ.get("ROCPROF_MPI_RANKS"), help="such as 0-3,8")
    _switch(group, "--selected-regions", help="only between roctxProfilerResume and roctxProfilerPause")


def _add_display(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Perfetto and display options")
    group.add_argument("--perfetto-backend", nargs=1, choices=("inprocess", "system"))
    group.add_argument("--perfetto-buffer-size", type=int, metavar="KB", help="default: 1 GB")
    group.add_argument("--perfetto-buffer-fill-policy", choices=("discard", "ring_buffer"))
    group.add_argument("--perfetto-shmem-size-hint", type=int, metavar="KB", help="default: 64 KB")
    _switch(group, "-L", "--list-avail", help="counters and PC sampling configurations")
    _switch(group, "--group-by-queue", help="tracks by HSA queue instead of HIP stream")
    group.add_argument("-A", "--agent-index", choices=("absolute", "relative", "type-relative"))


def _add_advanced(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Advanced options")
    group.add_argument("--preload", nargs="*", help="libraries to load first")
    group.add_argument("--rocm-root", metavar="PATH")
    group.add_argument("--sdk-soversion", type=int)
    group.add_argument("--sdk-version")
    _switch(group, "--disable-signal-handlers", help="leave signals to the application")
    group.add_argument("--minimum-output-data", type=int, metavar="KB", help="no files below this size")
    group.add_argument("-p", "--pid", "--attach", nargs="?", const="", help="attach to a running process")
    group.add_argument("--attach-duration-msec", type=int)

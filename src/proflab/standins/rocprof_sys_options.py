"""The options of rocprof-sys-run and rocprof-sys-sample, and the settings that they stand for.

Source: github.com/ROCm/rocm-systems, projects/rocprofiler-systems, source/lib/core/argparse.cpp.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from proflab.standins import release
from proflab.standins.command_lines import at_dashes
from proflab.standins.errors import ToolError

BACKENDS = ("all", "kokkosp", "mpip", "ompt", "rcclp", "amd-smi", "mutex-locks", "spin-locks", "rw-locks", "rocm")
"""What -I and -E take. roctracer, rocm-smi, rocprofiler and roctx are gone since 1.0.0."""

_BACKEND_SETTINGS = {
    "rocm": "ROCPROFSYS_USE_ROCM",
    "amd-smi": "ROCPROFSYS_USE_AMD_SMI",
    "rcclp": "ROCPROFSYS_USE_RCCLP",
    "mpip": "ROCPROFSYS_USE_MPIP",
    "kokkosp": "ROCPROFSYS_USE_KOKKOSP",
}

_VALUE_SETTINGS = {
    "wait": "ROCPROFSYS_TRACE_DELAY",
    "duration": "ROCPROFSYS_TRACE_DURATION",
    "trace_wait": "ROCPROFSYS_TRACE_DELAY",
    "trace_duration": "ROCPROFSYS_TRACE_DURATION",
    "trace_buffer_size": "ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB",
    "trace_fill_policy": "ROCPROFSYS_PERFETTO_FILL_POLICY",
    "process_freq": "ROCPROFSYS_PROCESS_SAMPLING_FREQ",
    "freq": "ROCPROFSYS_SAMPLING_FREQ",
    "sampling_wait": "ROCPROFSYS_SAMPLING_DELAY",
}
_SWITCH_SETTINGS = {
    "trace": "ROCPROFSYS_TRACE",
    "profile": "ROCPROFSYS_PROFILE",
    "sample": "ROCPROFSYS_USE_SAMPLING",
    "flat_profile": "ROCPROFSYS_FLAT_PROFILE",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """rocprof-sys ends with 1, after one line."""
        raise ToolError(f"[{self.prog}] Error! {message}", 1)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tool's own words, and the program: behind `--`, or everything where the first word is no option."""
    words = list(arguments)
    if words and not words[0].startswith("-") and "--" not in words:
        return [], words
    return at_dashes(words)


def settings_of(options: argparse.Namespace) -> dict[str, str]:
    """The settings that the options set, by name."""
    found = {name: str(getattr(options, key)) for key, name in _VALUE_SETTINGS.items() if getattr(options, key)}
    found |= {name: "true" for key, name in _SWITCH_SETTINGS.items() if getattr(options, key)}
    if options.output:
        names = ("ROCPROFSYS_OUTPUT_PATH", "ROCPROFSYS_OUTPUT_PREFIX")
        found |= dict(zip(names, options.output, strict=False))
    for backends, value in ((options.include, "true"), (options.exclude, "false")):
        for backend in backends or ():
            names = _BACKEND_SETTINGS.values() if backend == "all" else (_BACKEND_SETTINGS.get(backend),)
            found |= {name: value for name in names if name}
    return found


def build_parser(tool: str) -> argparse.ArgumentParser:
    """All options of rocprof-sys-run or rocprof-sys-sample."""
    parser = _Parser(
        prog=tool,
        usage="%(prog)s [options] -- <command> [arguments]",
        description=f"Stand-in for {tool} {release.ROCPROF_SYS} (ROCm {release.ROCPROF_SYS_ROCM}).",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("--monochrome", action="store_true", help="no colours")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("-v", "--verbose", nargs="?", const="1", metavar="LEVEL")
    _add_general(parser)
    _add_tracing(parser)
    _add_sampling(parser, run=tool == "rocprof-sys-run")
    return parser


def _add_general(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", nargs="+", default=[], metavar="FILE", help="configuration files")
    parser.add_argument("-o", "--output", nargs="+", metavar=("PATH", "PREFIX"), help="folder, and prefix of files")
    parser.add_argument("-T", "--trace", action="store_true", help="Perfetto trace; default unless -P is given")
    parser.add_argument("-P", "--profile", action="store_true", help="hierarchical profile")
    parser.add_argument("-F", "--flat-profile", action="store_true", help="flat profile")
    parser.add_argument("-H", "--host", action="store_true", help="sample the host's metrics")
    parser.add_argument("-D", "--device", action="store_true", help="sample the device's metrics")
    parser.add_argument("-w", "--wait", type=float, metavar="SEC", help="wait before collecting")
    parser.add_argument("-d", "--duration", type=float, metavar="SEC", help="duration of collecting")
    parser.add_argument("-I", "--include", nargs="+", choices=BACKENDS, help="backends to include")
    parser.add_argument("-E", "--exclude", nargs="+", choices=BACKENDS, help="backends to exclude")


def _add_tracing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace-file", metavar="FILE", help="name of the trace")
    parser.add_argument("--trace-buffer-size", type=int, metavar="KB")
    parser.add_argument("--trace-fill-policy", choices=("discard", "ring_buffer"))
    parser.add_argument("--trace-wait", type=float, metavar="SEC")
    parser.add_argument("--trace-duration", type=float, metavar="SEC")
    parser.add_argument("--trace-periods", nargs="+", metavar="DELAY:DURATION:REPEAT")
    parser.add_argument("--trace-clock-id", metavar="CLOCK")
    parser.add_argument("--profile-format", nargs="+", choices=("text", "json", "console"))
    parser.add_argument("--profile-diff", nargs="+", metavar="PATH")


def _add_sampling(parser: argparse.ArgumentParser, run: bool) -> None:
    if run:
        parser.add_argument("-S", "--sample", nargs="?", const="cputime", choices=("cputime", "realtime"))
    else:
        parser.set_defaults(sample="cputime")
    parser.add_argument("--process-freq", type=float, metavar="N", help="telemetry samples a second")
    parser.add_argument("--process-wait", type=float, metavar="SEC")
    parser.add_argument("--process-duration", type=float, metavar="SEC")
    parser.add_argument("--cpus", nargs="+")
    parser.add_argument("--gpus", nargs="+")
    parser.add_argument("-f", "--freq", type=float, metavar="N", help="call stacks a second; default 300")
    parser.add_argument("--sampling-wait", type=float, metavar="SEC", help="default 0.5")
    parser.add_argument("--sampling-duration", type=float, metavar="SEC")
    parser.add_argument("-t", "--tids", nargs="+", help="threads to sample")
    parser.add_argument("--cputime", nargs="*", help="sample by CPU time")
    parser.add_argument("--realtime", nargs="*", help="sample by wall-clock time")
    parser.add_argument("-C", "--cpu-events", nargs="+")
    parser.add_argument("-G", "--gpu-events", nargs="+")

"""The options of rocprof-compute 3.3 (ROCm 7.1).

Source: github.com/ROCm/rocm-systems, projects/rocprofiler-compute, src/argparser.py.
"""

from __future__ import annotations

import argparse
import re

from proflab.standins import release

ARCHITECTURES = ("gfx908", "gfx90a", "gfx942", "gfx950")
DATA_TYPES = ("FP4", "FP6", "FP8", "FP16", "BF16", "FP32", "FP64", "I8", "I32", "I64")
_METRIC = re.compile(r"\d+(\.\d{1,2}(\.\d{1,2})?)?")


def metric_id(text: str) -> str:
    """A block, table or metric such as 2, 2.1 or 2.1.4."""
    if not _METRIC.fullmatch(text):
        raise argparse.ArgumentTypeError(f"Invalid hardware block or metric id: {text}")
    return text


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The modes profile and analyze, and what goes without a mode."""
    parser = argparse.ArgumentParser(
        prog=tool,
        description=f"Stand-in for {tool} {release.ROCPROF_COMPUTE}.",
        usage="%(prog)s [mode] [options]",
        allow_abbrev=False,
    )
    _add_general(parser)
    modes = parser.add_subparsers(dest="mode", help="what to do")
    profile = modes.add_parser("profile", help="run a program and count", allow_abbrev=False)
    profile.usage = "rocprof-compute profile --name <workload_name> [options] -- <command>"
    _add_general(profile)
    _add_profile(profile)
    analyze = modes.add_parser("analyze", help="show tables of a workload folder", allow_abbrev=False)
    analyze.usage = "rocprof-compute analyze --path <workload_path> [options]"
    _add_general(analyze)
    _add_analyze(analyze)
    return parser


def _add_general(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--version", action="store_true", help="print the version and exit")
    parser.add_argument("-V", "--verbose", action="count", default=0)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-s", "--specs", action="store_true", help="print what is known of the machine")


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--name", metavar="", help="name of the workload")
    parser.add_argument("-p", "--path", default="workloads", metavar="", help="folder (default: ./workloads/<name>)")
    parser.add_argument("--subpath", default="gpu_model", choices=("node_name", "gpu_model"), metavar="")
    parser.add_argument("-k", "--kernel", nargs="+", default=[], metavar="", help="only kernels with this in the name")
    parser.add_argument("-d", "--dispatch", nargs="+", default=[], type=int, metavar="", help="only these dispatches")
    parser.add_argument("-b", "--block", nargs="+", default=[], type=metric_id, metavar="", help="metric ids")
    parser.add_argument("--set", dest="metric_set", metavar="", help="set of metrics of one pass")
    parser.add_argument("--list-sets", action="store_true", help="print the sets")
    parser.add_argument("--list-metrics", nargs="?", const="", choices=("", *ARCHITECTURES), metavar="")
    parser.add_argument("--no-roof", action="store_true", help="no roofline")
    parser.add_argument("--roof-only", action="store_true", help="roofline only")
    parser.add_argument("-R", "--roofline-data-type", nargs="+", choices=DATA_TYPES, default=["FP32"], metavar="")
    parser.add_argument("-m", "--mem-level", nargs="+", choices=("HBM", "L2", "vL1D", "LDS"), metavar="")
    parser.add_argument("--sort", choices=("kernels", "dispatches"), default="kernels", metavar="")
    parser.add_argument("--device", type=int, default=-1, metavar="")
    parser.add_argument("--kernel-names", action="store_true")
    parser.add_argument("--join-type", choices=("kernel", "grid"), default="grid", metavar="")
    parser.add_argument("--format-rocprof-output", choices=("csv", "rocpd"), default="csv", metavar="")
    parser.add_argument("--hip-trace", action="store_true")
    parser.add_argument("--attach-pid", metavar="")
    parser.add_argument("--attach-duration-msec", metavar="")


def _add_analyze(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--path", nargs="+", action="append", metavar="", help="workload folders")
    parser.add_argument("--list-stats", action="store_true", help="kernels and dispatches")
    parser.add_argument("--list-metrics", choices=ARCHITECTURES, metavar="")
    parser.add_argument("-k", "--kernel", nargs="+", type=int, metavar="", help="number of --list-stats")
    parser.add_argument("-d", "--dispatch", nargs="+", metavar="")
    parser.add_argument("-b", "--block", nargs="+", type=metric_id, default=[], metavar="", help="metric ids")
    parser.add_argument("--gpu-id", nargs="+", metavar="")
    parser.add_argument("--output-format", choices=("stdout", "txt", "csv", "db"), default="stdout", metavar="")
    parser.add_argument("--output-name", metavar="")
    parser.add_argument("--gui", type=int, nargs="?", const=8050)
    parser.add_argument("--tui", type=int, nargs="?", const=8050)
    parser.add_argument("--max-stat-num", type=int, default=10, metavar="")
    normal_units = ("per_wave", "per_cycle", "per_second", "per_kernel")
    parser.add_argument("-n", "--normal-unit", choices=normal_units, default="per_kernel", metavar="")
    parser.add_argument("-t", "--time-unit", choices=("s", "ms", "us", "ns"), default="ns", metavar="")
    parser.add_argument("--decimal", type=int, default=2, metavar="")
    parser.add_argument("--include-cols", nargs="+", metavar="")
    parser.add_argument("--specs-correction", metavar="")
    parser.add_argument("-R", "--roofline-data-type", nargs="+", choices=DATA_TYPES, default=["FP32"], metavar="")

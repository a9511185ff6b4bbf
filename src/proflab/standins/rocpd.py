"""Stand-in for rocpd: convert, query and summary of rocprofv3's databases; it reads real ones as well.

Options: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/docs/how-to/using-rocpd-output-format.rst and
source/lib/python/rocpd (ROCm 7).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cifar_train.errors import UserError
from proflab.standins import release

FORMATS = ("console", "csv", "html", "json", "md", "pdf", "dashboard", "clipboard")
MODELLED_FORMATS = ("console", "csv", "html", "json", "md")
CATEGORIES = ("HIP", "HSA", "RCCL", "MARKER", "ROCDECODE", "ROCJPEG", "NONE")


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0, or 2 for a wrong option or database."""
    options = build_parser(tool).parse_args(arguments)
    if options.version:
        from proflab.standins.rocprofv3 import version_lines

        print("\n".join(version_lines()))
        return 0
    if options.command is None:
        build_parser(tool).print_help()
        return 0
    if options.start_marker or options.end_marker:
        raise UserError(
            "--start-marker and --end-marker need a view `markers`, which databases of ROCm 7 do not have; "
            "use --start and --end"
        )
    print(
        f"{tool}: stand-in, nothing was measured here: it reads {', '.join(map(str, options.input))}", file=sys.stderr
    )
    from proflab.standins import rocpd_convert, rocpd_summary
    from proflab.standins.rocpd_databases import opened

    commands = {"convert": rocpd_convert.convert, "query": rocpd_summary.query, "summary": rocpd_summary.summary}
    with opened(options.input) as databases:
        commands[options.command](databases, options)
    return 0


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The three sub-commands."""
    parser = argparse.ArgumentParser(
        prog=tool, description=f"Stand-in for {tool} of ROCm {release.ROCM}.", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    parser.set_defaults(start_marker=None, end_marker=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, text, add in (
        ("convert", "write CSV or Perfetto files", _add_convert),
        ("query", "run one SQL statement", _add_query),
        ("summary", "statistics of kernels, copies and calls", _add_summary),
    ):
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        _add_common(command)
        add(command)
    return parser


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("-i", "--input", nargs="+", required=True, type=Path, metavar="DB", help="databases, as one")
    command.add_argument("-o", "--output-file", default=os.environ.get("ROCPD_OUTPUT_NAME"), help="base of file names")
    command.add_argument(
        "-d",
        "--output-path",
        type=Path,
        default=Path(os.environ.get("ROCPD_OUTPUT_PATH", "rocpd-output-data")),
        help="folder (default: ./rocpd-output-data)",
    )
    command.add_argument("--start", help="begin of a window: percent (30%%) or ns")
    command.add_argument("--end", help="end of a window: percent or ns")
    command.add_argument("--start-marker", help="begin of a window: text of a ROCTx range")
    command.add_argument("--end-marker", help="end of a window: text of a ROCTx range")
    truths = ("True", "true", "1", "False", "false", "0")
    command.add_argument(
        "--inclusive", nargs="?", const="True", default="True", choices=truths, help="whole events only"
    )


def _add_convert(command: argparse.ArgumentParser) -> None:
    command.add_argument("-f", "--output-format", nargs="+", required=True, choices=("csv", "pftrace", "otf2"))
    command.add_argument("--kernel-rename", action="store_true", help="name kernels after the ROCTx range around them")
    command.add_argument("--group-by-queue", action="store_true", help="tracks by queue instead of stream")
    command.add_argument("--agent-index-value", choices=("absolute", "relative", "type-relative"), default="relative")
    command.add_argument("--perfetto-backend", choices=("inprocess", "system"))
    command.add_argument("--perfetto-buffer-size", type=int, metavar="KB")
    command.add_argument("--perfetto-buffer-fill-policy", choices=("discard", "ring_buffer"))
    command.add_argument("--perfetto-shmem-size-hint", type=int, metavar="KB")


def _add_query(command: argparse.ArgumentParser) -> None:
    command.add_argument("--query", required=True, help="one SQL statement")
    command.add_argument("--script", type=Path, help="SQL file that is run first")
    command.add_argument("--format", choices=FORMATS, default="console", help="where the rows go")


def _add_summary(command: argparse.ArgumentParser) -> None:
    command.add_argument("--domain-summary", action="store_true", help="one row per domain too")
    command.add_argument("--summary-by-rank", action="store_true", help="tables by process too")
    command.add_argument("--region-categories", nargs="+", type=str.upper, choices=CATEGORIES, help="which calls")
    command.add_argument("-f", "--format", choices=FORMATS[:6], default="console", help="where the tables go")

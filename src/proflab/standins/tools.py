"""The tools that have a stand-in: the module of each, its command line, and how it refuses.

To add a tool, add a line to MODULE_OF_TOOL, and a copy of any file in bin. Reading a command line
runs nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from proflab.standins import options as tables
from proflab.standins.options import at_dashes

MODULE_OF_TOOL = {
    "amd-smi": "amd_smi",
    "omnistat-query": "omnistat",
    "omnistat-usermode": "omnistat",
    "rocpd": "rocpd",
    "rocprof-compute": "rocprof_compute",
    "rocprof-sys-avail": "rocprof_sys_avail",
    "rocprof-sys-run": "rocprof_sys",
    "rocprof-sys-sample": "rocprof_sys",
    "rocprofv3": "rocprofv3",
    "rocprofv3-avail": "rocprofv3_avail",
    "rpd2tracing": "rpd2tracing",
    "runTracer.sh": "run_tracer",
}
"""The module has `run(tool, options, program) -> int | None`: the exit code, or None to show the
help.

It may have `version(tool)`, the text of --version; `split(arguments)`, if the program is not after
`--`; `verify(tool, options, program)`, which raises ToolError for options that the tool itself
refuses; and `PARSER`, a class of parser that refuses options in the tool's own words. The options
are in options/MODULE.toml.
"""


def module_of(tool: str) -> Any:
    """The module of a tool in MODULE_OF_TOOL."""
    return import_module(f"proflab.standins.{MODULE_OF_TOOL[tool]}")


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The parser of a tool in MODULE_OF_TOOL."""
    return tables.build_parser(
        MODULE_OF_TOOL[tool], tool, getattr(module_of(tool), "PARSER", argparse.ArgumentParser)
    )


def split(tool: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tool's own words, and those of the program that it is to start."""
    return getattr(module_of(tool), "split", at_dashes)(arguments)


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises ToolError if the tool itself would refuse these options together."""
    own_verify = getattr(module_of(tool), "verify", None)
    if own_verify and not getattr(options, "version", False):
        own_verify(tool, options, program)

"""Stand-in for rocprof-sys-run and rocprof-sys-sample."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from proflab.standins.options import ToolError, at_dashes
from proflab.standins.release import sys_version
from proflab.standins.rocprof_sys_settings import Settings, default_of, settings_of
from tidyprof.errors import UserError

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run
    from proflab.standins.play import Played


NOT_MODELLED = ("ROCPROFSYS_FLAT_PROFILE", "ROCPROFSYS_USE_ROCPD")
"""Switches for outputs of the real tool that the model lacks: better no file than a wrong one."""


class PARSER(argparse.ArgumentParser):
    """A parser that refuses as rocprof-sys does."""

    def error(self, message: str) -> NoReturn:
        """Raise ToolError with one line and exit code 1."""
        raise ToolError(f"[{self.prog}] Error! {message}", 1)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tool's own words, and the program: the words after `--`, or all words if the first one is
    no option.
    """
    words = list(arguments)
    if words and not words[0].startswith("-") and "--" not in words:
        return [], words
    return at_dashes(words)


def version(tool: str) -> str:
    """The output of --version."""
    return sys_version(tool)


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int:
    """Play the program and write the files. Returns 0, or 1 for a wrong option, as rocprof-sys
    does. Raises UserError for outputs that are not modelled.
    """
    files = ":".join(options.config) or os.environ.get("ROCPROFSYS_CONFIG_FILE", "")
    settings = Settings(files, os.environ, settings_of(tool, options))
    verify(tool, options, program)
    for name in NOT_MODELLED:
        if settings.on(name) and default_of(name) != "true":
            raise UserError(f"{name} is not modelled here; leave it out")
    if not (settings.on("ROCPROFSYS_TRACE") or settings.on("ROCPROFSYS_PROFILE")):
        raise UserError(
            "rocpd.db, what this release writes by default, is not modelled here; add --trace or"
            " --profile"
        )
    from proflab.standins.play import play

    played = play(tool, program, profiler="rocprof-sys", stacks=settings.sampling())
    for rank in played.ranks:
        for path in _write(played, rank, settings):
            print(f"[rocprofiler-systems][{rank.process_id}]> Outputting '{path}'", file=sys.stderr)
    return 0


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises ToolError if there is no program to run."""
    if not program:
        raise ToolError(f"[{tool}] Error! No command was given: {tool} [options] -- <command>", 1)


def _write(played: Played, rank: RankRun, settings: Settings) -> list[Path]:
    from gpumodel import writers
    from proflab.standins.output_files import MARKER, expand

    process = played.process(rank)
    run = _recorded(played.run, settings)
    written: list[Path] = []
    trace, profile = settings.on("ROCPROFSYS_TRACE"), settings.on("ROCPROFSYS_PROFILE")
    try:
        written += writers.write(
            "rocprof-sys",
            run,
            Path(),
            rank=rank.rank,
            trace=trace,
            profile=profile,
            output=expand(settings.text("ROCPROFSYS_OUTPUT_PATH"), process),
            prefix=expand(settings.text("ROCPROFSYS_OUTPUT_PREFIX"), process),
            time_output=settings.on("ROCPROFSYS_TIME_OUTPUT"),
        )
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be written ({error.strerror}); give another folder with -o"
        ) from error
    return [path for path in written if not path.name.endswith(MARKER)]


def _recorded(run: Run, settings: Settings) -> Run:
    """The run without the parts that were switched off, and within the time window."""
    from proflab.standins.rocprofv3_records import is_memory_copy, within

    domains = {word.strip() for word in settings.text("ROCPROFSYS_ROCM_DOMAINS").split(",")}
    if not settings.on("ROCPROFSYS_USE_ROCM"):
        domains = set()
    begin = run.start_ns + settings.number("ROCPROFSYS_TRACE_DELAY") * 1e9
    duration = settings.number("ROCPROFSYS_TRACE_DURATION") * 1e9
    end = begin + duration if duration else float("inf")
    ranks = []
    for rank in run.ranks:
        copies = is_memory_copy(rank.device_work)
        wanted = (copies & ("memory_copy" in domains)) | (~copies & ("kernel_dispatch" in domains))
        rank = replace(
            rank,
            device_work=rank.device_work[wanted].reset_index(drop=True),
            calls=rank.calls if domains & {"hip_runtime_api", "hip_api"} else rank.calls.iloc[:0],
            annotations=rank.annotations if "marker_api" in domains else rank.annotations.iloc[:0],
            counters=(
                rank.counters if settings.on("ROCPROFSYS_USE_AMD_SMI") else rank.counters.iloc[:0]
            ),
        )
        ranks.append(within(rank, begin, end))
    return replace(run, ranks=tuple(ranks))

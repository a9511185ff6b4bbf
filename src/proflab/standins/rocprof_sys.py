"""Stand-in for rocprof-sys-run and rocprof-sys-sample."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError
from proflab.standins import release
from proflab.standins.errors import ToolError
from proflab.standins.rocprof_sys_options import build_parser, settings_of, split
from proflab.standins.rocprof_sys_settings import Settings

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run
    from proflab.standins.play import Played


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0, or 1 as rocprof-sys where an option is wrong."""
    own, program = split(arguments)
    options = build_parser(tool).parse_args(own)
    if options.version:
        print(version_line(tool))
        return 0
    if not arguments:
        build_parser(tool).print_help()
        return 0
    files = ":".join(options.config) or os.environ.get("ROCPROFSYS_CONFIG_FILE", "")
    settings = Settings(files, os.environ, settings_of(options))
    verify(tool, options, program)
    _refuse_unmodelled(options, settings)
    from proflab.standins.play import play

    played = play(tool, program, profiler="rocprof-sys", stacks=settings.on("ROCPROFSYS_USE_SAMPLING"))
    for rank in played.ranks:
        for path in _write(played, rank, settings):
            print(f"[rocprofiler-systems][{rank.process_id}]> Outputting '{path}'", file=sys.stderr)
    return 0


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises ToolError where there is nothing to run."""
    if not program and not options.version:
        raise ToolError(f"[{tool}] Error! No command was given: {tool} [options] -- <command>", 1)


def version_line(tool: str) -> str:
    """What --version prints; the revision says that this is a stand-in."""
    return (
        f"{tool} v{release.ROCPROF_SYS} (rev: {release.REVISION}, compiler: {release.REVISION}, "
        f"rocm: v{release.ROCPROF_SYS_ROCM})"
    )


def _refuse_unmodelled(options: object, settings: Settings) -> None:
    """What the real tool would do, and the model does not: better no file than a wrong one."""
    if settings.on("ROCPROFSYS_FLAT_PROFILE"):
        raise UserError("--flat-profile is not modelled; --profile gives the same times by depth")
    for name, text in (("cpu_events", "-C"), ("gpu_events", "-G"), ("profile_diff", "--profile-diff")):
        if getattr(options, name):
            raise UserError(f"{text} is not modelled; leave it out")
    if getattr(options, "trace_file", None) or getattr(options, "trace_periods", None):
        raise UserError("--trace-file and --trace-periods are not modelled; use -o for names and -w, -d for a window")


def _write(played: Played, rank: RankRun, settings: Settings) -> list[Path]:
    from gpumodel import writers
    from proflab.standins.deliver import MARKER
    from proflab.standins.placeholders import expand

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
    if settings.on("ROCPROFSYS_USE_ROCPD"):
        written.append(_write_database(run, rank, written[0].parent))
    return [path for path in written if not path.name.endswith(MARKER)]


def _write_database(run: Run, rank: RankRun, folder: Path) -> Path:
    from proflab.standins.deliver import deliver, place

    scratch = deliver("rocpd", run, rank, folder / f"{rank.process_id}")
    return place(next(path for path in scratch if path.suffix == ".db"), folder / f"rocpd-{rank.process_id}.db")


def _recorded(run: Run, settings: Settings) -> Run:
    """The run without what was switched off, and within the time window."""
    from proflab.standins.rocprofv3_selection import is_memory_copy, within

    domains = {word.strip() for word in settings.text("ROCPROFSYS_ROCM_DOMAINS").split(",")}
    if not settings.on("ROCPROFSYS_USE_ROCM"):
        domains = set()
    begin = run.start_ns + settings.number("ROCPROFSYS_TRACE_DELAY") * 1e9
    duration = settings.number("ROCPROFSYS_TRACE_DURATION") * 1e9
    window = (begin, begin + duration if duration else float("inf"))
    ranks = []
    for rank in run.ranks:
        copies = is_memory_copy(rank.device_work)
        wanted = (copies & ("memory_copy" in domains)) | (~copies & ("kernel_dispatch" in domains))
        rank = replace(
            rank,
            device_work=rank.device_work[wanted].reset_index(drop=True),
            calls=rank.calls if domains & {"hip_runtime_api", "hip_api"} else rank.calls.iloc[:0],
            annotations=rank.annotations if "marker_api" in domains else rank.annotations.iloc[:0],
            counters=rank.counters if settings.on("ROCPROFSYS_USE_AMD_SMI") else rank.counters.iloc[:0],
        )
        ranks.append(within(rank, [window]))
    return replace(run, ranks=tuple(ranks))

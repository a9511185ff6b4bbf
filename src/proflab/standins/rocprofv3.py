"""Stand-in for rocprofv3."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.standins.options import ToolError
from proflab.standins.release import default, sdk_version
from proflab.standins.rocprofv3_options import check, passes
from tidyprof.errors import UserError

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run
    from proflab.standins.play import Played

WRITERS = {"csv": "rocprofv3-csv", "json": "rocprofv3-json", "rocpd": "rocpd"}
"""Output format -> the model's writer, for every format but pftrace."""

DEFAULT_FILE = "%hostname%/%pid%"


def version(tool: str) -> str:
    """The output of --version."""
    return sdk_version()


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int:
    """Play and write. Exit codes as rocprofv3's: 0, 1 for a fatal error, 2 for a wrong option."""
    if options.list_avail:
        from proflab.standins.rocprofv3_avail import list_counters

        list_counters()
        return 0
    warnings, runs = verify(tool, options, program), passes(options)
    for one in runs:
        _refuse_unmodelled(one)
    from proflab.standins.play import play

    # The program runs again for each list of counters, as under the tool.
    for one in runs:
        played = play(tool, program, profiler="rocprofv3")
        print("".join(f"{line}\n" for line in warnings), end="", file=sys.stderr)
        _write(played, one)
    return 0


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> list[str]:
    """The warnings for these options; raises ToolError for options that rocprofv3 refuses before it
    starts anything.
    """
    if options.list_avail:
        return []
    if not program and options.pid is None:
        raise ToolError("Fatal error: No application provided", 1)
    return check(passes(options)[0])


def _refuse_unmodelled(options: argparse.Namespace) -> None:
    """Raises UserError for options that only the stand-in cannot do, ToolError for faults that
    rocprofv3 finds while it starts.
    """
    if options.advanced_thread_trace:
        raise ToolError(
            "Fatal error: rocprof-trace-decoder library path not found in ['/opt/rocm/lib']", 1
        )
    if options.pc_sampling_unit or options.pc_sampling_method or options.pc_sampling_interval:
        _check_sampling(options)
    if options.pmc:
        _check_counters(options)
    if "otf2" in (options.output_format or ()):
        raise UserError("--output-format otf2 is not modelled; ask for csv, json, pftrace or rocpd")
    if options.agent_index == "type-relative":
        raise UserError(
            "--agent-index type-relative is not modelled; leave it out, agents then count CPUs and"
            " GPUs"
        )


def _check_counters(options: argparse.Namespace) -> None:
    from gpumodel.devices import device
    from proflab.standins import rocprofv3_records
    from proflab.standins.play import device_name

    rocprofv3_records.check(options, device(device_name()))


def _check_sampling(options: argparse.Namespace) -> None:
    if not options.pc_sampling_beta_enabled:
        raise ToolError(
            "Fatal error: PC sampling unavailable. The feature is implicitly disabled. To enable"
            " it, use --pc-sampling-beta-enable option or set"
            " ROCPROFILER_PC_SAMPLING_BETA_ENABLED=ON in the environment",
            1,
        )
    if not (
        options.pc_sampling_unit and options.pc_sampling_method and options.pc_sampling_interval
    ):
        raise ToolError("Fatal error: All three PC sampling configurations need to be set", 1)
    raise UserError("PC sampling is not modelled; leave its options out")


def _write(played: Played, options: argparse.Namespace) -> None:
    """Write each rank's files, in order of rank: a later rank replaces files of the same name."""
    from proflab.standins.output_files import expand
    from proflab.standins.rocprofv3_records import (
        events_of,
        is_profiled,
        print_summary,
        recorded,
        traces_of,
    )

    run, traces = recorded(played.run, options), traces_of(options)
    for rank in (run.ranks[number] for number in played.command.ranks):
        process, events = played.process(rank), events_of(run, rank, traces)
        if not is_profiled(process.environment, options):
            continue
        if events.empty and not options.pmc:
            continue  # rocprofv3 writes no file for a process without records
        prefix = Path(expand(options.output_directory or ".", process)) / expand(
            options.output_file or DEFAULT_FILE, process
        )
        for file in _files(run, rank, options, traces, prefix):
            print(f"Opened result file: {file}", file=sys.stderr)
        if options.summary:
            print_summary(events, options.summary_units or "nsec")


def _files(
    run: Run, rank: RankRun, options: argparse.Namespace, traces: tuple[str, ...], prefix: Path
) -> list[Path]:
    from proflab.standins.output_files import MARKER, deliver
    from proflab.standins.rocprofv3_records import of_traces

    written = []
    for name in dict.fromkeys(
        options.output_format or [default("rocprofv3", "--output-format", "rocpd")]
    ):
        if name == "pftrace":
            # Its writer takes all events, so those that nobody asked for are taken out first.
            shown = of_traces(rank, traces)
            ranks = tuple(shown if one is rank else one for one in run.ranks)
            written += deliver(
                "perfetto", replace(run, ranks=ranks), shown, prefix, calls="hip" in traces
            )
            continue
        more = {"stats": bool(options.stats)} if name == "csv" else {}
        written += deliver(WRITERS[name], run, rank, prefix, traces=traces, **more)
    if options.pmc:
        from proflab.standins import rocprofv3_records

        written += rocprofv3_records.write(run, rank, options, prefix)
    return [path for path in written if not path.name.endswith(MARKER)]

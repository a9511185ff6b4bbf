"""Stand-in for rocprofv3."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError
from proflab.standins import release
from proflab.standins.command_lines import at_dashes as split
from proflab.standins.errors import ToolError
from proflab.standins.rocprofv3_options import build_parser, check

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run
    from proflab.standins.play import Played

WRITERS = {"csv": "rocprofv3-csv", "json": "rocprofv3-json", "rocpd": "rocpd"}
"""The model's writer for each output format but pftrace."""

DEFAULT_FILE = "%hostname%/%pid%"


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; exit codes as rocprofv3's: 0, 1 for a fatal error, 2 for a wrong option."""
    own, program = split(arguments)
    options = build_parser(tool).parse_args(own)
    if options.version:
        print("\n".join(version_lines()))
        return 0
    if not arguments:
        build_parser(tool).print_help()
        return 0
    if options.list_avail:
        return _list_counters()
    passes = _passes(options)
    warnings = [line for _, job in passes for line in _checked(job, program)]
    from proflab.standins.play import play

    played = play(tool, program, profiler="rocprofv3")
    print("".join(f"{line}\n" for line in warnings), end="", file=sys.stderr)
    for folder, job in passes:
        _write(played, job, folder)
    return 0


def version_lines() -> list[str]:
    """What --version prints; the revision says that this is a stand-in."""
    values = {
        "version": release.ROCPROFILER_SDK,
        "git_revision": release.REVISION,
        "library_arch": f"{platform.machine()}-linux-gnu",
        "system_name": platform.system(),
        "system_processor": platform.machine(),
        "system_version": platform.release(),
        "compiler_id": release.REVISION,
        "compiler_version": release.REVISION,
        "rocm_version": release.ROCM,
    }
    return [f"    {name:>16}: {value}" for name, value in values.items()]


def _list_counters() -> int:
    from proflab.standins import rocprofv3_avail

    return rocprofv3_avail.main("rocprofv3-avail", ["info", "--pmc"])


def _passes(options: argparse.Namespace) -> list[tuple[str, argparse.Namespace]]:
    if not options.input:
        return [("", options)]
    from proflab.standins.rocprofv3_jobs import jobs_of, merged

    return [(folder, merged(options, job)) for folder, job in jobs_of(Path(options.input))]


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> list[str]:
    """Warnings; raises ToolError for what rocprofv3 refuses before it starts anything."""
    if options.version or options.list_avail:
        return []
    if not program and options.pid is None:
        raise ToolError("Fatal error: No application provided", 1)
    return check(options)


def _checked(options: argparse.Namespace, program: list[str]) -> list[str]:
    """Warnings; raises ToolError for what rocprofv3 refuses and UserError for what only the stand-in cannot do."""
    warnings = verify("rocprofv3", options, program)
    if options.pid is not None:
        raise UserError("attaching to a process is not possible without a GPU; start the workload behind --")
    if options.advanced_thread_trace:
        raise ToolError("Fatal error: rocprof-trace-decoder library path not found in ['/opt/rocm/lib']", 1)
    if options.pc_sampling_unit or options.pc_sampling_method or options.pc_sampling_interval:
        _check_sampling(options)
    if options.pmc:
        _check_counters(options)
    if "otf2" in (options.output_format or ()):
        raise UserError("--output-format otf2 is not modelled; ask for csv, json, pftrace or rocpd")
    if options.agent_index == "type-relative":
        raise UserError("--agent-index type-relative is not modelled; leave it out, agents then count CPUs and GPUs")
    return warnings


def _check_counters(options: argparse.Namespace) -> None:
    from gpumodel.devices import device
    from proflab.standins import rocprofv3_counters
    from proflab.standins.play import device_name

    rocprofv3_counters.check(options, device(device_name()))


def _check_sampling(options: argparse.Namespace) -> None:
    if not options.pc_sampling_beta_enabled:
        raise ToolError(
            "Fatal error: PC sampling unavailable. The feature is implicitly disabled. To enable it, use "
            "--pc-sampling-beta-enable option or set ROCPROFILER_PC_SAMPLING_BETA_ENABLED=ON in the environment",
            1,
        )
    if not (options.pc_sampling_unit and options.pc_sampling_method and options.pc_sampling_interval):
        raise ToolError("Fatal error: All three PC sampling configurations need to be set", 1)
    raise UserError("PC sampling is not modelled; leave its options out")


def _write(played: Played, options: argparse.Namespace, folder: str) -> None:
    """Write each rank's files, in order of rank: a later rank replaces files of the same name."""
    from proflab.standins.placeholders import expand
    from proflab.standins.rocprofv3_selection import profiled_ranks, recorded, traces_of
    from proflab.standins.rocprofv3_summary import events_of, print_summaries

    run, traces = recorded(played.run, options), traces_of(options)
    profiled = profiled_ranks(options.profile_mpi_ranks)
    for rank in (run.ranks[number] for number in played.command.ranks if profiled is None or number in profiled):
        events = events_of(run, rank, traces)
        if events.empty and not options.pmc:
            continue  # rocprofv3 writes no file for a process without records
        process = played.process(rank)
        path = Path(expand(options.output_directory or ".", process)) / folder
        prefix = path / expand(options.output_file or DEFAULT_FILE, process)
        for file in _files(run, rank, options, traces, prefix):
            print(f"Opened result file: {file}", file=sys.stderr)
        print_summaries(events, options, prefix)


def _files(run: Run, rank: RankRun, options: argparse.Namespace, traces: tuple[str, ...], prefix: Path) -> list[Path]:
    from proflab.standins.deliver import MARKER, deliver
    from proflab.standins.rocprofv3_selection import of_traces

    written = []
    for name in dict.fromkeys(options.output_format or ["rocpd"]):
        if name == "pftrace":
            # Its writer takes what is there, so what nobody asked for is taken out first.
            shown = of_traces(rank, traces)
            ranks = tuple(shown if one is rank else one for one in run.ranks)
            written += deliver("perfetto", replace(run, ranks=ranks), shown, prefix, calls="hip" in traces)
            continue
        more = {"stats": bool(options.stats)} if name == "csv" else {}
        written += deliver(WRITERS[name], run, rank, prefix, traces=traces, **more)
    if options.pmc:
        from proflab.standins import rocprofv3_counters

        written += rocprofv3_counters.write(run, rank, options, prefix)
    return [path for path in written if not path.name.endswith(MARKER)]

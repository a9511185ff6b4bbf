"""Stand-in for rocprof-compute: profile, and analyze for blocks 0 and 2.

The model counts everything in one played run; the real tool runs the program once for each group of
counters.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.standins import release
from proflab.standins.options import ToolError
from tidyprof.errors import UserError
from tidyprof.whole_files import whole_file

if TYPE_CHECKING:
    from proflab.standins.play import Played


def version(tool: str) -> str:
    """The output of --version; the revision tells that this is a stand-in."""
    line = "-" * 40
    name = f"rocprofiler-compute version: {release.version_of('rocprof-compute')} (release)"
    return "\n".join([line, name, f"Git revision: {release.REVISION}", line])


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int | None:
    """Profile or analyze. Returns 0; 1 for errors of rocprof-compute, 2 for a wrong option."""
    if options.mode is None:
        return None
    if options.list_metrics is not None:
        from proflab.standins import rocprof_compute_tables

        rocprof_compute_tables.print_metric_ids(options.list_metrics)
        return 0
    verify(tool, options, program)
    return (
        _analyze(tool, options) if options.mode == "analyze" else _profile(tool, options, program)
    )


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises ToolError for options that rocprof-compute refuses before it starts anything."""
    if options.mode == "analyze" and not (options.path or options.list_metrics):
        raise ToolError("ERROR The following arguments are required: -p/--path", 1)
    if options.mode != "profile" or options.list_sets or options.list_metrics is not None:
        return
    if not options.name:
        raise ToolError("ERROR -n/--name is required", 1)
    refused = "/" if release.is_at_least("7.0") else "-."
    if set(refused) & set(options.name):
        raise ToolError(f"ERROR {' and '.join(map(repr, refused))} not permitted in -n/--name", 1)
    if options.no_roof and options.roof_only:
        raise ToolError("ERROR --roof-only cannot be combined with --no-roof", 1)
    if not program and not options.attach_pid:
        raise ToolError(
            "ERROR Profiling command required. Pass application executable after -- at the end.", 1
        )


def _profile(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int:
    from gpumodel.writers.rocprof_compute.counters import SETS

    if options.list_sets:
        print("\n".join(SETS))
        return 0
    from proflab.standins.play import play

    played = play(tool, program)
    if len(played.run.ranks) > 1:
        raise UserError("several ranks are not modelled here; leave the launcher out")
    with tempfile.TemporaryDirectory() as scratch:
        folder = _workload(played, options, Path(scratch))
        target = _target(options, played.run.hostname, folder.name)
        _deliver(folder, target, options)
    print(f"Rocprofiler-Compute version: {release.version_of('rocprof-compute')}")
    print(f"Path: {target}\nTarget: {folder.name}\nCommand: {' '.join(program)}")
    return 0


def _workload(played: Played, options: argparse.Namespace, scratch: Path) -> Path:
    """The folder that the model's writer makes below `scratch`."""
    from gpumodel import writers

    files = writers.write(
        "rocprof-compute",
        played.run,
        scratch,
        rank=played.ranks[0].rank,
        name=options.name,
        layout={"csv": "wide", "rocpd": "long"}[_output_format(options)],
        joined=not release.is_at_least("7.13"),
        compressed=release.is_at_least("10.1"),
        kernels=options.kernel,
        dispatches=options.dispatch,
        blocks=options.block,
        metric_set=options.metric_set,
        roof=not options.no_roof,
        roof_only=options.roof_only,
    )
    return next(path.parent for path in files if path.name == "sysinfo.csv")


def _deliver(folder: Path, target: Path, options: argparse.Namespace) -> None:
    """Copy the workload. Since ROCm 10.0 files of another run are refused or replaced; before that
    they stayed among the new ones.
    """
    if release.has("rocprof-compute", "--overwrite") and target.is_dir() and any(target.iterdir()):
        if not options.overwrite:
            raise ToolError(f"ERROR {target} is not empty; --overwrite replaces what is in it", 1)
        shutil.rmtree(target)
    try:
        shutil.copytree(folder, target, dirs_exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written ({error.strerror}); begin in another folder"
        ) from error


def _output_format(options: argparse.Namespace) -> str:
    """The format of the counters: a database from the release on that has no option for it any
    more.
    """
    given = getattr(options, "format_rocprof_output", None)
    return given or release.default("rocprof-compute", "--format-rocprof-output", "rocpd")


def _target(options: argparse.Namespace, hostname: str, gpu_model: str) -> Path:
    """The workload's folder."""
    if folder := getattr(options, "output_directory", None):
        return Path(folder.replace("%gpumodel%", gpu_model).replace("%hostname%", hostname))
    by_node = getattr(options, "subpath", "gpu_model") == "node_name"
    return (
        Path(getattr(options, "path", "workloads"))
        / options.name
        / (hostname if by_node else gpu_model)
    )


def _analyze(tool: str, options: argparse.Namespace) -> int:
    folders = [Path(path) for group in options.path for path in group]
    if options.output_format not in ("stdout", "txt"):
        raise UserError(
            f"--output-format {options.output_format} is not modelled; ask for stdout or txt"
        )
    if options.normal_unit != "per_kernel":
        raise UserError(f"-n {options.normal_unit} is not modelled; leave it out")
    print(
        f"{tool}: stand-in, nothing was measured here: it reads {', '.join(map(str, folders))}",
        file=sys.stderr,
    )
    from proflab.standins.rocprof_compute_tables import join_runs, tables_of

    for folder in folders:
        join_runs(folder)
    text = "\n".join(tables_of(folder, options) for folder in folders)
    if options.output_format == "txt":
        target = Path(f"{options.output_name or 'rocprof_compute'}.txt")
        try:
            with whole_file(target) as partial:
                partial.write_text(text)
        except OSError as error:
            raise UserError(
                f"{target} cannot be written ({error.strerror}); give another --output-name"
            ) from error
        print(f"{tool}: stand-in: tables of {', '.join(map(str, folders))} are in {target}")
    else:
        print(text, end="")
    return 0

"""Stand-in for omnistat-usermode and omnistat-query: a report of a modelled job.

Source: github.com/AMDResearch/omnistat (1.6). Between start and stop of the exporters a job runs; here PROFLAB_WORKLOAD
holds the command line of its workload, and the query plays it. Without it the node is idle.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError
from proflab.standins import release

if TYPE_CHECKING:
    import pandas as pd

    from gpumodel.run import Run

SHORTEST_INTERVAL_S = 0.005
STEPS = ("start", "stop", "startserver", "stopserver", "startexporters", "stopexporters")


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0, or 2 for a wrong option."""
    if tool == "omnistat-usermode":
        return _usermode(tool, arguments)
    return _query(tool, arguments)


def _usermode(tool: str, arguments: list[str]) -> int:
    parser = build_parser(tool)
    options = parser.parse_args(arguments)
    _check_interval(options.interval)
    asked = [step for step in STEPS if getattr(options, step)]
    if not asked:
        parser.print_help()
        return 0
    from proflab.standins.play import announce, device_name

    announce(tool, f"modelled {device_name()}; --{asked[0]} starts and stops nothing, omnistat-query plays the job")
    return 0


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The options of omnistat-usermode or omnistat-query."""
    parser = argparse.ArgumentParser(prog=tool, description=f"Stand-in for {tool} {release.OMNISTAT}.")
    parser.add_argument("--configfile")
    (_add_usermode if tool == "omnistat-usermode" else _add_query)(parser)
    return parser


def _add_usermode(parser: argparse.ArgumentParser) -> None:
    for step in STEPS:
        parser.add_argument(f"--{step}", action="store_true")
    parser.add_argument("--interval", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--pushinterval", type=float, default=5.0, metavar="MINUTES")
    parser.add_argument("-v", "--version", "--verbose", action="store_true")


def _add_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", required=True, help="number of the job")
    parser.add_argument("--step")
    parser.add_argument("--interval", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--output", type=Path, help="existing file to append the report to")
    parser.add_argument("--pdf", type=Path, help="not modelled")
    parser.add_argument("--export", nargs="?", const=".", type=Path, metavar="DIR", help="write CSV files")
    parser.add_argument("-v", "--version", action="store_true", help="print the version")


def _query(tool: str, arguments: list[str]) -> int:
    options = build_parser(tool).parse_args(arguments)
    if options.version:
        line = "-" * 40
        print(f"{line}\nOmnistat version: {release.OMNISTAT}\n{line}")
        return 0
    _check_interval(options.interval)
    if options.pdf:
        raise UserError("--pdf is not modelled; the report is printed, and --export writes the samples")
    run = _job(tool)
    table = _samples(run, options.interval, options.export)
    report = _report(table, options.job)
    print(report)
    if options.output:
        with options.output.open("a") as target:
            target.write(f"{report}\n")
    return 0


def _check_interval(seconds: float) -> None:
    if seconds < SHORTEST_INTERVAL_S:
        raise UserError(f"--interval {seconds:g}: omnistat samples every {SHORTEST_INTERVAL_S} s at the most often")


def _job(tool: str) -> Run:
    words = shlex.split(os.environ.get("PROFLAB_WORKLOAD", ""))
    if not words:
        raise UserError(
            "no job is known: set PROFLAB_WORKLOAD to the command line that ran, "
            "such as PROFLAB_WORKLOAD='srun -n 4 python -m cifar_train'"
        )
    from gpumodel.simulation import simulate
    from proflab.standins.play import announce, understand

    run = simulate(understand(words, dict(os.environ)).workload)
    announce(tool, f"modelled {run.device.name}, {run.error or 'error not known'}")
    return run


def _samples(run: Run, interval_s: float, folder: Path | None) -> pd.DataFrame:
    """What omnistat exports: columns (metric, instance, card); kept in `folder` where it is given."""
    import pandas as pd

    from gpumodel import writers

    with tempfile.TemporaryDirectory() as scratch:
        files = writers.write("omnistat", run, Path(scratch), interval_s=interval_s)
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                for path in files:
                    shutil.copy(path, folder)
            except OSError as error:
                raise UserError(f"{folder} cannot be written ({error.strerror}); give another --export") from error
        return pd.read_csv(files[0], header=[0, 1, 2], index_col=0)


_REPORT = {
    "Utilization (%)": "rocm_utilization_percentage",
    "Memory Use (%)": "rocm_vram_used_percentage",
    "Temperature (C)": "rocm_temperature_celsius",
    "Power (W)": "rocm_average_socket_power_watts",
}


def _report(table: pd.DataFrame, job: str) -> str:
    """omnistat's report card: maximum and mean of each device."""
    cards = sorted({card for _, _, card in table.columns}, key=int)
    lines = [f"Omnistat Report Card for Job # {job}", f"Job Overview (Num Nodes = 1, Samples = {len(table)})"]
    lines.append("       |" + "|".join(f"{name:^18}" for name in _REPORT) + "|")
    lines.append(" GPU # |" + "|".join("    Max     Mean  " for _ in _REPORT) + "|")
    for card in cards:
        cells = []
        for metric in _REPORT.values():
            values = table[metric].xs(card, axis=1, level=1).iloc[:, 0].dropna()
            cells.append(f"{values.max():7.2f}  {values.mean():7.2f}  " if len(values) else f"{'N/A':>7}  {'N/A':>7}  ")
        lines.append(f"{card:>6} |" + "|".join(cells) + "|")
    return "\n".join(lines)

"""Stand-in for omnistat-usermode and omnistat-query: a report of a modelled job.

Source: github.com/ROCm/omnistat (1.6). A real job runs between start and stop of the exporters;
here PROFLAB_WORKLOAD holds the command line of its workload, and the query plays it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.standins import release
from tidyprof.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from gpumodel.run import Run

SHORTEST_INTERVAL_S = 0.005
STEPS = ("start", "stop", "startserver", "stopserver", "startexporters", "stopexporters")


def version(tool: str) -> str:
    """The output of --version."""
    line = "-" * 40
    return f"{line}\nOmnistat version: {release.OMNISTAT}\n{line}"


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int | None:
    """Start and stop nothing, or play the job and report it. Returns 0. Raises UserError for too
    short an interval and for an unknown job.
    """
    if options.interval < SHORTEST_INTERVAL_S:
        raise UserError(
            f"--interval {options.interval:g}: omnistat samples every {SHORTEST_INTERVAL_S} s at"
            " the most often"
        )
    return _usermode(tool, options) if tool == "omnistat-usermode" else _query(tool, options)


def _usermode(tool: str, options: argparse.Namespace) -> int | None:
    asked = [step for step in STEPS if getattr(options, step)]
    if not asked:
        return None
    from proflab.standins.play import announce, device_name

    announce(
        tool,
        f"modelled {device_name()}; --{asked[0]} starts and stops nothing, omnistat-query plays"
        " the job",
    )
    return 0


def _query(tool: str, options: argparse.Namespace) -> int:
    table = _samples(_job(tool), options.interval, options.export)
    report = _report(table, options.job)
    print(report)
    if options.output:
        with options.output.open("a") as target:
            target.write(f"{report}\n")
    return 0


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
    """The metrics that omnistat exports: columns (metric, instance, card), a row for each sample
    every `interval_s` seconds; the files are also put into `folder` if it is given.
    """
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
                raise UserError(
                    f"{folder} cannot be written ({error.strerror}); give another --export"
                ) from error
        return pd.read_csv(files[0], header=[0, 1, 2], index_col=0)


_REPORT = {
    "Utilization (%)": "rocm_utilization_percentage",
    "Memory Use (%)": "rocm_vram_used_percentage",
    "Temperature (C)": "rocm_temperature_celsius",
    "Power (W)": "rocm_average_socket_power_watts",
}


def _report(table: pd.DataFrame, job: str) -> str:
    """omnistat's report card: maximum and mean of each device."""
    # Sorted as numbers: card 10 comes after card 2.
    cards = sorted({card for _, _, card in table.columns}, key=int)
    lines = [
        f"Omnistat Report Card for Job # {job}",
        f"Job Overview (Num Nodes = 1, Samples = {len(table)})",
    ]
    lines.append("       |" + "|".join(f"{name:^18}" for name in _REPORT) + "|")
    lines.append(" GPU # |" + "|".join("    Max     Mean  " for _ in _REPORT) + "|")
    for card in cards:
        cells = []
        for metric in _REPORT.values():
            values = table[metric].xs(card, axis=1, level=1).iloc[:, 0].dropna()
            cells.append(
                f"{values.max():7.2f}  {values.mean():7.2f}  "
                if len(values)
                else f"{'N/A':>7}  {'N/A':>7}  "
            )
        lines.append(f"{card:>6} |" + "|".join(cells) + "|")
    return "\n".join(lines)

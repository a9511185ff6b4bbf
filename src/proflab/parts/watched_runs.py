"""Training runs as a system monitor saw them: busy, power and memory, beside the images per second
of the run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.errors import CourseError

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile

COMMAND_FILE = "command.txt"
"""File with the command line that ran, in the folder of its logs."""

MONITOR_TOOL = "amd-smi"
"""The tool whose logs do not tell whether a stand-in wrote them; omnistat's stand-in leaves a note
beside its logs.
"""

FROM_MONITOR, FROM_TABLE = "monitor", "course's table"
"""Source of a power limit: the monitor in its log, or the course's table of GPUs
(`gpumodel.devices`).
"""

DIES_OF_A_SENSOR = {"MI250X": 2}
"""GPUs whose power sensor covers several devices of the table: an MI250X has one sensor for the two
dies of the card (the second die shows N/A), and the table states one die.
"""

QUANTITIES = {
    "busy_percent": "gpu_busy",
    "power_watt": "power",
    "limit_watt": "power_cap",
    "memory_busy_percent": "memory_busy",
    "memory_used_percent": "memory_used_percent",
}
"""Column of `one_table` -> quantity in a log."""


@dataclass(frozen=True)
class WatchedRun:
    """A run and its log.

    profile           -- all samples
    batch_size        -- images per rank and step
    images_per_second -- of one rank's steady steps
    flops_per_image   -- of forward and backward pass
    peak_flops        -- dense peak of its GPU for its precision, in FLOP/s
    limit_watt        -- power limit of the GPU in the course's table, for a log without one; None
                         for a GPU that is not in the table
    """

    name: str
    profile: Profile
    batch_size: int
    images_per_second: float
    flops_per_image: float
    peak_flops: float
    limit_watt: float | None

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, a fraction: the FLOP/s that the model needs over the GPU's
        peak.
        """
        return self.images_per_second * self.flops_per_image / self.peak_flops

    @property
    def table(self) -> pd.DataFrame:
        """One row for each GPU; see `one_table`."""
        return one_table([self])


def watched_run(folder: str | PathLike[str]) -> WatchedRun:
    """The run whose logs and COMMAND_FILE are in `folder`, which gives it its name.

    If a stand-in wrote the log, the speed is that of the same model, else that in the trainer's
    files in this folder. Raises CourseError for a folder without either, and ProfileReadError for a
    log that cannot be read.
    """
    from tidyprof.readers.system.reader import read_system

    path = Path(folder)
    try:
        command = (path / COMMAND_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        raise CourseError(
            f"{path / COMMAND_FILE}: can't be read; run the cell that watches this run first"
        ) from None
    profile = read_system(path)
    if profile.origin.kind != "modelled" and not is_stand_in(MONITOR_TOOL):
        return _measured(path, profile)
    return _modelled(path, command, profile)


def is_stand_in(tool: str) -> bool:
    """Whether the shell finds the course's stand-in under this name, or no program at all."""
    from proflab.standins.path import LAUNCHERS

    found = shutil.which(tool)
    return found is None or Path(found).resolve().parent == LAUNCHERS


def stated_limit(device_name: str) -> float | None:
    """Power limit in W, by the course's table, of all that one power sensor of a GPU covers; None
    for a GPU that is not in the table.

    device_name -- as torch prints it, such as "AMD Instinct MI300X".
    """
    from gpumodel.devices import device, names

    known = next((name for name in names() if name in device_name), None)
    return None if known is None else DIES_OF_A_SENSOR.get(known, 1) * device(known).power_watt


def one_table(runs: Sequence[WatchedRun]) -> pd.DataFrame:
    """One row for each run and GPU: run, device, the columns of QUANTITIES, limit_from, batch_size,
    images_per_second, model_tflops (what the model needs, in TFLOP/s) and mfu_percent.

    Sensors are medians over the samples in which the GPU held more than half of its largest memory
    use, so that start and end don't count. A cell without a value in the log is empty. Rates are
    those of one GPU.
    """
    import pandas as pd

    table = pd.concat([_rows(run) for run in runs], ignore_index=True)
    table.attrs["origin"] = "; ".join(dict.fromkeys(str(run.profile.origin) for run in runs))
    return table


def _rows(run: WatchedRun) -> pd.DataFrame:
    import pandas as pd

    wide = run.profile.counters.astype({"name": object, "device": "int64"}).pivot_table(
        index=["device", "time_ns"], columns="name", values="value"
    )
    held = next(
        (wide[name] for name in ("memory_used", "memory_used_percent") if name in wide), None
    )
    # Start and end of a run hold little memory: their samples would lower the medians.
    if held is not None:
        wide = wide[held > held.groupby("device").transform("max") / 2]
    found = wide.groupby("device").median()
    rows = pd.DataFrame(index=found.index).assign(run=run.name)
    for column, name in QUANTITIES.items():
        rows[column] = found.get(name, float("nan"))
    rows["limit_from"] = (
        rows["limit_watt"].notna().map({True: FROM_MONITOR, False: run.limit_watt and FROM_TABLE})
    )
    if run.limit_watt is not None:
        rows["limit_watt"] = rows["limit_watt"].fillna(run.limit_watt)
    rows["batch_size"], rows["images_per_second"] = run.batch_size, run.images_per_second
    rows["model_tflops"] = run.images_per_second * run.flops_per_image / 1e12
    return rows.assign(mfu_percent=100 * run.mfu).reset_index()


def _measured(path: Path, profile: Profile) -> WatchedRun:
    from cifar_train.peaks import peak_flops
    from proflab.training import training_run
    from tidyprof.tables.contract import Origin

    run = training_run(path)
    peak, flops = (
        peak_flops(run.device, run.config["precision"]),
        run.summary.get("flops_per_second"),
    )
    if not peak or not flops:
        raise CourseError(
            f"{path}: no peak is known of {run.device!r}, so its MFU can't be told; train on"
            " another GPU"
        )
    profile.meta["origin"] = Origin("measured", f"{run.device}, this machine, {date.today()}")
    rate = run.summary["images_per_second"]
    return WatchedRun(
        path.name,
        profile,
        run.config["batch_size"],
        rate,
        flops / rate,
        peak,
        stated_limit(run.device),
    )


def _modelled(path: Path, command: str, profile: Profile) -> WatchedRun:
    from proflab.standins.play import knobs
    from tidyprof.tables.contract import Origin

    device, error, *figures = _played(command, **knobs(os.environ))
    detail = f"{device}, its power between idle and limit assumed, {error or 'error not known'}"
    profile.meta["origin"] = Origin("modelled", detail)
    return WatchedRun(path.name, profile, *figures)


@cache
def _played(command: str, **knobs: Any) -> tuple[Any, ...]:
    """The modelled GPU, the model's known error, and the values of a WatchedRun for a command of
    the course's trainer.

    knobs -- of the model, see `play.knobs`.
    """
    from cifar_train.config import apply_to_config
    from cifar_train.peaks import peak_flops
    from gpumodel.command import read_command
    from gpumodel.simulation import simulate

    run = simulate(read_command(shlex.split(command), dict(os.environ), **knobs).workload)
    config, rank = apply_to_config(run.workload.config), run.ranks[0]
    rates = rank.images_per_second[config.warmup_for(len(rank.images_per_second)) :]
    flops = rank.operators.groupby("step")["flops"].sum().median() / config.batch_size
    peak = peak_flops(run.device.marketing_name, config.precision)
    # Images over time: the harmonic mean of the steps' rates, as the trainer computes it.
    rate = statistics.harmonic_mean(rates)
    return (
        run.device.name,
        run.error,
        config.batch_size,
        rate,
        float(flops),
        peak,
        run.device.power_watt,
    )

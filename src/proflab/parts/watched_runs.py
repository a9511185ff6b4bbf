"""Training runs as a system monitor saw them: busy, power and memory, beside the speed that was reached meanwhile."""

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

    from tidyprof.tables.contract import Origin, Profile

COMMAND_FILE = "command.txt"
"""Holds the command line that ran, in the folder of its logs."""

MONITOR_TOOL = "amd-smi"
"""What writes logs that do not say whether a stand-in wrote them; omnistat's stand-in leaves a note beside its own."""

IN_USE = 0.5
"""A sample counts as work while the GPU holds more than this fraction of the most memory that it held: before and after
the training it holds next to nothing."""

FROM_MONITOR, FROM_TABLE = "monitor", "course's table"
"""Who states a power limit: the monitor in its log, or the course's table of GPUs (`gpumodel.devices`)."""

DIES_OF_A_SENSOR = {"MI250X": 2}
"""Devices of the table whose power sensor covers several of them: an MI250X has one for the two dies of the card (that
of the second die shows N/A), and the table states one die."""

COLUMNS = {
    "run": "object",
    "device": "Int32",
    "busy_percent": "float64",
    "power_watt": "float64",
    "limit_watt": "Float64",
    "limit_from": "object",
    "memory_busy_percent": "Float64",
    "memory_used_percent": "Float64",
    "images_per_second": "float64",
    "model_tflops": "float64",
    "mfu_percent": "float64",
}
"""Columns of `one_table`: medians over the samples of the work, so that a slow start does not count; limit_from is
FROM_MONITOR or FROM_TABLE; rates are those of one GPU, and model_tflops is the arithmetic that the model needed, in
TFLOP/s."""

_QUANTITIES = {
    "busy_percent": "gpu_busy",
    "power_watt": "power",
    "limit_watt": "power_cap",
    "memory_busy_percent": "memory_busy",
    "memory_used_percent": "memory_used_percent",
}
"""Column -> quantity in a log."""


@dataclass(frozen=True)
class Speed:
    """How fast one rank trained: images/s of its steady steps, FLOPs per image of forward and backward pass together,
    and the dense peak of its GPU in FLOP/s for the run's precision."""

    images_per_second: float
    flops_per_image: float
    peak_flops: float


@dataclass(frozen=True, repr=False)
class WatchedRun:
    """A run and its log.

    profile    -- all samples. batch_size -- images per rank and step.
    limit_watt -- the GPU's power limit by the course's table, for a log without one; None for a GPU not in it.
    """

    name: str
    command: str
    profile: Profile
    batch_size: int
    speed: Speed
    limit_watt: float | None

    @property
    def images_per_second(self) -> float:
        """Rate of one rank."""
        return self.speed.images_per_second

    @property
    def flops_per_image(self) -> float:
        """Floating-point operations of one image, forward and backward."""
        return self.speed.flops_per_image

    @property
    def peak_flops(self) -> float:
        """Dense peak of one GPU in FLOP/s."""
        return self.speed.peak_flops

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, a fraction: what the model needs per second by what the GPU could do."""
        return self.images_per_second * self.flops_per_image / self.peak_flops

    @property
    def at_work(self) -> Profile:
        """The samples in which a GPU holds the training's memory: without start and end."""
        return samples_at_work(self.profile)

    @property
    def table(self) -> pd.DataFrame:
        """One row per GPU; see COLUMNS."""
        return one_table([self])

    def __repr__(self) -> str:
        return f"WatchedRun {self.name}: {self.command}"


def watched_run(folder: str | PathLike[str]) -> WatchedRun:
    """The run whose logs and COMMAND_FILE are in `folder`, which gives it its name.

    Where a stand-in wrote the log, the speed is that of the same model. Else it is what the trainer wrote into this
    folder. Raises CourseError for a folder without either, and ProfileReadError for a log that cannot be read.
    """
    from tidyprof.readers.system.reader import read_system

    path = Path(folder)
    try:
        command = (path / COMMAND_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        raise CourseError(f"{path / COMMAND_FILE}: can't be read; run the cell that watches this run first") from None
    profile = read_system(path)
    if profile.origin.kind != "modelled" and not is_stand_in(MONITOR_TOOL):
        return _measured(path, command, profile)
    return _modelled(path, command, profile)


def is_stand_in(tool: str) -> bool:
    """Whether the shell finds the course's stand-in under this name, or nothing at all."""
    from proflab.standins.path import LAUNCHERS

    found = shutil.which(tool)
    return found is None or Path(found).resolve().parent == LAUNCHERS


def samples_at_work(profile: Profile) -> Profile:
    """The samples of each GPU in the moments in which it held more than IN_USE of the most memory that it ever held.

    Samples of a log that says nothing on memory are all kept.
    """
    import tidyprof

    table = profile.counters
    for name in ("memory_used", "memory_used_percent"):
        held = table[table["name"] == name]
        if len(held):
            break
    else:
        return profile
    most = held.groupby("device")["value"].transform("max")
    moments = held.loc[held["value"] > IN_USE * most, ["time_ns", "device"]]
    kept = table.merge(moments.drop_duplicates(), on=["time_ns", "device"])
    return tidyprof.Profile(profile.events, kept.astype(table.dtypes), profile.meta)


def stated_limit(device_name: str) -> float | None:
    """Power limit, in W, of what one power sensor of a GPU covers, by the course's table; None for a GPU not in it.

    device_name -- as torch prints it, such as "AMD Instinct MI300X".
    """
    from gpumodel.devices import device, names

    known = next((name for name in names() if name in device_name), None)
    return None if known is None else DIES_OF_A_SENSOR.get(known, 1) * device(known).power_watt


def one_table(runs: Sequence[WatchedRun]) -> pd.DataFrame:
    """One row per run and GPU, columns COLUMNS. Where a log says nothing, it is <NA>."""
    import pandas as pd

    table = pd.concat([_rows(run) for run in runs], ignore_index=True)[list(COLUMNS)].astype(COLUMNS)
    table.attrs["origin"] = joined_origin(*(run.profile.origin for run in runs))
    return table


def joined_origin(*origins: Origin | str) -> str:
    """Several origins as one text, each once."""
    return "; ".join(dict.fromkeys(str(origin) for origin in origins))


def _rows(run: WatchedRun) -> pd.DataFrame:
    import pandas as pd

    samples = run.at_work.counters.astype({"name": object})
    found = samples.pivot_table(index="device", columns="name", values="value", aggfunc="median")
    rows = pd.DataFrame({column: found.get(name, pd.NA) for column, name in _QUANTITIES.items()}, index=found.index)
    otherwise = pd.NA if run.limit_watt is None else FROM_TABLE
    rows["limit_from"] = rows["limit_watt"].notna().map({True: FROM_MONITOR, False: otherwise})
    if run.limit_watt is not None:
        rows["limit_watt"] = rows["limit_watt"].astype("Float64").fillna(run.limit_watt)
    needed = run.images_per_second * run.flops_per_image
    speed = {"images_per_second": run.images_per_second, "model_tflops": needed / 1e12, "mfu_percent": 100 * run.mfu}
    return rows.reset_index().assign(run=run.name, **speed)


def _measured(path: Path, command: str, profile: Profile) -> WatchedRun:
    from cifar_train.peaks import peak_flops
    from proflab.training import training_run
    from tidyprof.tables.contract import Origin

    run = training_run(path)
    peak, flops = peak_flops(run.device, run.config["precision"]), run.summary.get("flops_per_second")
    if not peak or not flops:
        raise CourseError(f"{path}: no peak is known of {run.device!r}, so its MFU can't be told; train on another GPU")
    profile.meta["origin"] = Origin("measured", f"{run.device}, this machine, {date.today()}")
    rate = run.summary["images_per_second"]
    speed, limit = Speed(rate, flops / rate, peak), stated_limit(run.device)
    return WatchedRun(path.name, command, profile, run.config["batch_size"], speed, limit)


def _modelled(path: Path, command: str, profile: Profile) -> WatchedRun:
    from proflab.standins.play import knobs
    from tidyprof.tables.contract import Origin

    batch, speed, device, limit, error = _played(command, **knobs(os.environ))
    detail = f"{device}, its power between idle and limit assumed, {error or 'error not known'}"
    profile.meta["origin"] = Origin("modelled", detail)
    return WatchedRun(path.name, command, profile, batch, speed, limit)


@cache
def _played(command: str, **knobs: Any) -> tuple[int, Speed, str, float, str]:
    """Batch size, speed, GPU, power limit in W and the model's known error, for a command of the course's trainer.

    knobs -- of the model, see `play.knobs`.
    """
    from cifar_train.pathology_settings import apply_to_config
    from cifar_train.peaks import peak_flops
    from gpumodel.command import read_command
    from gpumodel.simulation import simulate

    run = simulate(read_command(shlex.split(command), dict(os.environ), **knobs).workload)
    config, rank = apply_to_config(run.workload.config), run.ranks[0]
    rates = rank.images_per_second[config.warmup_for(len(rank.images_per_second)) :]
    flops = rank.operators.groupby("step")["flops"].sum().median() / config.batch_size
    peak = peak_flops(run.device.marketing_name, config.precision)
    speed = Speed(statistics.harmonic_mean(rates), float(flops), peak)
    return config.batch_size, speed, run.device.name, run.device.power_watt, run.error

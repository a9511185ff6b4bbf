"""Training runs as a system monitor saw them: activity, power and memory of each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.errors import CourseError

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile

HERE = Path(__file__).parent

COMMAND_FILE = "command.txt"
"""File with the command line that ran, in the folder of its logs."""

FROM_MONITOR, FROM_TABLE = "monitor", "course's table"
"""Source of a power limit: the log of the monitor, or power_limits.csv."""

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
    limit_watt        -- power limit of the GPU in the course's table, for a log without a limit;
                         None if the table lacks the GPU
    """

    name: str
    profile: Profile
    batch_size: int
    images_per_second: float
    flops_per_image: float
    peak_flops: float
    limit_watt: float | None

    @property
    def table(self) -> pd.DataFrame:
        """One row per GPU, see `one_table`."""
        return one_table([self])


def watched_run(folder: str | PathLike[str]) -> WatchedRun:
    """Read the run whose logs and COMMAND_FILE are in `folder`. The folder also names the run.

    For a replayed log, the speed comes from the same model (modeled_runs.csv), otherwise from the
    trainer's files in this folder. Raises CourseError for a folder without either, and
    ProfileReadError for a log that can't be read.
    """
    from tidyprof.readers.system.reader import read_system

    path = Path(folder)
    try:
        command = (path / COMMAND_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        raise CourseError(
            f"{path / COMMAND_FILE} can't be read. First run the cell that monitors this run."
        ) from None
    profile = read_system(path)
    if profile.origin.kind != "modeled":
        return _measured(path, profile)
    return _modeled(path, command, profile)


def stated_limit(device_name: str) -> float | None:
    """Return the power limit in W of the hardware that one power sensor covers, or None if the
    course's table lacks the GPU.

    device_name -- as torch prints it, such as "AMD Instinct MI300X".
    """
    import pandas as pd

    limits = pd.read_csv(HERE / "power_limits.csv", comment="#").itertuples()
    return next((row.limit_watt for row in limits if row.gpu in device_name), None)


def one_table(runs: Sequence[WatchedRun]) -> pd.DataFrame:
    """Return one row per run and GPU: run, device, the columns of QUANTITIES, limit_from,
    batch_size and images_per_second of one GPU.

    Sensor values are medians over the samples in which the GPU held more than half of its largest
    memory use, so start and end don't count. A cell without a value in the log is empty.
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
    # At the start and the end of a run, the GPU holds little memory, which would lower the medians.
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
    return rows.reset_index()


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
            f"{path}: the course doesn't know the peak of {run.device!r}, so it can't compute the"
            " MFU. Train on another GPU."
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


def _modeled(path: Path, command: str, profile: Profile) -> WatchedRun:
    import pandas as pd

    from cifar_train.peaks import peak_flops
    from proflab.parts.modeled_runs import ERROR
    from tidyprof.tables.contract import Origin

    known = pd.read_csv(HERE / "modeled_runs.csv", comment="#", index_col="command")
    if command not in known.index:
        raise CourseError(f"{HERE / 'modeled_runs.csv'} contains no run of {command!r}.")
    batch, rate, flops = known.loc[command]
    detail = f"MI300X, its power between idle and limit assumed, {ERROR}"
    profile.meta["origin"] = Origin("modeled", detail)
    peak = peak_flops("MI300X", "automixed")
    return WatchedRun(path.name, profile, int(batch), rate, flops, peak, stated_limit("MI300X"))

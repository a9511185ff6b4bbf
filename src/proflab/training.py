"""Results of a `cifar_train` training run, read from its folder."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from cifar_train.config import precision_label
from proflab.errors import CourseError
from tidyprof.tables.contract import Origin

STEP_DTYPES = {
    "step": "int64",
    "epoch": "int64",
    "part": "category",
    "profiled": "bool",
    "duration_ns": "int64",
    "images": "int64",
    "loss": "float64",
    "images_per_second": "float64",
}
"""Columns of `TrainingRun.steps` in order. The first seven columns match the trainer's step
record.
"""

KINDS = ("run", "step", "summary")
"""Kinds of records to read. The reader ignores other kinds, such as `check`."""

WRONG_VALUES = (ValueError, TypeError, AttributeError, RecursionError)

PARTS = ("warmup", "steady")
"""Parts of a run, separated by the trainer's --warmup-steps."""


@dataclass(frozen=True, repr=False)
class TrainingRun:
    """One training run as rank 0 recorded it.

    - steps: one row for each finished step, with the columns STEP_DTYPES. Durations are in ns
      and include the device's work. `profiled` is True if torch.profiler was on. The origin in
      `attrs` contains the device that the run used.
    - summary: the trainer's last record, with the median and the quartiles in ns,
      images_per_second, the device and more.
    - config: every setting of the run, by its name in `cifar_train.config.TrainConfig`.
    """

    folder: Path
    steps: pd.DataFrame
    summary: dict[str, Any]
    config: dict[str, Any]

    @property
    def steady(self) -> pd.DataFrame:
        """Steps after the warmup that ran without a profiler."""
        return self.steps[(self.steps["part"] == "steady") & ~self.steps["profiled"]]

    @property
    def watched(self) -> pd.DataFrame:
        """Steps that torch.profiler recorded. The table is empty for a run without the profiler."""
        return self.steps[self.steps["profiled"]]

    @property
    def device(self) -> str:
        """Name of the GPU or CPU that ran the training."""
        return self.summary["device"]

    @property
    def conditions(self) -> str:
        """Model, precision, batch size and device, which give a rate its meaning."""
        config = self.config
        precision = precision_label(config["precision"], self.summary["arithmetic"])
        return f"{config['model']}, {precision}, batch {config['batch_size']}, {self.device}"

    @property
    def origin(self) -> Origin:
        """Origin of the run's numbers."""
        return self.steps.attrs["origin"]

    def __repr__(self) -> str:
        return f"TrainingRun {self.folder}: {len(self.steps)} steps; {self.conditions}"


def training_run(folder: str | PathLike[str]) -> TrainingRun:
    """Read the metrics that rank 0 wrote into `folder` (the trainer's --run-dir).

    Raises CourseError with a one-line message for a folder without results and for a damaged
    file.
    """
    found = sorted(Path(folder).glob("metrics_rank0_of_*.jsonl"))
    if len(found) != 1:
        raise CourseError(
            f"{folder} must contain exactly one metrics_rank0_of_N.jsonl, but it has {len(found)}."
            " Run the training cell above first, with a separate --run-dir for each run."
        )
    (path,) = found
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        records = [record for record in map(json.loads, lines) if record["record"] in KINDS]
        # A run that stopped early doesn't have a summary.
        (run,), (summary,) = (
            [record for record in records if record["record"] == kind] for kind in KINDS[::2]
        )
        table = pd.DataFrame([one for one in records if one["record"] == "step"])
        table["part"] = pd.Categorical(table["part"], categories=PARTS)
        table["images_per_second"] = table["images"] / table["duration_ns"] * 1e9
        numbers = {name: kind for name, kind in STEP_DTYPES.items() if kind != "category"}
        table = table[list(STEP_DTYPES)].astype(numbers)
        complete = table["step"].tolist() == list(range(summary["steps"]))
        if not complete or table["part"].isna().any() or (table["duration_ns"] <= 0).any():
            raise ValueError(f"the file doesn't contain all {summary['steps']} steps")
        table.attrs["origin"] = _origin(run)
        found_run = TrainingRun(path.parent, table, summary, run["config"])
        _ = found_run.conditions, found_run.summary["images_per_second"]
    except (OSError, ArithmeticError, LookupError, *WRONG_VALUES) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        raise CourseError(
            f"{path}: the file was truncated or changed ({type(error).__name__}: {reason}). Run"
            " the training again."
        ) from None
    return found_run


def _origin(run: dict[str, Any]) -> Origin:
    """Return `measured` for a run on this host, or `recorded` for a run on another host."""
    here = run["host"] == socket.gethostname()
    parts = [
        run["device"],
        "this machine" if here else run["host"],
        (run.get("written") or "")[:10],
    ]
    return Origin("measured" if here else "recorded", ", ".join(part for part in parts if part))

"""Read the results that a training run of `cifar_train` wrote into its folder: a table of steps, a
summary, the settings.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
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
"""Columns of `TrainingRun.steps` in order; the first seven are those of the trainer's own step
record.
"""

PARTS = ("warmup", "steady")
"""Parts of a run, as the trainer divided it by its --warmup-steps."""

Positive = Annotated[int, msgspec.Meta(gt=0, le=2**62)]
NotNegative = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Step(msgspec.Struct):
    step: NotNegative
    epoch: NotNegative
    part: Literal["warmup", "steady"]
    profiled: bool
    duration_ns: Positive
    images: Positive
    loss: float


class _Config(msgspec.Struct):
    model: str
    precision: str
    batch_size: Positive


class _Run(msgspec.Struct):
    config: _Config
    device: str
    host: str
    written: str | None = None


class _Summary(msgspec.Struct):
    device: str
    arithmetic: str
    steps: Positive
    median_step_ns: Positive
    images_per_second: float


_RECORDS = {"run": _Run, "step": _Step, "summary": _Summary}
"""Kind of a record -> what is checked in it; other kinds (such as `check`) are left alone."""


@dataclass(frozen=True, repr=False)
class TrainingRun:
    """One run as rank 0 saw it.

    steps   -- one row for each finished step, columns STEP_DTYPES; durations in ns between finished
               device work, `profiled` if torch.profiler was on. attrs["origin"] tells on what it
               ran.
    summary -- the trainer's last record: median and quartiles in ns, images_per_second, device, ...
    config  -- every setting of the run by its name in `cifar_train.config.TrainConfig`.
    """

    folder: Path
    steps: pd.DataFrame
    summary: dict[str, Any]
    config: dict[str, Any]

    @property
    def steady(self) -> pd.DataFrame:
        """The steps after the warm-up without a profiler."""
        return self.steps[(self.steps["part"] == "steady") & ~self.steps["profiled"]]

    @property
    def watched(self) -> pd.DataFrame:
        """The steps under torch.profiler; none in a run without it."""
        return self.steps[self.steps["profiled"]]

    @property
    def device(self) -> str:
        """Name of the GPU or processor that trained."""
        return self.summary["device"]

    @property
    def conditions(self) -> str:
        """The conditions without which a rate of this run means nothing: model, precision, batch
        size, device.
        """
        config = self.config
        precision = precision_label(config["precision"], self.summary["arithmetic"])
        return f"{config['model']}, {precision}, batch {config['batch_size']}, {self.device}"

    @property
    def origin(self) -> Origin:
        """Where these numbers come from."""
        return self.steps.attrs["origin"]

    def __repr__(self) -> str:
        return f"TrainingRun {self.folder}: {len(self.steps)} steps; {self.conditions}"


def training_run(folder: str | PathLike[str]) -> TrainingRun:
    """Read the metrics that rank 0 wrote into `folder` (the trainer's --run-dir).

    Raises CourseError, in one line, for a folder without results and for a damaged file.
    """
    path = _metrics_file(Path(folder))
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _RECORDS}
    for kind, record in _records(path):
        found[kind].append(record)
    # A run that was stopped early has no summary.
    for kind in ("run", "summary"):
        if len(found[kind]) != 1:
            raise _damaged(path, f"it has {len(found[kind])} records `{kind}`, not one")
    run, summary = found["run"][0], found["summary"][0]
    if len(found["step"]) != summary["steps"]:
        raise _damaged(
            path, f"it has {len(found['step'])} steps, but its summary counts {summary['steps']}"
        )
    if [step["step"] for step in found["step"]] != list(range(summary["steps"])):
        raise _damaged(path, "its steps are not numbered from 0 in order")
    return TrainingRun(
        path.parent, _step_table(found["step"], _origin(run)), summary, run["config"]
    )


def _metrics_file(folder: Path) -> Path:
    if not folder.is_dir():
        raise CourseError(
            f"{folder}: there is no such folder; run the training cell above first "
            f"(python -m cifar_train --run-dir {folder})"
        )
    found = sorted(folder.glob("metrics_rank0_of_*.jsonl"))
    if not found:
        raise CourseError(
            f"{folder}: there is no metrics_rank0_of_N.jsonl in it; the training failed or is still"
            " running: read the message below its cell and run it again"
        )
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise CourseError(
            f"{folder}: it holds the results of several runs ({names}); give each run its own"
            " --run-dir"
        )
    return found[0]


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records that matter, checked, each with its kind."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, f"it can't be read ({type(error).__name__})") from None
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            kind = record["record"]
            if kind in _RECORDS:
                msgspec.convert(record, _RECORDS[kind])
                yield kind, record
        except (ValueError, TypeError, KeyError, RecursionError, msgspec.ValidationError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise _damaged(
                path, f"line {number} is no record of the trainer ({reason[:120]})"
            ) from None


def _step_table(records: list[dict[str, Any]], origin: Origin) -> pd.DataFrame:
    table = pd.DataFrame(records)
    table["part"] = pd.Categorical(table["part"], categories=PARTS)
    table["images_per_second"] = table["images"] / table["duration_ns"] * 1e9
    table = table[list(STEP_DTYPES)].astype(
        {name: kind for name, kind in STEP_DTYPES.items() if kind != "category"}
    )
    table.attrs["origin"] = origin
    return table


def _origin(run: dict[str, Any]) -> Origin:
    """`measured` on this host, or `recorded` on another host, which the notebook has not seen."""
    here = run["host"] == socket.gethostname()
    parts = [
        run["device"],
        "this machine" if here else run["host"],
        (run.get("written") or "")[:10],
    ]
    return Origin("measured" if here else "recorded", ", ".join(part for part in parts if part))


def _damaged(path: Path, finding: str) -> CourseError:
    return CourseError(
        f"{path}: {finding}; the file was cut off or changed: run the training again"
    )

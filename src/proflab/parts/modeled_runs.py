"""Stored rates and steps of the modeled trainer on an MI300X: lessons/modeled_*.csv."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proflab.errors import CourseError
from proflab.lessons import lessons_folder

if TYPE_CHECKING:
    import pandas as pd

ERROR = "error: kernel time -3 %, one kernel ±7 % (worst +38 %), collectives -25 %"
"""The known error of every modeled number in the course (docs/contributors/gpumodel.md)."""


@dataclass(frozen=True)
class ModeledRepeats:
    """Repeats of one modeled training run.

    seconds -- per image, one value for each seed
    origin  -- states the error of the model
    """

    seconds: tuple[float, ...]
    origin: object

    @property
    def images_per_second(self) -> float:
        """The median of the repeats as a rate, in images per second."""
        return 1 / sorted(self.seconds)[len(self.seconds) // 2]


def modeled(options: str, gpus: int = 1) -> ModeledRepeats:
    """Return the seconds per image of the trainer with these options, once for each seed.

    The seeds vary the host's costs only, so the spread is not the model's error. Raises CourseError
    for options that are not in the table.
    """
    from tidyprof.tables.contract import Origin

    rows = _rows("modeled_rates.csv", options).query("gpus == @gpus")
    return ModeledRepeats(tuple(rows["seconds_per_image"]), Origin("modeled", f"MI300X, {ERROR}"))


def _rows(file: str, options: str) -> pd.DataFrame:
    table = _table(file)
    rows = table[table["options"] == options]
    if rows.empty:
        raise CourseError(f"lessons/{file} has no options {options!r}")
    return rows


@functools.cache
def _table(file: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(lessons_folder() / file, comment="#")

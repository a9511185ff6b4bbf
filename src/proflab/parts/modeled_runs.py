"""Rates and step times of modeled training runs on an MI300X, from lessons/modeled_*.csv."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proflab.errors import CourseError
from proflab.lessons import lessons_folder

if TYPE_CHECKING:
    import pandas as pd

ERROR = "error: kernel time -3 %, one kernel ±7 % (worst +38 %), collectives -25 %"
"""Model error of all modeled numbers in the course (docs/contributors/gpumodel.md)."""


@dataclass(frozen=True)
class ModeledRepeats:
    """Repeats of one modeled training run.

    - seconds: seconds per image, one value for each seed
    - origin: source of the numbers, including the model error
    """

    seconds: tuple[float, ...]
    origin: object

    @property
    def images_per_second(self) -> float:
        """Median rate of the repeats, in images per second."""
        return 1 / sorted(self.seconds)[len(self.seconds) // 2]


def modeled(options: str, gpus: int = 1) -> ModeledRepeats:
    """Return the modeled seconds per image for these trainer options, one value for each seed.

    The seeds vary only the host's costs, so the spread doesn't represent the model error. Raises
    CourseError for options that aren't in the table.
    """
    from tidyprof.tables.contract import Origin

    rows = _rows("modeled_rates.csv", options).query("gpus == @gpus")
    return ModeledRepeats(tuple(rows["seconds_per_image"]), Origin("modeled", f"MI300X, {ERROR}"))


def _rows(file: str, options: str) -> pd.DataFrame:
    table = _table(file)
    rows = table[table["options"] == options]
    if rows.empty:
        raise CourseError(f"lessons/{file} doesn't contain the options {options!r}")
    return rows


@functools.cache
def _table(file: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(lessons_folder() / file, comment="#")

"""One played training run written by several tools.

    python -m proflab.parts.witnesses FOLDER [options of the trainer]

The same events stand in every file, so whatever differs between the files is the formats' doing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError
from proflab.errors import CourseError

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FORMATS = {
    "rpd": "rpd",
    "rocpd": "rocpd",
    "csv": "rocprofv3-csv",
    "sys": "rocprof-sys",
    "torch": "kineto",
    "compute": "rocprof-compute",
}
"""Witness -> the format that gpumodel writes: rpd; rocprofv3 as a database and as CSV; rocprof-sys; torch.profiler;
rocprof-compute, which lists kernels alone."""


def read_witnesses(folder: str | Path) -> dict[str, Profile]:
    """What each witness saw, by its name in FORMATS. Raises CourseError if one is missing."""
    import tidyprof

    missing = [name for name in FORMATS if not (Path(folder) / name).is_dir()]
    if missing:
        raise CourseError(
            f"{folder}: no files of {', '.join(missing)}; run `python -m proflab.parts.witnesses {folder}` first"
        )
    return {name: tidyprof.read(_innermost(Path(folder) / name)) for name in FORMATS}


def _innermost(folder: Path) -> Path:
    """Tools put their folder for a host or a time into one for the run: go down while there is nothing beside it."""
    inside = list(folder.iterdir())
    return _innermost(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the run once and write it in every format; 0, or 2 for what the user can mend."""
    parser = argparse.ArgumentParser(
        prog="proflab.parts.witnesses", description="One played run, written by several tools."
    )
    parser.add_argument("folder", type=Path, help="where to write: one folder per tool")
    options, trainer = parser.parse_known_args(arguments)
    try:
        for name, count in _write(options.folder, trainer):
            print(f"{options.folder / name}: {count} file{'s' * (count != 1)}")
    except UserError as error:
        print(f"proflab.parts.witnesses: {error}", file=sys.stderr)
        return 2
    return 0


def _write(folder: Path, trainer: Sequence[str]) -> list[tuple[str, int]]:
    from proflab.standins.play import understand

    workload = understand(["python", "-m", "cifar_train", *trainer], os.environ).workload
    from gpumodel import writers
    from gpumodel.simulation import simulate

    run = simulate(workload)
    written = []
    for name, format_name in FORMATS.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        written.append((name, len(writers.write(format_name, run, target))))
    return written


if __name__ == "__main__":
    raise SystemExit(main())

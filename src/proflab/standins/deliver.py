"""Files of a writer, put where the real tool would have put them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from cifar_train.errors import UserError
from cifar_train.whole_files import whole_file
from gpumodel.run import RankRun, Run

MARKER = "modelled.json"


def deliver(
    format_name: str,
    run: Run,
    rank: RankRun,
    target: Path,
    **options: Any,
) -> list[Path]:
    """Write a rank's files in ROCprofiler-SDK's naming, `<target>_<suffix>`, and return them.

    target -- folder and first part of the names; options -- of the writer. A file of that name is replaced, as the
    tools do. Beside the files lies the writer's note that they are modelled. Raises UserError where the folder
    cannot be written.
    """
    from gpumodel import writers

    with tempfile.TemporaryDirectory() as scratch:
        written = writers.write(format_name, run, Path(scratch), rank=rank.rank, **options)
        return [place(path, target.parent / _name(path.name, rank, target.name)) for path in written]


def _name(name: str, rank: RankRun, prefix: str) -> str:
    """The writers' default names begin with the number of the process; a marker's need not."""
    own = f"{rank.process_id}_"
    return f"{prefix}_{name.removeprefix(own)}" if name.startswith(own) else name


def place(source: Path, target: Path) -> Path:
    """Move a file, replacing what is there. Raises UserError where that cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            shutil.move(source, partial)
        return target
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); give another output folder") from error

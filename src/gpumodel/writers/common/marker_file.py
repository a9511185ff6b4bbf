"""The file beside modelled files that says that they are modelled, for formats without room for it."""

from __future__ import annotations

import json
from pathlib import Path

from gpumodel.run import Run
from gpumodel.writers.common.marker import MARK, marker

MARKER_FILE = f"{MARK}.json"


def write_marker(run: Run, folder: Path) -> Path:
    """Write `modelled.json` into the folder: an object with the one key `modelled`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MARKER_FILE
    path.write_text(json.dumps({MARK: marker(run)}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path

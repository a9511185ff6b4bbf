"""A progress bar over the bytes of the files that are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

PROGRESS_AFTER_SECONDS = 2
"""Files that take less time are read without a progress bar."""


@contextmanager
def progress_bar(files: Iterable[Path], progress: bool | None) -> Iterator[Callable[[int], Any]]:
    """Gives the function to report consumed bytes to."""
    if not ((sys.stderr is not None and sys.stderr.isatty()) if progress is None else progress):
        yield lambda consumed: None
        return
    size = sum(file.stat().st_size for file in files if file.is_file())
    delay = PROGRESS_AFTER_SECONDS if progress is None else 0
    with tqdm(total=size, unit="B", unit_scale=True, desc="reading", delay=delay, leave=False, file=sys.stderr) as bar:
        yield bar.update

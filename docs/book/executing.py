"""Execute the lessons, one after the other, and keep what came out until something it depends on changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError

if TYPE_CHECKING:
    from nbformat import NotebookNode

SOURCES = ("src", "lessons", "recordings", "constraints.txt")
"""What the lessons' outputs depend on besides the lessons themselves."""

TIMEOUT_S = 900
"""Longest time for one cell, the same as in `make test`."""

_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class Executed:
    """Executed lessons in `folder`, which is emptied when SOURCES have changed."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.folder = folder
        self.key = sources_key(repository)
        stamp = folder / "key"
        if not stamp.is_file() or stamp.read_text() != self.key:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            stamp.write_text(self.key)

    def get(
        self, name: str, notebook: NotebookNode, run: Callable[[NotebookNode, Path], NotebookNode] | None = None
    ) -> NotebookNode:
        """The notebook with its outputs: kept ones if it did not change, else it is executed (`run`) now.

        Its metadata then has `executed`, a date such as 2026-01-31. Raises UserError if a cell fails.
        """
        import nbformat

        kept = self.folder / f"{name}.ipynb"
        key = _digest([nbformat.writes(notebook).encode()])
        if kept.is_file() and (found := nbformat.read(kept, 4)).metadata.get("key") == key:
            return found
        print(f"{name}: executing", flush=True)
        begin = time.monotonic()
        done = (run or execute)(notebook, self.folder)
        print(f"{name}: done in {time.monotonic() - begin:.0f} s", flush=True)
        done.metadata |= {"key": key, "executed": date.today().isoformat()}
        nbformat.write(done, kept)
        return done


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run all cells in `folder`; exercises must be passed. Raises UserError for the first cell that fails."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    client = NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(folder)}})
    try:
        return client.execute(env={**os.environ, "PROFLAB_STRICT": "1"})
    except CellExecutionError as error:
        text = _COLOURS.sub("", str(error))
        raise UserError(f"a cell failed:\n{text}") from None


def require_recordings(lessons: str) -> None:
    """See that each recording named in the lessons' text is here, or download it; raises RecordingUnavailable.

    A learner can go on without one, but a book would lack its pages' best part.
    """
    from proflab.manifest import load_manifest
    from proflab.recordings import recording

    for name in load_manifest():
        if f'"{name}"' in lessons:
            recording(name)


def sources_key(repository: Path) -> str:
    """A text that changes with the contents of SOURCES, with Python, and with the mirror of recordings."""
    parts = [sys.version.encode(), os.environ.get("PROFLAB_RECORDINGS", "").encode()]
    for name in SOURCES:
        top = repository / name
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        for path in files:
            if "__pycache__" not in path.parts:
                parts += [str(path.relative_to(repository)).encode(), path.read_bytes()]
    return _digest(parts)


def _digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

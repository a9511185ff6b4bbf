"""The picture of the method on the book's first page: `python -m tools.method_picture` writes docs/method.svg."""

from __future__ import annotations

from pathlib import Path

from proflab.lessons import method
from tidyprof.plots.figure import save

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "method.svg"

if __name__ == "__main__":
    save(method(), PICTURE)

"""`python -m tools.drawings` writes docs/drawings."""

from __future__ import annotations

from tools.drawings import DRAWINGS, FOLDER

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")

"""Pages of docs that are made from a table: written, or compared with the existing page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, text: str, command: str, arguments: Sequence[str]) -> int:
    """Write the page, or with --check compare it with its table. Returns 0, or 1 if they differ."""
    if "--check" not in arguments:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} is not what its table gives; run `{command}`", file=sys.stderr)
    return 1

"""Pages of docs that come from a table: written, or compared with what is there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, text: str, command: str, arguments: Sequence[str]) -> int:
    """Write the page, or with --check say whether it is what its table gives (exit code 1 if
    not).
    """
    if "--check" not in arguments:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} is not what its table gives; run `{command}`", file=sys.stderr)
    return 1

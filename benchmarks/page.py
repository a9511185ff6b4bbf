"""Figures on the page docs/reliability.md, each part between marks of its own."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/reliability.md"


def marks(name: str) -> tuple[str, str]:
    """What stands before and behind a part."""
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"


def write_part(name: str, text: str) -> None:
    """Put the text between the marks of a part; the page is read now, so that others may have changed it meanwhile."""
    begin, end = marks(name)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")

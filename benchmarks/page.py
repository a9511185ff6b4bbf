"""Figures on pages of docs, each part between marks of its own."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def write_part(page: Path, name: str, text: str) -> None:
    """Put the text between the marks of a part; the page is read now, so that others may have
    changed it meanwhile.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(
        f"{before}{begin}{text.rstrip()}\n{end}{rest.partition(end)[2]}", encoding="utf-8"
    )

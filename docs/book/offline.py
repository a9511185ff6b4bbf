"""Check that the site doesn't need a network, because a reader may open it as a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
}
"""Attribute with an address, by the element that makes a browser load a file."""

_REMOTE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


def remote_resources(html: Path) -> list[str]:
    """Return the addresses that pages and style sheets in `html` load from the network.

    Each entry has the format `file: address`.
    """
    found = []
    for path in sorted(html.rglob("*")):
        if path.suffix == ".html":
            found += [
                f"{path.relative_to(html)}: {address}"
                for address in in_page(path.read_text(encoding="utf-8"))
            ]
        elif path.suffix == ".css":
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(html)}: {address}" for address in _IN_STYLE.findall(text)]
    return found


def in_page(text: str) -> list[str]:
    """Return the addresses that one page loads from the network.

    Links may lead anywhere because they wait for a click.
    """
    parser = _Parser()
    parser.feed(text)
    return parser.addresses


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_style = tag == "style"
        self.addresses += list(_remote(tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.addresses += _IN_STYLE.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self.in_style = False


def _remote(tag: str, attributes: dict[str, str | None]) -> Iterator[str]:
    loaded = attributes.get(_LOADED.get(tag, "")) or ""
    if _REMOTE.match(loaded):
        yield loaded
    yield from _IN_STYLE.findall(attributes.get("style") or "")

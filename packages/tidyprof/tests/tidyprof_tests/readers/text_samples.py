"""Samples and damages of text formats that are described in a data file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence

from tidyprof import Profile
from tidyprof_tests.readers.kit import TRUTH, Damage, Sample, replaced


def text_samples(file: str, read: Callable[..., Profile]) -> dict[str, Sample]:
    """The samples in `samples/FILE.toml`, by name.

    A sample has the name and the content of a file (or the name of a data file with it), and these
    tables of changes. A change is a list of pairs of an old and a new text.

    same     -- other ways to write the same. All old texts are replaced.
    left_out -- one row is left out and counted.
    refused  -- the file is refused.

    `contents` are whole contents that are refused, too. They belong to the first sample.
    """
    table = tomllib.loads((TRUTH / f"{file}.toml").read_text(encoding="utf-8"))
    contents = {
        what: Damage(_always(text), ".") for what, text in table.pop("contents", {}).items()
    }
    found = {}
    for name, entry in table.items():
        damages = contents
        for reaction, expected in REACTIONS.items():
            count = -1 if reaction == "same" else 1
            damages = damages | {
                what: Damage(_replaced(texts, count), **expected)
                for what, texts in entry.get(reaction, {}).items()
            }
        content = entry.get("content") or (TRUTH / entry["file"]).read_text(encoding="utf-8")
        found[name] = Sample(
            entry["name"],
            content.encode(),
            read,
            damages=damages,
            others={other: text.encode() for other, text in entry.get("others", {}).items()},
            recording=entry.get("recording", ""),
        )
        contents = {}
    return found


REACTIONS = {"same": {}, "left_out": {"left_out": 1}, "refused": {"finding": "."}}


def _always(text: str) -> Callable[[bytes], bytes]:
    return lambda content: text.encode()


def _replaced(texts: Sequence[str], count: int) -> Callable[[bytes], bytes]:
    encoded = [text.encode() for text in texts]
    return replaced(*zip(encoded[::2], encoded[1::2], strict=True), count=count)

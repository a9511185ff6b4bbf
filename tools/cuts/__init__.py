"""Cut public recordings to what the lessons need, so that lessons don't need a network.

The cuts keep the tools' formats.

PROFLAB_RECORDINGS=FOLDER python -m tools.cuts [NAME ...]

writes `recordings/cuts`, its NOTICE.md, and the cuts' entries in `recordings/manifest.json`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from proflab.recordings import Cut, Entry, RecordedFile
from tools.cuts.recipes import RECIPES

_GZIP_MAGIC = b"\x1f\x8b"


def make_cut(entry: Entry, source: Path, target: Path) -> Cut:
    """Cut one recording of the mirror folder `source` into `target`, and return the cut's entry."""
    recipe = RECIPES[entry.name]
    files = []
    for file in entry.files:
        cutter = recipe.files.get(file.path.removeprefix(f"{entry.name}/"))
        if cutter is not None:
            content = _cut_packed(cutter, (source / file.path).read_bytes())
            (target / file.path).parent.mkdir(parents=True, exist_ok=True)
            (target / file.path).write_bytes(content)
            files.append(
                RecordedFile(
                    file.path, hashlib.sha256(content).hexdigest(), len(content), file.role
                )
            )
    return Cut(recipe.keeps, tuple(files))


def _cut_packed(cutter: Callable[[bytes], bytes], content: bytes) -> bytes:
    """Pack the cut in the same way as the whole file.

    The header doesn't contain a time, so that equal cuts are equal files.
    """
    if content.startswith(_GZIP_MAGIC):
        return gzip.compress(cutter(gzip.decompress(content)), mtime=0)
    return cutter(content)


def write_manifest(path: Path, cuts: dict[str, Cut]) -> list[Entry]:
    """Write the cuts into the manifest, and return all entries with a cut."""
    entries = msgspec.json.decode(path.read_bytes(), type=list[Entry])
    entries = [
        msgspec.structs.replace(entry, cut=cuts.get(entry.name, entry.cut)) for entry in entries
    ]
    text = json.dumps(msgspec.to_builtins(entries), indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
    return [entry for entry in entries if entry.cut]


def notice(entries: list[Entry]) -> str:
    """Return the text of NOTICE.md: each cut's source, contents, copyright and license."""
    parts = [
        "# Cuts of public recordings",
        (
            "These files are shorter than the published files, because `tools/cuts` left out"
            " everything that the lessons don't need. To get a whole file, run"
            " `python -m proflab fetch NAME`. The folder `licenses` contains the licenses."
        ),
    ]
    for entry in entries:
        source = f"https://github.com/{entry.source_repo}/tree/{entry.source_commit}"
        license = (
            f"[{entry.license}](licenses/{entry.license}.txt), as it was"
            f" [there]({entry.license_url})"
        )
        lines = (
            f"Cut by tools/cuts of files from {source}",
            f"Kept: {entry.cut.keeps}",
            entry.copyright,
        )
        parts += [
            f"## {entry.name}",
            "\n".join(f"- {line}" for line in (*lines, f"License: {license}")),
        ]
    return "\n\n".join(parts) + "\n"

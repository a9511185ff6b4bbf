"""Cuts of public recordings, so that no lesson needs the network: the numbers that a lesson needs,
in the tool's format.

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
    """Cut one recording of the mirror folder `source` into `target`, and return the entry of the
    cut.
    """
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
    """Pack the cut as the whole file is packed, without a time in the header, so that equal cuts
    are equal files.
    """
    if content.startswith(_GZIP_MAGIC):
        return gzip.compress(cutter(gzip.decompress(content)), mtime=0)
    return cutter(content)


def write_manifest(path: Path, cuts: dict[str, Cut]) -> list[Entry]:
    """Enter the cuts into the manifest, and return all of its entries with a cut."""
    entries = msgspec.json.decode(path.read_bytes(), type=list[Entry])
    entries = [
        msgspec.structs.replace(entry, cut=cuts.get(entry.name, entry.cut)) for entry in entries
    ]
    text = json.dumps(msgspec.to_builtins(entries), indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
    return [entry for entry in entries if entry.cut]


def notice(entries: list[Entry]) -> str:
    """The text of NOTICE.md: for each cut its source, what it keeps, copyright and license."""
    parts = [
        "# Cuts of public recordings",
        (
            "These files are not the published ones: `tools/cuts` made them, and left out what no"
            " lesson asks. `python -m proflab fetch NAME` gets the whole files. The texts of the"
            " licenses are in `licenses`."
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

"""Take public recordings from the manifest of a mirror folder into recordings/manifest.json.

    python scripts/dev/import_manifest.py MIRROR/manifest.json

Entries of the course that the mirror does not know (those that ship with it) are kept, and so are
its cuts. Figures computed from the files stay in the mirror, and so do files without an address.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from proflab.recordings import Entry

TARGET = Path(__file__).resolve().parents[2] / "recordings" / "manifest.json"

MAIN = {
    "rocprofv3-lumi-taylor": "results.pftrace",
    "rpd-mi200-matmul": "matmul_result.rpd",
    "torch-mi300-ddp-4ranks-fused": "merged_all_events.json.gz",
}
"""The file to read where a recording has several; one with a single file needs no entry."""

NOTES = {
    " (truth.gpu_events_without_launch_record)": "",
    "reports the smaller linked_* figures": "reports smaller figures",
    ": published_figures are copied from the article and agree with truth.": ".",
    "are larger and not on this machine.": "are larger and not part of this recording.",
}
"""Phrases of the mirror's notes that speak of what is left out here, and what replaces them."""


def convert(source: dict[str, Any]) -> dict[str, Any]:
    """One entry of the mirror in the course's form."""
    name = source["name"]
    files = [file for file in source["files"] if file.get("url")]
    strays = [file["path"] for file in files if not file["path"].startswith(f"{name}/")]
    if strays:
        raise SystemExit(f"{name}: {strays[0]} lies outside the recording's folder")
    recorded = [
        file["path"].removeprefix(f"{name}/") for file in files if file["role"] == "recording"
    ]
    entry = {field: source[field] for field in Entry.__struct_fields__ if field in source}
    entry["files"] = files
    entry["main"] = MAIN.get(name, recorded[0] if len(recorded) == 1 else None)
    for phrase, replacement in NOTES.items():
        entry["notes"] = entry["notes"].replace(phrase, replacement)
    return msgspec.to_builtins(msgspec.convert(entry, Entry))


def merge(known: list[dict[str, Any]], mirror: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mirror's entries that have files with an address, then those of the course that it does
    not know.
    """
    taken = [convert(entry) for entry in mirror if any(file.get("url") for file in entry["files"])]
    cuts = {entry["name"]: entry.get("cut") for entry in known}
    taken = [entry | {"cut": cuts.get(entry["name"])} for entry in taken]
    names = {entry["name"] for entry in taken}
    return taken + [entry for entry in known if entry["name"] not in names]


def main() -> int:
    """Write the manifest and say how many recordings it has."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("mirror", type=Path, help="manifest.json of the mirror folder")
    parser.add_argument(
        "--target", type=Path, default=TARGET, help="manifest to write (default: the course's own)"
    )
    arguments = parser.parse_args()
    known = json.loads(arguments.target.read_text()) if arguments.target.is_file() else []
    entries = merge(known, json.loads(arguments.mirror.read_text()))
    arguments.target.write_text(
        json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(f"{arguments.target}: {len(entries)} recordings", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

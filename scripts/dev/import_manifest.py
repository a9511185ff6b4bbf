"""Take public recordings from a list of them with the figures computed from their files: what they
are into recordings/manifest.json, the figures into tests/recordings.json.

    python scripts/dev/import_manifest.py LIST.json

Entries of the course that the list does not know (those that ship with it) are kept, and so are
its cuts. Files without an address stay out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from proflab.recordings import Entry

ROOT = Path(__file__).resolve().parents[2]
TARGET, TRUTHS = ROOT / "recordings" / "manifest.json", ROOT / "tests" / "recordings.json"
FIGURES = ("truth", "published_figures")
"""Members of an entry that hold figures: computed from its files by other means than tidyprof, and
those that its publisher states.
"""

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
"""Phrases of the list's notes that speak of what is left out here, and what replaces them."""


def convert(source: dict[str, Any]) -> dict[str, Any]:
    """One entry of the list in the course's form."""
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


def merge(known: list[dict[str, Any]], public: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The public recordings, then those of the course that are not among them."""
    cuts = {entry["name"]: entry.get("cut") for entry in known}
    taken = [convert(entry) for entry in public]
    taken = [entry | {"cut": cuts.get(entry["name"])} for entry in taken]
    names = {entry["name"] for entry in taken}
    return taken + [entry for entry in known if entry["name"] not in names]


def truth(source: dict[str, Any]) -> dict[str, Any]:
    """The figures of a recording, with the address of its file or of the folder of its files, their
    number and size, and a hash of what `sha256sum` prints of them in the manifest's order.
    """
    files = [file for file in source["files"] if file.get("url")]
    lines = "".join(f"{file['sha256']}  {file['path']}\n" for file in files)
    return {
        "address": os.path.commonpath([file["url"] for file in files]).replace(":/", "://"),
        "files": len(files),
        "bytes": sum(file["bytes"] for file in files),
        "sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "licence": source["licence"],
        **{name: source[name] for name in FIGURES if name in source},
    }


def as_json(content: Any, levels: int, indent: str = "") -> str:
    """JSON with a line for each member down to so many levels."""
    if not levels or not isinstance(content, dict):
        return json.dumps(content, ensure_ascii=False)
    inner = f"{indent} "
    lines = [
        f"{inner}{json.dumps(name)}: {as_json(value, levels - 1, inner)}"
        for name, value in content.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def main() -> int:
    """Write both files and say how many recordings they have."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("list", type=Path, help="JSON with an entry for each recording")
    parser.add_argument(
        "--target", type=Path, default=TARGET, help="manifest to write (default: the course's own)"
    )
    parser.add_argument(
        "--truths", type=Path, default=TRUTHS, help="figures to write (default: the tests' own)"
    )
    arguments = parser.parse_args()
    known = json.loads(arguments.target.read_text()) if arguments.target.is_file() else []
    listed = json.loads(arguments.list.read_text())
    public = [entry for entry in listed if any(file.get("url") for file in entry["files"])]
    entries = merge(known, public)
    arguments.target.write_text(
        json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    truths = {entry["name"]: truth(entry) for entry in public}
    arguments.truths.write_text(as_json(truths, levels=3) + "\n", encoding="utf-8")
    print(f"{arguments.target}: {len(entries)} recordings", file=sys.stderr)
    print(f"{arguments.truths}: figures of {len(public)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

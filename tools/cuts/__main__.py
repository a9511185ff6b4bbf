"""The command-line interface: `python -m tools.cuts --help`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from proflab.recordings import load_manifest
from tools.cuts import make_cut, notice, write_manifest
from tools.cuts.recipes import RECIPES

TARGET = Path(__file__).parents[2] / "recordings"


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.cuts", description="Cut public recordings for the lessons."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="cut these recordings (default: all in tools/cuts)"
    )
    return parser


def main() -> int:
    """Cut the named recordings, or all recordings that lessons use."""
    parser = build_parser()
    names = parser.parse_args().names or list(RECIPES)
    source = os.environ.get("PROFLAB_RECORDINGS")
    if not source or not set(names) <= set(RECIPES):
        parser.error(
            "set PROFLAB_RECORDINGS to the folder with the whole files; NAME must be one of"
            f" {', '.join(RECIPES)}"
        )
    entries = [load_manifest()[name] for name in names]
    cuts = {entry.name: make_cut(entry, Path(source), TARGET / "cuts") for entry in entries}
    for name, cut in cuts.items():
        print(f"{name}: {cut.total_bytes:,} of {load_manifest()[name].total_bytes:,} bytes")
    noted = notice(write_manifest(TARGET / "manifest.json", cuts))
    (TARGET / "cuts/NOTICE.md").write_text(noted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

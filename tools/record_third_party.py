"""Record third-party programs with the code block from lesson 14, as their authors would.

python -m tools.record_third_party [NAME ...]

The programs are in packages/tidyprof/tests/third_party/sources.tar.gz. Each trace contains three
steps on this machine's CPU, with one file per rank. The truths in truth.toml and truth_review.toml
were written before any trace was recorded, so recording again must not change them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
THIRD_PARTY = COURSE / "packages/tidyprof/tests/third_party"
BLOCK = COURSE / "snippets/14_instrument_me.py"
LONGEST_S = 300
# The programs run at least 14 steps.
WATCHED = {
    "STEP_TIMER": "trace",
    "STEP_TIMER_SKIP": "10",
    "STEP_TIMER_DIR": "out",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(prog="python -m tools.record_third_party")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="record these programs (default: all)"
    )
    return parser


def main() -> None:
    """Record the named programs, or all of them."""
    names = build_parser().parse_args().names
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(THIRD_PARTY / "sources.tar.gz", folder)
        # The archived scripts import the class by its former name.
        Path(folder, "instrument_me.py").write_text(BLOCK.read_text() + "\n\nWatch = StepTimer\n")
        asked = os.environ | WATCHED | {"PYTHONPATH": folder}
        for script in sorted(Path(folder).glob("scripts*/*.py")):
            if names and script.stem not in names:
                continue
            out, target = Path(folder, "out"), THIRD_PARTY / "traces" / script.stem
            command = [sys.executable, script]
            subprocess.run(command, cwd=folder, env=asked, check=True, timeout=LONGEST_S)
            shutil.rmtree(target, ignore_errors=True)
            shutil.move(out, target)
            print(target.relative_to(COURSE), flush=True)


if __name__ == "__main__":
    main()

"""Record the scripts of packages/tidyprof/tests/strangers with the block of lesson 14, as their
authors would.

    python -m tools.record_strangers [NAME ...]

Each trace is of three steps on this machine's processor, one for each rank. The truths are in
truth.toml, and were written before a trace was made: whoever records again must not change them.
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
STRANGERS = COURSE / "packages/tidyprof/tests/strangers"
BLOCK = COURSE / "snippets/14_instrument_me.py"
LONGEST_S = 300


def record(script: Path) -> list[Path]:
    """Run one script and keep its traces. Raises subprocess.CalledProcessError if it fails."""
    target = STRANGERS / "traces" / script.stem
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(BLOCK, Path(folder, "instrument_me.py"))
        asked = {
            "PYTHONPATH": folder,
            "WATCH": "trace",
            "WATCH_DIR": f"{folder}/out",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        asked["WATCH_SKIP"] = "10"  # they make 14 steps or more
        subprocess.run(
            [sys.executable, script],
            cwd=folder,
            env=os.environ | asked,
            check=True,
            timeout=LONGEST_S,
        )
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(f"{folder}/out", target)
    return sorted(target.iterdir())


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    scripts = sorted(path.stem for path in STRANGERS.glob("scripts*/*.py"))
    parser = argparse.ArgumentParser(
        prog="python -m tools.record_strangers", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "scripts",
        nargs="*",
        metavar="NAME",
        help=f"scripts to record, or all: {', '.join(scripts)}",
    )
    return parser


def main() -> None:
    """Record the named scripts, or all."""
    wanted = set(build_parser().parse_args().scripts)
    for script in sorted(STRANGERS.glob("scripts*/*.py")):
        if not wanted or script.stem in wanted:
            for path in record(script):
                print(
                    f"{path.relative_to(COURSE)}: {path.stat().st_size / 1000:,.0f} kB", flush=True
                )


if __name__ == "__main__":
    main()

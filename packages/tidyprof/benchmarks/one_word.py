"""Run other people's programs, unchanged, below `tidyprof run --` and compare its word with what
their authors wrote down first.

    python -m benchmarks.one_word [NAME ...]

Run it on a machine without other work. Without names, the figures go into docs/triage.md and the
rows into docs/triage-files.md. The programs are in tests/third_party/sources.tar.gz. Those of
`scripts` and `scripts_review` run 14 steps or more, so their trace starts after nine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.page import DOCS, write_part

HOUSE = Path(__file__).resolve().parents[1]
THIRD_PARTY = HOUSE / "tests" / "third_party"
BLOCK = HOUSE.parents[1] / "snippets/14_instrument_me.py"
LONGEST_S = 600
NO_VERDICT = "no verdict"
HEAD = (
    "| program | truth | tidyprof run | confident | why there is no verdict |\n| --- | --- | --- | --- |"
    " --- |\n"
)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def truths(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((THIRD_PARTY / name).read_text(encoding="utf-8"))


def programs() -> Iterator[tuple[str, list[str], list[str], list[str], int]]:
    """Yield for each program its name, its command in the folder of the sources, the right words,
    the misleading ones (none: all others) and the steps before its trace.
    """
    for folder, file in (("scripts", "truth.toml"), ("scripts_review", "truth_review.toml")):
        for name, truth in truths(file).items():
            command = [sys.executable, f"{folder}/{name}.py"]
            yield name, command, [truth["cause"], *truth["also"]], [], 9
    for name, truth in truths("ordinary/truth.toml").items():
        launcher, *options = truth["launcher"].split()
        command = [*(TORCHRUN if launcher == "torchrun" else [sys.executable]), *options]
        command += [f"ordinary/{truth['program']}", *truth["arguments"]]
        yield name, command, truth["cause"], truth["wrong"], 30


def diagnose(command: list[str], after: int) -> tuple[str, bool, str]:
    """Return the cause that `tidyprof run` names, whether it is confident, and why it has no verdict."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(THIRD_PARTY / "sources.tar.gz") as archive:
            archive.extractall(scratch, filter="data")
        # The scripts import the block of lesson 14, which does nothing unless it is asked.
        shutil.copy(BLOCK, Path(scratch, "instrument_me.py"))
        run = [sys.executable, "-m", "tidyprof", "run", "--out", "out", "--skip-steps", str(after)]
        done = subprocess.run(
            [*run, "--json", "report.json", "--", *command],
            cwd=scratch,
            env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": f"{scratch}:{HOUSE / 'src'}"},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
        report = Path(scratch, "report.json")
        if not report.is_file():
            return NO_VERDICT, False, (done.stderr.strip() or "?").splitlines()[-1]
        found = json.loads(report.read_text())
    if found["diagnosis"] is None:
        return NO_VERDICT, False, found["why_no_verdict"] or "no step was seen"
    return found["diagnosis"]["cause"], found["diagnosis"]["confident"], ""


def main() -> None:
    """Run the programs that are named, or all."""
    rows, counted = [], Counter[str]()
    for name, command, right, wrong, after in programs():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        cause, confident, why = diagnose(command, after)
        unclear = cause in (NO_VERDICT, "inconclusive")
        misleads = not unclear and cause not in right and (not wrong or cause in wrong)
        counted.update(["forms", *["right"] * (cause in right), *[cause] * unclear])
        counted.update(["wrong"] * misleads + ["confident"] * (misleads and confident))
        shown = f"**{cause}**" if misleads else cause
        rows.append(
            f"| {name} | {' or '.join(right)} | {shown} | {'yes' if confident else ''} | {why} |"
        )
        print(rows[-1], flush=True)
    others = counted["forms"] - counted["right"] - counted["wrong"] - counted[NO_VERDICT]
    summary = (
        f"{counted['forms']} forms: {counted['right']} right, {counted['wrong']} wrong,"
        f" {counted['confident']} of these confident, {others} where triage is inconclusive,"
        f" {counted[NO_VERDICT]} without a verdict"
    )
    print(summary)
    if not sys.argv[1:]:
        write_part(DOCS / "triage-files.md", "one word", HEAD + "\n".join(rows))
        write_part(DOCS / "triage.md", "one word", f"{summary}, {date.today():%B %Y}.")


if __name__ == "__main__":
    main()

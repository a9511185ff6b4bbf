"""Other people's programs, unchanged, with `tidyprof run --` in front: what it says beside what is
known of each.

    python -m benchmarks.one_word [NAME ...] [--out FOLDER] [--write]

The programs are those of packages/tidyprof/tests/strangers, with the truths that their authors
wrote down first. Those of `scripts` and `scripts_review` make 14 steps or more, so that their trace
begins after nine. Run it on a machine without other work. --write puts the figures into
docs/triage.md and the rows into docs/triage-files.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.page import DOCS, write_part

HOUSE = Path(__file__).resolve().parents[1]
COURSE = HOUSE.parents[1]
STRANGERS = HOUSE / "tests" / "strangers"
BLOCK = COURSE / "snippets/14_instrument_me.py"
LONGEST_S = 600
NO_VERDICT = "no verdict"


@dataclass(frozen=True)
class Program:
    """A program, and what limits it by its author: any of `truth`, and none of `wrong` (empty:
    nothing else).

    after -- steps before its trace.
    """

    name: str
    command: tuple[str, ...]
    truth: tuple[str, ...]
    wrong: tuple[str, ...]
    after: int


@dataclass(frozen=True)
class Told:
    """What the command said of a program."""

    program: Program
    cause: str
    sure: bool
    why: str
    exit_code: int

    @property
    def is_right(self) -> bool:
        """Whether it is one of the answers that its author takes for right."""
        return self.cause in self.program.truth

    @property
    def is_wrong(self) -> bool:
        """Whether it misleads; what says that it can't tell does not."""
        if self.is_right or self.cause in (NO_VERDICT, "can't tell"):
            return False
        return not self.program.wrong or self.cause in self.program.wrong


def programs() -> Iterator[Program]:
    """All of them, in the order of their truths."""
    for folder, truths in (("scripts", "truth.toml"), ("scripts_review", "truth_review.toml")):
        for name, truth in tomllib.loads((STRANGERS / truths).read_text()).items():
            command = (sys.executable, str(STRANGERS / folder / f"{name}.py"))
            yield Program(name, command, (truth["cause"], *truth["also"]), (), after=9)
    for name, truth in tomllib.loads((STRANGERS / "ordinary/truth.toml").read_text()).items():
        script = str(STRANGERS / "ordinary" / truth["program"])
        command = (*_launcher(truth["launcher"]), script, *truth["arguments"])
        yield Program(name, command, tuple(truth["cause"]), tuple(truth["wrong"]), after=30)


def _launcher(text: str) -> tuple[str, ...]:
    """`python` or `torchrun OPTIONS` of this environment."""
    name, *options = text.split()
    return (
        sys.executable,
        *(["-m", "torch.distributed.run", "--standalone"] if name == "torchrun" else []),
        *options,
    )


def told(program: Program, kept: Path | None) -> Told:
    """Run one program with the command in front of it."""
    with tempfile.TemporaryDirectory() as scratch:
        # The scripts import the block of lesson 14, which does nothing unless it is asked.
        shutil.copy(BLOCK, Path(scratch, "instrument_me.py"))
        path = os.pathsep.join([scratch, str(HOUSE / "src"), os.environ.get("PYTHONPATH", "")])
        report, out = (
            Path(scratch, "report.json"),
            kept / program.name if kept else Path(scratch, "out"),
        )
        command = [
            sys.executable,
            "-m",
            "tidyprof",
            "run",
            "--out",
            out,
            "--after",
            str(program.after),
        ]
        done = subprocess.run(
            [*command, "--json", report, "--", *program.command],
            cwd=scratch,
            env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
        if kept:
            (kept / f"{program.name}.txt").write_text(done.stdout + done.stderr)
        if not report.is_file():
            return Told(
                program,
                NO_VERDICT,
                False,
                (done.stderr.strip() or "?").splitlines()[-1],
                done.returncode,
            )
        found = json.loads(report.read_text())
    diagnosis = found["diagnosis"]
    if diagnosis is None:
        return Told(
            program,
            NO_VERDICT,
            False,
            found["why_no_verdict"] or "no step was seen",
            done.returncode,
        )
    return Told(program, diagnosis["cause"], diagnosis["sure"], diagnosis["title"], done.returncode)


def line_of(one: Told) -> str:
    """A row of the table."""
    cause = f"**{one.cause}**" if one.is_wrong else one.cause
    why = one.why if one.cause == NO_VERDICT else ""
    return (
        f"| {one.program.name} | {' or '.join(one.program.truth)} | {cause} |"
        f" {'yes' if one.sure else ''} | {why} |"
    )


HEAD = (
    "| program | truth | tidyprof run | sure | why there is no verdict |\n| --- | --- | --- | --- |"
    " --- |\n"
)


def counted(found: list[Told]) -> str:
    """How many are right, and what the others are."""
    given = [one for one in found if one.cause != NO_VERDICT]
    right, wrong = (sum(getattr(one, name) for one in given) for name in ("is_right", "is_wrong"))
    sure = sum(one.sure for one in given if one.is_wrong)
    return (
        f"{len(found)} forms: {right} right, {wrong} wrong, {sure} of these sure,"
        f" {len(given) - right - wrong} where triage can't tell,"
        f" {len(found) - len(given)} without a verdict"
    )


def main() -> None:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.one_word", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path, help="folder for what each run leaves")
    parser.add_argument(
        "--write", action="store_true", help="put the figures into the pages of docs"
    )
    asked = parser.parse_args()
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
    found = []
    for program in programs():
        if not asked.names or program.name in asked.names:
            found.append(told(program, asked.out and asked.out.resolve()))
            print(line_of(found[-1]), flush=True)
    print(counted(found))
    if asked.write:
        write_part(DOCS / "triage-files.md", "one word", HEAD + "\n".join(map(line_of, found)))
        write_part(DOCS / "triage.md", "one word", f"{counted(found)}, {date.today():%B %Y}.")


if __name__ == "__main__":
    main()

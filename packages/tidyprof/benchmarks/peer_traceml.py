"""The programs of `one_word`, unchanged, with `traceml run` in front: what TraceML says of each.

    PEER/bin/python -m benchmarks.peer_traceml [NAME ...] [--write] [--logs FOLDER]

PEER is an environment with `traceml-ai` (benchmarks/peers.txt), torch and transformers; with it and
without it each program runs once by this Python. Run it on a machine without other work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.one_word import BLOCK, HOUSE, LONGEST_S, STRANGERS, Program, Told, programs
from benchmarks.page import DOCS, write_part

TRACEML = Path(sys.executable).with_name("traceml")
GRACE_S = 30
STARTED_S, TIMES_AS_LONG = 60, 5
"""What TraceML may take: a minute, and five times as long as the program does alone."""

MEANS = {
    "INPUT-BOUND": ("late-data",),
    "COMPUTE-BOUND": ("healthy", "one-kernel"),
    "NO CLEAR PERFORMANCE BOTTLENECK": ("healthy", "one-kernel"),
    "RESIDUAL-HEAVY": ("silent-host",),
    "INPUT STRAGGLER": ("straggler", "late-data"),
    "COMPUTE STRAGGLER": ("straggler",),
    "H2D STRAGGLER": ("straggler",),
    "STRAGGLER": ("straggler",),
}
"""Its verdicts as causes of ours, where the meaning is plain, after its page "How to Read Output".

RESIDUAL-HEAVY is "work outside traced phases, CPU stalls, logging, checkpointing". What is not here
is no verdict: H2D-BOUND and LOW GPU UTILIZATION, which need a GPU, and INSUFFICIENT STEP-TIME DATA.
"""

SOUND = frozenset({"healthy", "one-kernel"})
NAMED = frozenset(cause for causes in MEANS.values() for cause in causes)

HEAD = """\
| program | truth | TraceML, in its words | that is | exit code kept | s without | s with |
| --- | --- | --- | --- | --- | --: | --: |"""


@dataclass(frozen=True)
class Ran:
    """How a command ended (None: it ran past the limit), and after how many seconds."""

    exit_code: int | None
    seconds: float


@dataclass(frozen=True)
class Row:
    """One program: what TraceML said, how that is judged, and both runs."""

    program: Program
    said: str
    judged: str
    without: Ran
    with_it: Ran

    @property
    def keeps_exit_code(self) -> bool:
        """Whether the program ended as it does alone."""
        alone = self.without.exit_code
        return alone is not None and self.with_it.exit_code == alone

    def __str__(self) -> str:
        program, kept = self.program, "yes" if self.keeps_exit_code else "no"
        cells = (program.name, " or ".join(program.truth), self.said, self.judged, kept)
        return f"| {' | '.join(cells)} | {self.without.seconds:.0f} | {self.with_it.seconds:.0f} |"


def by_traceml(program: Program, logs: Path) -> list[str]:
    """The command that its authors tell: the script after `traceml run`, and torchrun's ranks."""
    words = program.command
    at = next(i for i, word in enumerate(words) if word.startswith(str(STRANGERS)))
    ranks = words[words.index("--nproc-per-node") + 1] if "--nproc-per-node" in words[:at] else "1"
    options = ["--logs-dir", str(logs), "--run-name", program.name, "--nproc-per-node", ranks]
    return [str(TRACEML), "run", *options, words[at], "--args", *words[at + 1 :]]


def of(scratch: Path) -> list[int]:
    """Processes that work in the folder; TraceML's server and torchrun's ranks lead sessions."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == scratch:
                found.append(int(link.parent.name))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def end(started: subprocess.Popen, scratch: Path) -> None:
    """End the command if it goes on, as a scheduler would, and then all that is left of it."""
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    while left := of(scratch):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


def run(command: list[str], scratch: Path, output: Path, longest_s: float = LONGEST_S) -> Ran:
    """Run a command in the folder, to its end or to the limit; no process of it is left."""
    path = os.pathsep.join([str(scratch), str(HOUSE / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    begun = time.perf_counter()
    with output.open("w") as file:
        started = subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = None
        try:
            code = started.wait(longest_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            seconds = time.perf_counter() - begun
            end(started, scratch)
    return Ran(code, seconds)


def said(summary: Mapping) -> tuple[str, str]:
    """Its verdict, and the verdict with the parts of the step where it has these."""
    verdict = summary["primary_diagnosis"]
    mean = summary["step_time"]["global"]["average"]
    whole = mean.get("step_time_ms")
    parts = ("input_wait", "compute", "h2d", "residual")
    shares = [
        f"{part.replace('_', ' ')} {mean[f'{part}_ms'] / whole:.0%}"
        for part in parts
        if whole and mean.get(f"{part}_ms") is not None
    ]
    word = verdict["status"]
    return word, ": ".join([word, *([", ".join(shares)] if shares else [])])


def judged(program: Program, verdict: str) -> str:
    """Whether it is right; a truth without a word is missed, unless it names another fault."""
    causes = MEANS.get(verdict, ())
    answers = [Told(program, cause, False, "", 0) for cause in causes]
    if any(answer.is_right for answer in answers):
        return "right"
    if NAMED.isdisjoint(program.truth) and SOUND.issuperset(causes):
        return "no verdict"
    return "wrong" if answers and all(answer.is_wrong for answer in answers) else "no verdict"


def tried(program: Program, logs: Path) -> Row:
    """Run one program without TraceML, and then with it."""
    output = logs / f"{program.name}.txt"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder).resolve()
        # The scripts import the block of lesson 14, which does nothing unless it is asked.
        shutil.copy(BLOCK, scratch / "instrument_me.py")
        without = run(list(program.command), scratch, output.with_suffix(".alone.txt"))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder).resolve()
        shutil.copy(BLOCK, scratch / "instrument_me.py")
        longest_s = STARTED_S + TIMES_AS_LONG * without.seconds
        with_it = run(by_traceml(program, logs), scratch, output, longest_s)
    summary = logs / program.name / "final_summary.json"
    if with_it.exit_code is None:  # it may have left a summary of a part
        verdict = words = "timed out"
    elif summary.is_file():
        verdict, words = said(json.loads(summary.read_text()))
    else:
        verdict = words = "no summary"
    return Row(program, words, judged(program, verdict), without, with_it)


def counted(rows: list[Row]) -> str:
    """How many are right."""
    given = ("right", "no verdict", "wrong")
    counts = ", ".join(f"{sum(row.judged == word for row in rows)} {word}" for word in given)
    kept = f"exit code kept in {sum(row.keeps_exit_code for row in rows)}"
    return f"TraceML {version('traceml-ai')}: {len(rows)} programs, {counts}; {kept}."


def main() -> None:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peer_traceml", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="write docs/peers.md")
    parser.add_argument("--logs", type=Path, help="new folder for what each run leaves")
    asked = parser.parse_args()
    logs = asked.logs.resolve() if asked.logs else Path(tempfile.mkdtemp(prefix="traceml-"))
    logs.mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    rows = []
    for program in programs():
        if not asked.names or program.name in asked.names:
            rows.append(tried(program, logs))
            print(rows[-1], flush=True)
    print(f"\n{counted(rows)}")
    if asked.write:
        table = "\n".join([counted(rows), "", HEAD, *map(str, rows)])
        write_part(DOCS / "peers.md", "TraceML", table)


if __name__ == "__main__":
    main()

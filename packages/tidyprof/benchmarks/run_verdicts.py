"""Run third-party programs, unmodified, below `tidyprof run --`, and store each verdict.

    python -m benchmarks.run_verdicts --choose 30             # on a quiet machine
    python -m benchmarks.run_verdicts --choose 30 --busy 6    # next to six busy loops

The verdicts go into run_verdicts.json, and `make tables` writes them into docs/contributors.
Programs with a verdict of the same code and load are skipped, so you can continue after an
interruption. The programs are in tests/third_party/sources.tar.gz.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HOUSE = Path(__file__).resolve().parents[1]
THIRD_PARTY = HOUSE / "tests" / "third_party"
SOURCES = THIRD_PARTY / "sources.tar.gz"
BLOCK = HOUSE.parents[1] / "snippets/14_instrument_me.py"
VERDICTS = Path(__file__).with_suffix(".json")
NO_VERDICT = "no verdict"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
BUSY_LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"
"""A loop for one core, which ends with the process that started it, however that ends."""
TO_END_S = 60


class Program(NamedTuple):
    """A program: its command in the folder of the sources, the right causes, the best one first,
    and the steps before its trace. Scripts expect a trace of the seventh to ninth step.
    """

    command: list[str]
    right: list[str]
    skip_steps: int


def _truths(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((THIRD_PARTY / name).read_text(encoding="utf-8"))


def programs() -> dict[str, Program]:
    """Return all programs by name."""
    found = {}
    for folder, file in (("scripts", "truth.toml"), ("scripts_review", "truth_review.toml")):
        for name, truth in _truths(file).items():
            command = [sys.executable, f"{folder}/{name}.py"]
            found[name] = Program(command, [truth["cause"], *truth["also"]], 6)
    for name, truth in _truths("ordinary/truth.toml").items():
        launcher, *options = truth["launcher"].split()
        command = [*(TORCHRUN if launcher == "torchrun" else [sys.executable]), *options]
        command += [f"ordinary/{truth['program']}", *truth["arguments"]]
        found[name] = Program(command, truth["cause"], 30)
    return found


def choose(count: int) -> list[str]:
    """Return names of programs in an order that is always the same: one program per cause, then
    another one per cause, and so on.
    """
    known = programs()
    earlier, rounds = Counter[str](), {}
    for name in sorted(known, key=lambda name: hashlib.sha256(name.encode()).digest()):
        cause = known[name].right[0]
        rounds[name] = earlier[cause]
        earlier[cause] += 1
    return sorted(rounds, key=rounds.__getitem__)[:count]


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep `count` processes of normal priority busy inside the block."""
    command = [sys.executable, "-c", BUSY_LOOP, str(os.getpid())]
    # Linux shares the CPU among sessions first, so loops in one session would count as one.
    loops = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a program, and whatever it started."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # torchrun passes it on to its ranks
            with suppress(subprocess.TimeoutExpired):
                process.wait(TO_END_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def judge(program: Program, limit_s: float) -> dict[str, Any]:
    """Return the verdict of `tidyprof run` on a program: its cause, whether it is confident, and
    the share of the traced steps for which other programs had the CPU; or why there is none.
    """
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(SOURCES, scratch)
        # The scripts import the block of lesson 14, which does nothing unless it is asked.
        # The archived programs import the class by its former name.
        Path(scratch, "instrument_me.py").write_text(BLOCK.read_text() + "\n\nWatch = StepTimer\n")
        run = [sys.executable, "-m", "tidyprof", "run", "--skip-steps", str(program.skip_steps)]
        report, errors = Path(scratch, "report.json"), Path(scratch, "errors.txt")
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [*run, "--out", "out", "--json", report, "--", *program.command],
                cwd=scratch,
                env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": f"{scratch}:{HOUSE}/src"},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return _none(f"it ran for longer than {limit_s:.0f} s")
            finally:
                _stop(process)
        if not report.is_file():
            return _none((errors.read_text().strip() or "?").splitlines()[-1])
        found = json.loads(report.read_text())
    if found["diagnosis"] is None:
        return _none(found["why_no_verdict"])
    facts = {fact["name"]: fact["value"] for fact in found["diagnosis"]["facts"]}
    return {
        "cause": found["diagnosis"]["cause"],
        "confident": found["diagnosis"]["confident"],
        "cpu_steal_share": round(facts.get("cpu_steal_share") or 0, 2),
    }


def _none(why: str) -> dict[str, Any]:
    return {"cause": NO_VERDICT, "confident": False, "why": why}


def _setting() -> dict[str, str]:
    """Return what the verdicts depend on."""
    code = hashlib.sha256(SOURCES.read_bytes())
    for file in sorted((HOUSE / "src").rglob("*.py")):
        code.update(file.read_bytes())
    machine = f"{os.cpu_count()} CPU cores without a GPU, torch {version('torch')}"
    return {"machine": machine, "code": code.hexdigest()[:16]}


def read_verdicts(file: Path = VERDICTS) -> dict[str, Any]:
    """Return the stored setting and, for each number of busy loops, the verdicts by program."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"verdicts": {}}


def _write(file: Path, stored: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        Path(scratch, "new").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        Path(scratch, "new").replace(file)


def main() -> None:
    """Run the programs that have no verdict yet."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run_verdicts")
    parser.add_argument("names", nargs="*", help="programs (default: the chosen ones)")
    parser.add_argument("--choose", type=int, help="how many programs (default: all)")
    parser.add_argument("--busy", type=int, default=0, help="how many busy loops run meanwhile")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each program")
    parser.add_argument("--json", type=Path, default=VERDICTS, help="the file of the verdicts")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that each block ends what it started
    known, stored, setting = programs(), read_verdicts(options.json), _setting()
    if {name: stored.get(name) for name in setting} != setting:
        stored = {**setting, "verdicts": {}}
    done = stored["verdicts"].setdefault(str(options.busy), {})
    for name in options.names or choose(options.choose or len(known)):
        if name in done:
            continue
        began = time.monotonic()
        with busy_loops(options.busy):
            done[name] = judge(known[name], options.limit)
        done[name]["seconds"] = round(time.monotonic() - began)
        stored["month"] = f"{date.today():%B %Y}"
        _write(options.json, stored)
        print(f"{name} ({' or '.join(known[name].right)}): {json.dumps(done[name])}", flush=True)


if __name__ == "__main__":
    main()

"""Many learners at once: as many Jupyter kernels in one clone run a lesson as it is shipped, with
caches that are new.

    python -m benchmarks.many_learners 20 --lesson 06_rpd_queries --page

The clone is a copy that cannot be written, but for the folder of the results, which all of them
share, as they share a new home folder. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.page import RELIABILITY, write_part

REPOSITORY = Path(__file__).resolve().parents[1]
AS_OTHERS = ("setpriv", "--bounding-set=-dac_override")
"""Before a command of root's: it may write only what its owner may (man 7 capabilities)."""

STARTUP_S = 1200
"""Longest wait for a kernel, far beyond reason."""

NO_RESULTS = (".git", ".venv", "build", "runs", "__pycache__", ".*_cache", ".hypothesis")
KEPT = ("PATH", "LANG", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
WHOLE = ("*.rpd", "*.db", "*.json.gz")
"""Results that tidyprof has to be able to read."""


async def learner(notebook: Path) -> tuple[float, str]:
    """Seconds for all cells of a kernel of one's own, and the error that ended it, if any."""
    import nbformat
    from nbclient import NotebookClient

    begin, error = time.perf_counter(), ""
    place = {"metadata": {"path": str(notebook.parent)}}
    content = nbformat.read(notebook, as_version=4)
    client = NotebookClient(content, timeout=None, startup_timeout=STARTUP_S, resources=place)
    try:
        await client.async_execute()
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"[-1500:]
    return time.perf_counter() - begin, error


async def room(notebook: Path, learners: int) -> list[tuple[float, str]]:
    """All of them at once, in the place of the one Jupyter server."""
    return await asyncio.gather(*(learner(notebook) for _ in range(learners)))


def prepared(folder: Path) -> tuple[Path, dict[str, str]]:
    """A clone that cannot be written and a new home folder; the clone, and the environment of its
    user.
    """
    clone = folder / "clone"
    shutil.copytree(REPOSITORY, clone, ignore=shutil.ignore_patterns(*NO_RESULTS))
    for path in [clone, *clone.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    (clone / "notebooks").chmod(0o755)
    for place in (folder / "home", folder / "tmp", clone / "notebooks" / "runs"):
        place.mkdir()
    (clone / "notebooks").chmod(0o555)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": str(clone / "src"),
    }
    return clone, environment | {"PROFLAB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def memory_bytes(process: psutil.Process) -> int:
    """Memory of a process and of all that it has started; what several of them share counts
    once.
    """
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # ended just now
            total += one.memory_full_info().pss
    return total


def left_behind(folder: Path) -> list[str]:
    """Temporary and unreadable files in the results, caches and temporary folder."""
    import tidyprof

    runs = folder / "clone" / "notebooks" / "runs"
    found = [
        *(folder / "tmp").rglob("*"),
        *runs.rglob(".*"),
        *(folder / "home" / ".cache").rglob(".*"),
    ]
    found += [
        path for path in (folder / "home").rglob("*") if path.suffix in (".tmp", ".part", ".lock")
    ]
    for path in (file for pattern in WHOLE for file in runs.rglob(pattern)):
        try:
            tidyprof.read(path)
        except tidyprof.ProfileReadError:
            found.append(path)
    return sorted({str(path.relative_to(folder)) for path in found})


def measured(lesson: str, learners: int) -> dict[str, object]:
    """What came of it: results (seconds, error), bytes, left (names of files)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone, environment = prepared(folder)
        notebook = clone / "notebooks" / f"{lesson}.ipynb"
        command = [sys.executable, "-m", "benchmarks.many_learners", "--room", str(notebook)]
        command = [*(AS_OTHERS if os.getuid() == 0 else ()), *command, str(learners)]
        peak = 0
        with subprocess.Popen(
            command, cwd=clone, env=environment, stdout=subprocess.PIPE
        ) as started:
            while True:
                peak = max(peak, memory_bytes(psutil.Process(started.pid)))
                with suppress(subprocess.TimeoutExpired):
                    started.wait(1)
                    break
            results = json.loads(started.stdout.read())
        return {"results": results, "bytes": peak, "left": left_behind(folder)}


def main() -> int:
    """Measure and show; 1 if a learner failed or anything was left."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("learners", nargs="?", type=int, default=20)
    parser.add_argument("--lesson", default="06_rpd_queries")
    parser.add_argument(
        "--page", action="store_true", help="write the figures into docs/reliability.md"
    )
    parser.add_argument("--room", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.room:
        print(json.dumps(asyncio.run(room(options.room, options.learners))))
        return 0
    found = measured(options.lesson, options.learners)
    seconds, errors = zip(*found["results"], strict=True)
    print(*filter(None, errors), sep="\n", file=sys.stderr)
    lines = [
        "| lesson | learners | succeeded | the last after, s | memory of all, GB | files left |",
        "| --- " * 6 + "|",
        (
            f"| {options.lesson} | {len(errors)} | {errors.count('')} | {max(seconds):.0f} |"
            f" {found['bytes'] / 1e9:.1f} | {', '.join(found['left']) or 0} |"
        ),
        "",
        (
            f"Measured on {os.cpu_count()} cores; {os.getloadavg()[0]:.0f} processes wanted one at"
            " the end."
        ),
    ]
    print("\n".join(lines))
    if options.page:
        write_part(RELIABILITY, "learners", "\n".join(lines))
    return int(any(errors) or bool(found["left"]))


if __name__ == "__main__":
    raise SystemExit(main())

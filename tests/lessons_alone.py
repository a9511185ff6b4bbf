"""Plugin that runs lessons as on a machine without network, mirror folder or earlier downloads, and
times their cells.

`pytest -p tests.lessons_alone --nbmake ...` takes it. Lessons and tests can share one session: a
lesson keeps the processor busy while a test waits for Slurm.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import nbformat
import pytest

from tests.warm import PYTHON, share, shared_python
from tools.notebooks import WORKSHOP

REPOSITORY = Path(__file__).resolve().parent.parent
LESSONS, SOLVED = REPOSITORY / "lessons", REPOSITORY / "build/combined"
ALONE = {
    "PROFLAB_OFFLINE": "1",
    "PROFLAB_RECORDINGS": "",
    "PROFLAB_CACHE": str(REPOSITORY / "build/no_downloads"),
    # Threads of torch that wait for each other spin, and would take the other worker's processor.
    "OMP_NUM_THREADS": "1",
}

SESSION, QUICK = pytest.StashKey[ExitStack](), pytest.StashKey[dict[str, str]]()

MAX_S = 120
"""Budget of a lesson in seconds on two processors without AVX-512: a learner waits for each
cell.
"""

SHOWN = 10
MOMENTS = ("iopub.execute_input", "shell.execute_reply")
"""When a cell begins and ends, in nbclient's record of it."""


def is_lesson(item: pytest.Item) -> bool:
    """Whether this is a notebook."""
    return item.path.suffix == ".ipynb"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the lessons among the first two thirds of the tests, so that no worker is left with one
    at the end.
    """
    lessons, others = (
        [item for item in items if is_lesson(item)],
        [item for item in items if not is_lesson(item)],
    )
    if not lessons or not others:
        return
    files = list(dict.fromkeys(item.path for item in others))
    step = max(1, 2 * len(files) // (3 * len(lessons)))
    place = {path: number for number, path in enumerate(files)} | {
        lesson.path: number * step - 0.5 for number, lesson in enumerate(lessons)
    }
    items.sort(key=lambda item: place[item.path])


@contextmanager
def quick_programs() -> Iterator[dict[str, str]]:
    """Environment in which a lesson's commands start in a copy of an interpreter that has torch
    imported.

    Of an hour of lessons a third went into imports. The kernel itself is a real interpreter; it
    takes the folder of `sys.executable` for the home of `python`.
    """
    with tempfile.TemporaryDirectory(prefix="tests-warm-") as name:
        folder = Path(name)
        python, torchrun, startup = (
            folder / "python",
            folder / "torchrun",
            folder / "profile_default/startup/python.py",
        )
        python.symlink_to(PYTHON)
        torchrun.write_text(f'#!/bin/sh\nexec {python} -m torch.distributed.run "$@"\n')
        torchrun.chmod(0o755)
        startup.parent.mkdir(parents=True)
        startup.write_text(f"import sys\n\nsys.executable = {str(python)!r}\n")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with shared_python():
            yield {"IPYTHONDIR": name, "PYTHON_EXEC": str(python), "PATH": path}


def pytest_configure(config: pytest.Config) -> None:
    """Keep what lives as long as the session. All lessons begin anew: the book shows no attempts of
    an earlier run.
    """
    share(config)
    asked = [Path(word).absolute() for word in config.args]
    if not hasattr(config, "workerinput") and any(
        SOLVED in (path, *path.parents) for path in asked
    ):
        shutil.rmtree(SOLVED / "runs", ignore_errors=True)
    config.stash[SESSION] = ExitStack()
    config.add_cleanup(config.stash[SESSION].close)


def _environment(config: pytest.Config) -> dict[str, str]:
    if QUICK not in config.stash:
        config.stash[QUICK] = config.stash[SESSION].enter_context(quick_programs())
    return ALONE | config.stash[QUICK]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A lesson's kernel takes its environment from here; solved ones prove their exercises."""
    with pytest.MonkeyPatch.context() as patch:
        if is_lesson(item):
            for name, value in _environment(item.config).items():
                patch.setenv(name, value)
            if (LESSONS / item.path.stem / WORKSHOP).is_file():
                # Its sections would write over what their lessons write, which may run at the same
                # time.
                patch.setenv("PROFLAB_RUNS", f"runs/{item.path.stem}")
            if item.path.is_relative_to(SOLVED):
                patch.setenv("PROFLAB_STRICT", "1")
        return (yield)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The slowest cells, and the lessons that took longer than their budget."""
    ran = {
        report.fspath
        for reports in terminalreporter.stats.values()
        for report in reports
        if _is_lesson(report)
    }
    cells = {Path(name).stem: cell_times(config.rootpath / name) for name in sorted(ran)}
    if not any(cells.values()):
        return
    terminalreporter.section(f"slowest {SHOWN} cells of the lessons")
    slowest = sorted(
        ((*cell, lesson) for lesson, own in cells.items() for cell in own), reverse=True
    )
    for seconds, words, lesson in slowest[:SHOWN]:
        terminalreporter.write_line(f"{seconds:6.1f} s  {lesson}: {words}")
    for lesson, own in cells.items():
        taken = sum(seconds for seconds, _ in own)
        if taken > MAX_S:
            terminalreporter.write_line(
                f"{lesson} took {taken:.0f} s; its budget is {MAX_S} s on a quiet machine"
            )


def _is_lesson(report: object) -> bool:
    return str(getattr(report, "fspath", "")).endswith(".ipynb")


def cell_times(path: Path) -> list[tuple[float, str]]:
    """Seconds and first words of each code cell of an executed notebook."""
    found = []
    for cell in nbformat.read(path, as_version=4).cells:
        times = cell.metadata.get("execution", {})
        if MOMENTS[1] in times:
            begin, end = (datetime.fromisoformat(times[name]) for name in MOMENTS)
            found.append(((end - begin).total_seconds(), " ".join(cell.source.split())[:70]))
    return found

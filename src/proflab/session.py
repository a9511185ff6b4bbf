"""The first cell of every lesson, which lists the installed software and sets up the results
folder.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proflab import case, journal, recall
from proflab.display import Table, show
from proflab.doctor.checks import architecture
from proflab.errors import CourseError
from proflab.kernel_guard import guard_this_process
from proflab.lessons import Lesson, lesson, place
from proflab.releases import installed
from proflab.showing import show_text
from proflab.tapes import append_to_path

PACKAGES = ("torch", "torchvision", "transformers")
"""Packages that a training run needs. The course reads their versions without importing them."""

SILENCED_LOGS = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Environment variables that silence torch's profiler on a machine without a GPU.

Without these variables, the profiler writes errors to stderr, which notebooks show in red. These
errors report the missing GPU, each profiler start, and memory allocated before the profiler
started.

Kineto, the profiler's library, reads its log level when it first starts. PyTorch reads its own
variable during import (PyTorch's page on torch.distributed). With torch 2.15, Kineto's level 5
still prints a note at each start and stop, but level 6 prints nothing.
"""

KFD_DEVICE = Path("/dev/kfd")
"""Kernel driver's device file. Without this file, ROCm programs can't access a GPU."""

KFD_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
"""Parent folder of the node folders. Each CPU or GPU has one node folder.

A node folder contains a file `properties` (amdkfd, drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
"""


@dataclass(frozen=True)
class Session:
    """Started lesson, with its results folder, its minutes and this machine's GPU architectures."""

    lesson: Lesson
    folder: Path
    gpus: tuple[str, ...]

    @property
    def minutes(self) -> int:
        """Duration of the lesson in a workshop, in minutes."""
        return self.lesson.minutes

    def file(self, name: str) -> Path:
        """Return a file's path in the lesson's folder, for example the path of a published
        table.
        """
        return self.lesson.folder / name

    def recall(self) -> None:
        """Ask questions about earlier lessons with `proflab.recall`.

        The questions are in questions.toml in the lesson's folder.
        """
        recall.ask(self.lesson)

    def findings(self) -> None:
        """Show the last line of the findings log and fold the earlier ones."""
        show_text(place(self.lesson.number))
        if case.lines(before := f"{int(self.lesson.number) - 1:02}"):
            show(case.table(before))

    def conclude(self, evidence: str, **found: Any) -> None:
        """Add this lesson's line to the findings log and show it. See `case.conclude`."""
        case.conclude(self.lesson.number, evidence, **found)

    @property
    def has_gpu(self) -> bool:
        """True if this user can use an AMD GPU on this machine."""
        return bool(self.gpus)


_SHARED: set[str] = set()
"""Results folders of multi-lesson notebooks that this Jupyter kernel has already started.

For these folders, the example run is already set.
"""


def start(number: str, within: str = "") -> Session:
    """Start a lesson and show the installed software.

    The function does the following:

    - Create the folder runs/`number` and set the plot style.
    - Make the tools available to `%%bash` cells. The running Python comes first in PATH. The
      replay tool comes last, under the names of missing tools.
    - Ensure that all processes that the notebook starts end with its Jupyter kernel.
    - Without an AMD GPU, set the variables in SILENCED_LOGS unless they are already set.
    - Hide a library's warning about a notebook progress bar, which the course doesn't use.
    - Set $EXAMPLE to the command line of the example run, and $FOLDER to the results folder.

    If a notebook contains sections of several lessons, `within` names their shared folder. This
    folder may be the runs folder itself. The example run then stays in the state of the first
    section, so that learners can run each cell again later. Raises CourseError for an unknown
    lesson, or if the folder can't be created.
    """
    begun = lesson(number)
    put_python_first()
    guard_this_process()
    warnings.filterwarnings("ignore", message="IProgress not found")
    replayed = {tool for tool, kind in append_to_path().items() if kind == "player"}
    _set_plot_style()
    if within not in _SHARED:
        case.put_into_environment(number)
    if within:
        _SHARED.add(within)
    folder = journal.runs_folder()
    if not within or folder.name != within:
        folder /= within or number
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(
            f"can't create the results folder {folder.absolute()} ({error.strerror}). Start in a"
            " folder that you can write to, or set PROFLAB_RUNS to such a folder."
        ) from error
    os.environ["FOLDER"] = str(folder)
    session = Session(begun, folder, gpu_architectures())
    if not session.has_gpu:
        for name, level in SILENCED_LOGS.items():
            os.environ.setdefault(name, level)
    caption = f"Lesson {number}: {begun.question} About {session.minutes} minutes."
    show(_table(session, replayed, "Tools for this notebook" if within else caption))
    return session


def put_python_first() -> None:
    """Put the folder of the running Python at the start of PATH.

    Commands in `%%bash` cells then use the course's Python.
    """
    home = str(Path(sys.executable).parent)
    others = [
        part for part in os.environ.get("PATH", "").split(os.pathsep) if part and part != home
    ]
    os.environ["PATH"] = os.pathsep.join([home, *others])


def gpu_architectures(device: Path = KFD_DEVICE, topology: Path = KFD_TOPOLOGY) -> tuple[str, ...]:
    """Return the architecture of each AMD GPU that this user can use.

    An example is ("gfx942", "gfx942"). Without a GPU, the result is empty.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        return ()
    found = []
    # Sort by number, so that node 10 comes after node 2.
    for path in sorted(topology.glob("*/properties"), key=lambda path: int(path.parent.name)):
        if name := architecture(path.read_text()):
            found.append(name)
    return tuple(found)


def tool_version(path: Path) -> str:
    """Return the ROCm release of a tool from the release's version file, or "" if there is no such
    file.

    The function doesn't run the tool because starting it can take seconds.
    """
    release = installed({"ROCM_PATH": str(path.resolve().parent.parent)})
    return f"ROCm {release}" if release else ""


def _table(session: Session, replayed: Collection[str], caption: str) -> Table:
    rows = [("Python", platform.python_version(), "real")]
    rows += [_package_row(name) for name in PACKAGES]
    rows += [
        (name, "", "replay") if name in replayed else _tool_row(name)
        for name in session.lesson.tools
    ]
    rows.append(("AMD GPU", _gpu_text(session.gpus), "real" if session.gpus else "missing"))
    rows.append(("the example run", os.environ["EXAMPLE"], "`$EXAMPLE`"))
    return Table(caption, ("tool", "version", "here"), rows, _origin_note(session))


def _package_row(name: str) -> tuple[str, str, str]:
    try:
        return name, importlib.metadata.version(name), "real"
    except importlib.metadata.PackageNotFoundError:
        return name, "", "missing"


def _tool_row(name: str) -> tuple[str, str, str]:
    found = shutil.which(name)
    return (name, tool_version(Path(found)), "real") if found else (name, "", "missing")


def _gpu_text(gpus: tuple[str, ...]) -> str:
    return f"{len(gpus)} x {gpus[0]}" if gpus else ""


def _origin_note(session: Session) -> str:
    if session.has_gpu:
        seen = "Your own runs are `measured`. Other traces are `recorded` elsewhere or `modeled`."
    else:
        seen = (
            "This machine has no AMD GPU, so all GPU results are `recorded` on a named machine or"
            " `modeled`. If a tool is missing, the course replays a stored run of it."
        )
    place = f"Your results are saved in `{session.folder}`, which is `$FOLDER` in commands."
    return (
        f"{seen} Every figure shows its source. {place} If something fails, run `!python -m proflab"
        " doctor` in a cell."
    )


def _set_plot_style() -> None:
    import matplotlib

    from tidyprof.plots import style

    matplotlib.rcParams.update(style.SETTINGS)

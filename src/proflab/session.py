"""The first cell of every lesson: installed software, results folder, and a note on the sources."""

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
"""Packages that a training run needs. Their versions are read without importing them."""

SILENCED_LOGS = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Variables that silence torch's profiler if there is no GPU.

Without them, the profiler would report errors on stderr, which a notebook shows in red. It would
report the missing GPU, each start, and memory allocated before the profiler started. Kineto, the
profiler's library, reads its level at its first start. torch reads its own variable when it is
imported (PyTorch's page on torch.distributed). With torch 2.15, Kineto's level 5 still prints a
note at each start and stop, but level 6 prints nothing.
"""

KFD_DEVICE = Path("/dev/kfd")
"""The kernel driver's device file. Without it, ROCm programs can't reach a GPU."""

KFD_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
"""Parent folder of the node folders, one per CPU or GPU.

Each node folder contains a file `properties` (amdkfd, drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
"""


@dataclass(frozen=True)
class Session:
    """A started lesson: its results folder, its minutes, and the GPU architectures of this
    machine.
    """

    lesson: Lesson
    folder: Path
    gpus: tuple[str, ...]

    @property
    def minutes(self) -> int:
        """Minutes that the lesson takes in a workshop."""
        return self.lesson.minutes

    def file(self, name: str) -> Path:
        """Return the path of a file in the lesson's folder, such as a published table."""
        return self.lesson.folder / name

    def recall(self) -> None:
        """Ask questions about earlier lessons, see `proflab.recall`.

        The file questions.toml in the lesson's folder contains the questions.
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
        """True if an AMD GPU can be used on this machine."""
        return bool(self.gpus)


_SHARED: set[str] = set()
"""Folders of notebooks that combine several lessons and that this kernel has started.

Their example run is already chosen.
"""


def start(number: str, within: str = "") -> Session:
    """Start a lesson and show what is installed.

    Create runs/`number`, set the plot style, and make the tools available to `%%bash`. This Python
    comes first in PATH. The replay tool comes last, under the names of missing tools. Everything
    that the notebook starts ends with its kernel. Without an AMD GPU, set the variables in
    SILENCED_LOGS unless they are already set. Hide a library's warning about a notebook progress
    bar, because the course doesn't use one.

    $EXAMPLE contains the command line of the example run, and $FOLDER the folder. For a notebook
    with sections of several lessons, `within` names their shared folder, which may be the runs
    folder itself. The example run then stays at the state of the first section, so that each cell
    can be run again later. Raises CourseError for an unknown lesson or if the folder can't be
    created.
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
            " folder that you can write to, or set PROFLAB_RUNS to one."
        ) from error
    os.environ["FOLDER"] = str(folder)
    session = Session(begun, folder, gpu_architectures())
    if not session.has_gpu:
        for name, level in SILENCED_LOGS.items():
            os.environ.setdefault(name, level)
    show(_table(session, replayed))
    return session


def put_python_first() -> None:
    """Put the running Python's folder at the front of PATH.

    Commands in `%%bash` then use the course's Python.
    """
    home = str(Path(sys.executable).parent)
    others = [
        part for part in os.environ.get("PATH", "").split(os.pathsep) if part and part != home
    ]
    os.environ["PATH"] = os.pathsep.join([home, *others])


def gpu_architectures(device: Path = KFD_DEVICE, topology: Path = KFD_TOPOLOGY) -> tuple[str, ...]:
    """Return the architecture of each AMD GPU that this user may use.

    The result is, for example, ("gfx942", "gfx942"), or empty without a GPU.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        return ()
    found = []
    # Sort as numbers, so that node 10 comes after node 2.
    for path in sorted(topology.glob("*/properties"), key=lambda path: int(path.parent.name)):
        if name := architecture(path.read_text()):
            found.append(name)
    return tuple(found)


def tool_version(path: Path) -> str:
    """Return a tool's ROCm release from the release's version file, or "" if there is none.

    The tool itself isn't run, because starting it can take seconds.
    """
    release = installed({"ROCM_PATH": str(path.resolve().parent.parent)})
    return f"ROCm {release}" if release else ""


def _table(session: Session, replayed: Collection[str]) -> Table:
    rows = [("Python", platform.python_version(), "real")]
    rows += [_package_row(name) for name in PACKAGES]
    rows += [
        (name, "", "replay") if name in replayed else _tool_row(name)
        for name in session.lesson.tools
    ]
    rows.append(("AMD GPU", _gpu_text(session.gpus), "real" if session.gpus else "missing"))
    rows.append(("the example run", os.environ["EXAMPLE"], "`$EXAMPLE`"))
    caption = (
        f"Lesson {session.lesson.number}: {session.lesson.question} About {session.minutes}"
        " minutes."
    )
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
            "This machine has no AMD GPU, so GPU results are `recorded` on a named machine or"
            " `modeled`."
        )
    place = f"Your results go to `{session.folder}`, which is `$FOLDER` in commands."
    return (
        f"{seen} Every figure shows its source. {place} If something fails, run `!python -m proflab"
        " doctor` in a cell."
    )


def _set_plot_style() -> None:
    import matplotlib

    from tidyprof.plots import style

    matplotlib.rcParams.update(style.SETTINGS)

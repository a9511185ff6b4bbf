"""Puts the player under the names of the tools: at the end of PATH, and only for missing tools."""

from __future__ import annotations

import os
import shutil
import sys
import zlib
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proflab.errors import CourseError
from proflab.recordings import cache_folder
from proflab.tapes.options import TOOLS

LAUNCHERS = Path(__file__).resolve().parent / "bin"

FOLDER = "players"


@dataclass(frozen=True)
class Found:
    """Where a tool is found: `kind` is real or player."""

    tool: str
    path: Path
    kind: str


def append_to_path(environ: MutableMapping[str, str] | None = None) -> tuple[Found, ...]:
    """Put the player under the names of missing tools at the end of PATH in `environ` (default:
    this process's), and return where each tool is found now.

    A folder of links to the missing tools' launchers is made, since a link to all launchers would
    let `which -a` find a player next to a real tool. Another call brings the folder up to date.
    PROFLAB_PYTHON, by which the launchers find the course's Python, is set unless it is set
    already. Raises CourseError if the folder cannot be written.
    """
    environ = os.environ if environ is None else environ
    parts = [
        part for part in environ.get("PATH", "").split(os.pathsep) if part and not _is_ours(part)
    ]
    real = {tool: shutil.which(tool, path=os.pathsep.join(parts)) for tool in TOOLS}
    missing = [tool for tool, path in real.items() if path is None]
    if missing:
        folder = _folder_of_links(missing)
        parts.append(str(folder))
    environ["PATH"] = os.pathsep.join(parts)
    environ.setdefault("PROFLAB_PYTHON", sys.executable)
    return tuple(
        Found(tool, Path(path), "real") if path else Found(tool, folder / tool, "player")
        for tool, path in real.items()
    )


def _is_ours(part: str) -> bool:
    path = Path(part)
    return path == LAUNCHERS or path.parent.name == FOLDER


def _folder_of_links(tools: list[str]) -> Path:
    """One folder for each set of missing tools, in the user's cache, which all nodes of a cluster
    see.
    """
    key = zlib.crc32(" ".join([str(LAUNCHERS), *tools]).encode())
    folder = cache_folder() / FOLDER / f"{key:08x}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for tool in tools:
            # The link may be of an earlier call, or of another notebook that begins now.
            with suppress(FileExistsError):
                (folder / tool).symlink_to(LAUNCHERS / tool)
    except OSError as error:
        raise CourseError(
            f"{folder} cannot be written ({error.strerror}), where the player of missing tools"
            " belongs; set PROFLAB_CACHE to your own folder"
        ) from error
    return folder

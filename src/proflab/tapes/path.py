"""Puts the player at the end of PATH, under the names of all tools, so that a real tool wins."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping
from pathlib import Path

from proflab.tapes.options import TOOLS

LAUNCHERS = Path(__file__).resolve().parent / "bin"


def append_to_path(environ: MutableMapping[str, str] | None = None) -> dict[str, str]:
    """Put the player at the end of PATH in `environ` (default: this process's).

    Return for each tool whether the real one or the player is found: real or player. Set
    PROFLAB_PYTHON, by which the launchers find the course's Python, unless it is set already.
    """
    environ = os.environ if environ is None else environ
    parts = [part for part in environ.get("PATH", "").split(os.pathsep) if part]
    others = os.pathsep.join(part for part in parts if part != str(LAUNCHERS))
    environ["PATH"] = os.pathsep.join([*filter(None, [others]), str(LAUNCHERS)])
    environ.setdefault("PROFLAB_PYTHON", sys.executable)
    return {tool: "real" if shutil.which(tool, path=others) else "player" for tool in TOOLS}

"""Setup that adds the replay tool to the end of PATH, under the name of each tool.

A real tool therefore takes precedence.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping
from pathlib import Path

from proflab.tapes.options import TOOLS

LAUNCHERS = Path(__file__).resolve().parent / "bin"


def append_to_path(environ: MutableMapping[str, str] | None = None) -> dict[str, str]:
    """Put the replay tool at the end of PATH in `environ` (by default, this process's environment).

    Return `real` or `player` for each tool, depending on which of the two PATH finds. Set
    PROFLAB_PYTHON unless it is already set. The launchers use this variable to find the course's
    Python.
    """
    environ = os.environ if environ is None else environ
    parts = [part for part in environ.get("PATH", "").split(os.pathsep) if part]
    others = os.pathsep.join(part for part in parts if part != str(LAUNCHERS))
    environ["PATH"] = os.pathsep.join([*filter(None, [others]), str(LAUNCHERS)])
    environ.setdefault("PROFLAB_PYTHON", sys.executable)
    return {tool: "real" if shutil.which(tool, path=others) else "player" for tool in TOOLS}

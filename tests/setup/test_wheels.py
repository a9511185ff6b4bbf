"""The wheels: what is in them is enough for their commands, away from here. Building asks the
package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

COMMANDS = {
    ".": {"tidyprof": ["--help"], "proflab": ["recordings"], "cifar-train": ["--help"]},
    "packages/tidyprof": {"tidyprof": ["--help"]},
}
"""Folder of a wheel's project -> its commands."""


@pytest.mark.long
@pytest.mark.parametrize("project", COMMANDS)
def test_a_wheel_brings_its_commands_and_their_data(project: str, tmp_path: Path):
    uv, site = str(Path(sys.executable).with_name("uv")), tmp_path / "site"
    built = [
        uv,
        "build",
        "--quiet",
        "--wheel",
        "--out-dir",
        str(tmp_path),
        str(REPOSITORY / project),
    ]
    subprocess.run(built, check=True, timeout=PATIENCE_S)
    (wheel,) = tmp_path.glob("*.whl")
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(site),
        "--python",
        sys.executable,
        str(wheel),
    ]
    subprocess.run(install, check=True, timeout=PATIENCE_S)
    environment = os.environ | {
        "PYTHONPATH": str(site),
        "PROFLAB_RECORDINGS": "",
        "HOME": str(tmp_path),
    }
    for command, arguments in COMMANDS[project].items():
        done = subprocess.run(
            [sys.executable, str(site / "bin" / command), *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
        # The cuts of recordings that lessons ask are in it, and whole.
        assert (" cut\n" in done.stdout) == (command == "proflab")

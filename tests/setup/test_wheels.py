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
    "--all-packages": {
        "tidyprof": ["--help"],
        "proflab": ["recordings"],
        "cifar-train": ["--help"],
    },
    "--package=tidyprof": {"tidyprof": ["--help"]},
}
"""Which wheels are built -> their commands."""


@pytest.mark.long
@pytest.mark.parametrize("which", COMMANDS)
def test_wheels_bring_their_commands_and_the_data_of_these(which: str, tmp_path: Path):
    uv, site = str(Path(sys.executable).with_name("uv")), tmp_path / "site"
    built = [
        uv,
        "build",
        "--quiet",
        "--wheel",
        "--out-dir",
        str(tmp_path),
        which,
    ]
    subprocess.run(built, check=True, timeout=PATIENCE_S, cwd=REPOSITORY)
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
        *map(str, tmp_path.glob("*.whl")),
    ]
    subprocess.run(install, check=True, timeout=PATIENCE_S)
    environment = os.environ | {
        "PYTHONPATH": str(site),
        "PROFLAB_RECORDINGS": "",
        "HOME": str(tmp_path),
    }
    for command, arguments in COMMANDS[which].items():
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

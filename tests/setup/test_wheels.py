"""The wheels: what is in them is enough for their commands, away from here. Building and installing
them ask the package index.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

UV = str(Path(sys.executable).with_name("uv"))
MAX_BYTES = 10**6
"""The package index's copy is downloaded on login nodes and in each job of CI."""

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
    site = tmp_path / "site"
    built = [
        UV,
        "build",
        "--quiet",
        "--wheel",
        "--out-dir",
        str(tmp_path),
        which,
    ]
    subprocess.run(built, check=True, timeout=PATIENCE_S, cwd=REPOSITORY)
    install = [
        UV,
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


@pytest.mark.long
def test_tidyprof_runs_from_its_own_environment_in_front_of_another(tmp_path: Path):
    """That environment has neither torch nor an extra of tidyprof."""
    dist, verdict = tmp_path / "dist", tmp_path / "verdict.json"
    build = [UV, "build", "--quiet", "--out-dir", str(dist), "--package=tidyprof"]
    subprocess.run(build, check=True, timeout=PATIENCE_S, cwd=REPOSITORY)
    (archive,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    assert max(archive.stat().st_size, wheel.stat().st_size) < MAX_BYTES
    isolated = [UV, "tool", "run", "--isolated", "--python", sys.executable, "--from", str(wheel)]
    training = ["python", "-P", str(REPOSITORY / ".ci/slow_training.py"), "7"]
    command = [*isolated, "tidyprof", "run", "--json", str(verdict), "--", *training]
    # The user has activated the environment that contains torch.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert json.loads(verdict.read_text())["diagnosis"]["cause"] == "input-bound", done.stdout

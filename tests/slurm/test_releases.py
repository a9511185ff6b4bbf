"""Job scripts and snippets on each release that they promise, with the player and an srun of one
task.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from proflab.releases import number, shown
from tests.conftest import REPOSITORY
from tests.slurm.cluster import clean_environment
from tests.snippets.test_07 import SCONTROL
from tests.warm import SOCKET
from tidyprof_tests.patience import PATIENCE_S

PROFILERS = re.compile(
    r"\b(rocprofv3|rocprof-compute profile|rocprof-sys-(run|sample)|runTracer\.sh) "
)
SCRIPTS = {
    str(path.relative_to(REPOSITORY)): path.read_text()
    for folder in ("scripts/slurm", "snippets")
    for path in sorted((REPOSITORY / folder).glob("*.sh"))
    if PROFILERS.search(path.read_text())
}
"""All that start a profiler, with their texts."""

SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do
    [[ $1 != --chdir=* ]] || cd "${1#*=}"
    shift
done
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_NNODES=1
exec "$@"
"""

OPTIONS = "--batch-size 4 --max-steps 3 --num-workers 0"
TRAINER = f"python -m cifar_train {OPTIONS}"
SLURM = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "localhost"}


def promised(text: str) -> tuple[str, ...]:
    """The releases that a header names; all that the course knows where it names none."""
    oldest = re.search(r"^# .*ROCm (\d+\.\d+) and later", text, re.MULTILINE)
    return tuple(one for one in shown() if not oldest or number(one) >= number(oldest[1]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, warm: str) -> dict[str, str]:
    """A shell's environment in which the player is found, `python` does nothing, and srun
    starts one task.
    """
    folder = tmp_path_factory.mktemp("bin")
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "python": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    player = REPOSITORY / "src" / "proflab" / "tapes" / "bin"
    environment = clean_environment() | {"PATH": f"{folder}:{os.environ['PATH']}:{player}"}
    course = {
        "COURSE_DIR": str(REPOSITORY),
        "DATA": "synthetic",
        "FREE_MB": "1",
        "TRAIN_OPTIONS": OPTIONS,
    }
    return environment | course | {"PROFLAB_PYTHON": warm, SOCKET: os.environ[SOCKET]}


def play(script: str, folder: Path, site: Mapping[str, str], *words: str, **variables: str) -> str:
    """What a script says, or its text with the course's trainer in the place of `train.py`; it has
    to succeed.
    """
    file = REPOSITORY / script
    if "train.py)" in file.read_text():
        file = folder / file.name
        file.write_text(SCRIPTS[script].replace("(python train.py)", f"({TRAINER})"))
    places = {"RESULTS_DIR": str(folder), "NODE_TMP": str(folder), "TMPDIR": str(folder)}
    command = ["bash", str(file), *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**site, **places, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def cases() -> Iterator[Any]:
    """Script and release; the releases between its oldest and its newest one are for a long run."""
    for script, text in SCRIPTS.items():
        oldest, *between, newest = promised(text)
        if "rocprof_compute_profile" in script:  # there is no tape of all tables, as for ROCm 6.4
            oldest, *between = between
        yield from ((script, oldest), (script, newest))
        yield from (pytest.param(script, one, marks=pytest.mark.long) for one in between)


@pytest.mark.parametrize(("script", "release"), [*cases()])
def test_a_script_works_on_each_release_that_it_promises(
    script: str, release: str, site: dict, tmp_path: Path
) -> None:
    here = site | {"PROFLAB_ROCM": release}
    if script.startswith("scripts"):
        said = play(
            script,
            tmp_path,
            here,
            SLURM_JOB_NAME=Path(script).stem,
            SLURM_SUBMIT_DIR=str(REPOSITORY),
        )
    else:
        words = {"snippets/03_sample.sh": ["out", *TRAINER.split()]}
        said = play(script, tmp_path, here, *words.get(script, TRAINER.split()[1:]), **SLURM)
    assert "nothing was measured" in said, "no tape was played"
    if "rocprof_compute_profile" in script:
        name = next(tmp_path.glob("rocprof_compute_profile_*")).name
        job = name.removeprefix("rocprof_compute_profile_")
        play("scripts/slurm/rocprof_compute_analyze.sh", tmp_path, here, job)


def test_every_profiler_of_the_course_is_played_here() -> None:
    assert {match[1] for text in SCRIPTS.values() for match in PROFILERS.finditer(text)} == {
        *(
            "rocprofv3",
            "rocprof-compute profile",
            "rocprof-sys-run",
            "rocprof-sys-sample",
            "runTracer.sh",
        )
    }
    assert (
        promised(SCRIPTS["snippets/03_sample.sh"])[0]
        == promised(SCRIPTS["snippets/04_profile_job.sh"])[0]
        == "6.4"
    )

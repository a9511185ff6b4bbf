"""Job scripts and snippets on the oldest and the newest release that they promise."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from proflab.releases import VARIABLE, number, shown
from tests.conftest import REPOSITORY
from tests.slurm.cluster import clean_environment, made_up
from tests.warm import SOCKET
from tidyprof_tests.patience import PATIENCE_S

PROFILERS = re.compile(r"\b(rocprofv3|rocprof-compute|rocprof-sys-(run|sample)|runTracer\.sh) ")
SCRIPTS = [
    path
    for folder in ("scripts/slurm", "snippets")
    for path in sorted((REPOSITORY / folder).glob("*.sh"))
    if PROFILERS.search(path.read_text()) and path.stem != "rocprof_compute_analyze"
]
"""All that start a profiler."""

SRUN = """
while [[ $1 == --* ]]; do
    [[ $1 != --chdir=* ]] || cd "${1#*=}"
    shift
done
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_NNODES=1
exec "$@"
"""
OPTIONS = "--batch-size 4 --max-steps 3 --num-workers 0"
TRAINER = f"python -m cifar_train {OPTIONS}"


def oldest(text: str) -> str:
    """The oldest release that a header names; where it names none, that of the course."""
    named = re.search(r"^# .*ROCm (\d+\.\d+) and later", text, re.MULTILINE)
    # No tape has all tables of rocprof-compute in the layout of ROCm 6.4.
    first = named[1] if named else "7.0" if "rocprof-compute profile" in text else shown()[0]
    return next(one for one in shown() if number(one) >= number(first))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("newest", [False, True])
def test_a_script_works_on_the_releases_that_it_promises(
    path: Path, newest: bool, tmp_path: Path, warm: str
) -> None:
    text = path.read_text()
    programs = made_up(tmp_path, srun=SRUN, scontrol="echo localhost", python="")
    player = REPOSITORY / "src" / "proflab" / "tapes" / "bin"
    file = tmp_path / path.name
    file.write_text(text.replace("(python train.py)", f"({TRAINER})"))
    words = ["out", *TRAINER.split()] if path.stem == "03_sample" else TRAINER.split()[1:]
    of_course = path.is_relative_to(REPOSITORY / "scripts")
    environment = clean_environment() | {
        "PATH": f"{programs}/bin:{os.environ['PATH']}:{player}",
        "PROFLAB_PYTHON": warm,
        SOCKET: os.environ[SOCKET],
        VARIABLE: shown()[-1] if newest else oldest(text),
        "COURSE_DIR": str(REPOSITORY),
        "DATA": "synthetic",
        "FREE_MB": "1",
        "TRAIN_OPTIONS": OPTIONS,
        "TMPDIR": str(tmp_path),
        "RESULTS_DIR": str(tmp_path),
    }
    if not of_course:
        slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "localhost"}
        environment |= slurm
    done = subprocess.run(
        ["bash", str(file), *([] if of_course else words)],
        cwd=tmp_path,
        env=environment,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0

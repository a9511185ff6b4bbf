"""The snippets of lesson 03, with a ROCTX and a rocprof-sys-sample that only note how they were
called.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.snippets.conftest import SNIPPETS, Run

LOOP = """
from ranges import marked
for step in range(2):
    with marked(f"step {step}"), marked("forward"):
        pass
try:
    with marked("backward"):
        raise KeyError("inside")
except KeyError:
    print("passed on")
"""

ROCTX = """
def rangePush(name): print("push", name)
def rangePop(): print("pop")
"""


def loop(tmp_path: Path, **files: str) -> None:
    """A script of somebody's with `snippets/03_ranges.py` beside it as ranges.py, and modules by
    name.
    """
    sources = {"loop": LOOP, "ranges": (SNIPPETS / "03_ranges.py").read_text(), **files}
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)


def test_ranges_reach_roctx_and_end_also_after_an_error(bare: Run, tmp_path: Path) -> None:
    loop(tmp_path, roctx=ROCTX)
    lines = bare("python", "loop.py").stdout.splitlines()
    assert lines[:4] == ["push step 0", "push forward", "pop", "pop"]
    assert lines[-3:] == ["push backward", "pop", "passed on"]


def test_kernels_are_waited_for_if_that_is_asked(bare: Run, tmp_path: Path) -> None:
    loop(tmp_path, roctx=ROCTX)
    prepare = (
        "import torch; torch.cuda.is_available = lambda: True; torch.cuda.synchronize = lambda:"
        " print('wait')"
    )
    run = ("python", "-c", f"{prepare}; import loop")
    lines = bare(*run, RANGES_SYNCHRONIZE="1").stdout.splitlines()
    assert lines[:5] == ["push step 0", "push forward", "wait", "pop", "wait"]
    assert "wait" not in bare(*run).stdout


def tool(tmp_path: Path, name: str) -> str:
    """A PATH whose first folder has a tool of this name: it prints its arguments, one a line."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / name
    script.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    script.chmod(0o755)
    return os.pathsep.join([str(script.parent), os.environ["PATH"]])


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"SLURM_PROCID": "3"}, 3),
        ({"RANK": "2"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "1", "SLURM_PROCID": "0"}, 1),
    ],
)
def test_settings_and_command_of_each_rank(
    bare: Run, tmp_path: Path, variables: dict[str, str], rank: int
) -> None:
    path = tool(tmp_path, "rocprof-sys-sample")
    done = bare(
        "bash",
        "snippets/03_sample.sh",
        "out",
        "python",
        "my train.py",
        "-n",
        "2",
        PATH=path,
        **variables,
    )
    settings = f"out/settings-rank{rank}.cfg"
    assert done.stdout.splitlines() == [
        *("-c", settings, "-o", "out", f"rank{rank}-", "--", "python", "my train.py", "-n", "2")
    ]
    written = (tmp_path / settings).read_text()
    assert "ROCPROFSYS_SAMPLING_FREQ           = 300\n" in written
    assert "ROCPROFSYS_TIME_OUTPUT             = false\n" in written

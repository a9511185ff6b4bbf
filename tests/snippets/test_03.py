"""The snippets of lesson 03, with a ROCTX and a rocprof-sys-sample that only note how they were
called.
"""

from __future__ import annotations

import json
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


def test_a_torch_for_rocm_is_the_second_choice(bare: Run, tmp_path: Path) -> None:
    loop(tmp_path)
    prepare = (
        "import torch; torch.version.hip = '7.0'; torch.cuda.nvtx.range_push = lambda name:"
        " print('push', name)"
    )
    run = f"{prepare}; torch.cuda.nvtx.range_pop = lambda: print('pop'); import loop"
    assert bare("python", "-c", run).stdout.count("push") == 5


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


def test_without_roctx_nothing_is_marked_and_that_is_said_once(bare: Run, tmp_path: Path) -> None:
    loop(tmp_path)
    done = bare("python", "loop.py")
    assert done.stdout == "passed on\n"
    assert done.stderr.count("nothing is marked") == 1


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


def test_a_forgotten_variable_is_warned_of(bare: Run, tmp_path: Path) -> None:
    path = tool(tmp_path, "rocprof-sys-sample")
    done = bare(
        "bash",
        "snippets/03_sample.sh",
        "out",
        "true",
        PATH=path,
        ROCPROFSYS_TRACE="false",
        SAMPLES="50",
    )
    assert "ROCPROFSYS_TRACE=false in the environment" in done.stderr
    assert "SAMPLING_FREQ           = 50\n" in (tmp_path / "out/settings-rank0.cfg").read_text()
    assert bare("bash", "snippets/03_sample.sh", "out", check=False).returncode == 2


def row(prefix: str, count: int, mean: float, low: float, high: float, deviation: float) -> dict:
    stats = {
        "sum": count * mean,
        "count": count,
        "mean": mean,
        "min": low,
        "max": high,
        "stddev": deviation,
    }
    return {"prefix": prefix, "depth": prefix.count("_"), "entry": {"laps": count}, "stats": stats}


def test_sums_of_all_processes_and_calls_of_two_kinds(bare: Run, tmp_path: Path) -> None:
    rows = [
        row("|0>>> train.py", 1, 9.0, 9.0, 9.0, 0.0),
        row("|0>>>   |_launch", 10, 0.2, 0.1, 1.1, 0.3),
    ]
    for process in ("rank0-wall_clock-77", "rank1-wall_clock-78", "rank1-sampling_wall_clock-78"):
        ranks = [{"graph": rows}]
        (tmp_path / f"{process}.json").write_text(
            json.dumps({"timemory": {"wall_clock": {"ranks": ranks}}})
        )
    lines = bare("python", "snippets/03_wall_clock.py", ".").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        *(["rank0-77", "0", "train.py"], ["rank1-78", "0", "train.py"]),
        *(["rank0-77", "1", "launch"], ["rank1-78", "1", "launch"]),
    ]
    # Ten calls of 0.2 s on average, the quick ones 0.1 s and the slow ones 1.1 s: one was slow.
    assert lines[3].split()[-1] == "1.000000"
    assert len(bare("python", "snippets/03_wall_clock.py", ".", "1").stdout.splitlines()) == 2
    assert (
        "was ROCPROFSYS_PROFILE = true set?"
        in bare("python", "snippets/03_wall_clock.py", "/", check=False).stderr
    )

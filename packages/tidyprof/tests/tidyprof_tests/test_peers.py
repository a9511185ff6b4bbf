"""The script that runs TraceML: its command, how words are judged, and that nothing goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import peer_traceml
from benchmarks.one_word import STRANGERS, Program


def program(*truth: str, wrong: tuple[str, ...] = ()) -> Program:
    return Program("one", (sys.executable, "one.py"), truth, wrong, after=30)


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.parametrize(("launcher", "ranks"), [((), "1"), (TORCHRUN, "2")])
def test_the_script_keeps_its_options_and_traceml_takes_the_ranks(launcher, ranks):
    script = str(STRANGERS / "ordinary/one.py")
    command = (sys.executable, *launcher, script, "--nproc-per-node", "7")
    one = Program("one", command, ("healthy",), (), after=30)
    found = peer_traceml.by_traceml(one, Path("logs"))
    assert found[-5:] == [ranks, script, "--args", "--nproc-per-node", "7"]


@pytest.mark.parametrize(
    ("truth", "wrong", "verdict", "judged"),
    [
        (("late-data",), ("healthy",), "INPUT-BOUND", "right"),
        (("healthy", "one-kernel"), (), "COMPUTE-BOUND", "right"),
        (("late-data",), ("healthy", "one-kernel"), "COMPUTE-BOUND", "wrong"),
        (("straggler",), ("late-data",), "INPUT STRAGGLER", "right"),
        (("healthy",), (), "RESIDUAL-HEAVY", "wrong"),
        (("healthy",), ("late-data",), "RESIDUAL-HEAVY", "no verdict"),
        (("many-operators",), ("healthy",), "COMPUTE-BOUND", "no verdict"),
        (("many-operators",), ("late-data",), "INPUT-BOUND", "wrong"),
        (("late-data",), (), "INSUFFICIENT STEP-TIME DATA", "no verdict"),
    ],
)
def test_only_a_word_for_another_fault_is_wrong(truth, wrong, verdict, judged):
    assert peer_traceml.judged(program(*truth, wrong=wrong), verdict) == judged


def test_a_server_with_a_session_of_its_own_ends_with_the_run(tmp_path):
    leaves = (
        "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True); exit(3)"
    )
    ran = peer_traceml.run([sys.executable, "-c", leaves], tmp_path, tmp_path / "out.txt")
    assert ran.exit_code == 3
    assert peer_traceml.of(tmp_path) == []


def test_a_program_that_goes_on_too_long_is_ended(tmp_path):
    ran = peer_traceml.run(["sleep", "600"], tmp_path, tmp_path / "out.txt", longest_s=0.1)
    assert ran.exit_code is None
    assert peer_traceml.of(tmp_path) == []

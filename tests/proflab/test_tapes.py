"""The player finds the tape of a command and writes its files; the recorder makes such a tape."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import tidyprof
from proflab.__main__ import main as proflab_main
from proflab.releases import shown
from proflab.tapes import player, recorder
from proflab.tapes.__main__ import main
from proflab.tapes.options import TOOLS, build_parser
from proflab.tapes.player import FILE, OWN_FOLDER, Tape, find, tapes

TAPES = list(tapes())
TRAIN = "python -m cifar_train --batch-size 4 --max-steps 3 --num-workers 0"
KERNELS = "rocprofv3 --stats --kernel-trace -f csv -d out"
TWO_RANKS = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}

SETTINGS = """
ROCPROFSYS_TRACE = true
ROCPROFSYS_PROFILE = true
ROCPROFSYS_SAMPLING_REALTIME = true
ROCPROFSYS_SAMPLING_FREQ = {frequency}
ROCPROFSYS_PROCESS_SAMPLING_FREQ = 10
ROCPROFSYS_SAMPLING_CPUS = all
ROCPROFSYS_ROCM_DOMAINS = hip_runtime_api,marker_api,kernel_dispatch,memory_copy
ROCPROFSYS_TIME_OUTPUT = false
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RANK", "WORLD_SIZE", "PROFLAB_WORKLOAD", "PROFLAB_ROCM", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str) -> int:
    return main(shlex.split(command))


@pytest.mark.parametrize("tape", TAPES, ids=lambda tape: tape.folder.name)
def test_the_command_of_a_tape_gives_its_files_text_and_exit_code(tape: Tape, capsys) -> None:
    assert tape.request is not None
    assert find(tape.request).folder == tape.folder
    words = [word.replace(OWN_FOLDER, str(tape.folder)) for word in tape.arguments]
    assert player.play(tape.tool, words, tape.environment) == tape.exit_code
    written = {path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    # Ranks that runTracer.sh starts replace each other's file, as with the real tool.
    kept = {file["name"]: file for file in tape.files}.values()
    kept = kept if tape.tool == "runTracer.sh" else tape.files
    assert written == {tape.contents[file["stored"]] for file in kept}
    said = capsys.readouterr()
    assert said.out.count("\n") == tape.printed.count("\n")
    assert "nothing was measured" in said.err
    assert tape.origin["kind"] in said.err


def test_every_tape_states_where_it_is_from() -> None:
    for tape in TAPES:
        assert tape.origin["kind"] in ("modeled", "recorded")
        assert tape.origin["detail"]
        assert tape.origin["kind"] == "recorded" or len(tape.origin["commit"]) == 40


@pytest.mark.parametrize(
    ("output", "environment", "expected"),
    [
        ("gpu", {}, {"gpu"}),
        ("%rank%_%env{JOB}%_%tag%%x%", {"JOB": "a/b"}, {"0_a_b_python%x%"}),
        ("rank%env{SLURM_PROCID}%_pid%pid%", TWO_RANKS, {"rank1_pid41257"}),
    ],
)
def test_files_get_the_names_that_the_options_ask_for(
    output: str, environment: dict, expected: set, monkeypatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(f"{KERNELS} -o {output} -- {TRAIN} --run-dir x --data synthetic") == 0
    names = {path.name for path in Path("out").glob("*_kernel_trace.csv")}
    assert names == {f"{name}_kernel_trace.csv" for name in expected}


def test_a_launcher_in_the_command_gives_the_files_of_all_ranks() -> None:
    command = (
        f"{KERNELS} -o rank%env{{RANK}}% -- torchrun --nproc_per_node=2 {TRAIN.partition(' ')[2]}"
    )
    assert run(command) == 0
    assert set(tidyprof.read("out").events["rank"]) == {0, 1}


NO_TAPE = [
    f"{KERNELS} -- python -m cifar_train --max-steps 4",
    f"{KERNELS} --marker-trace -- {TRAIN}",
    f"{KERNELS} -- python train.py",
    "amd-smi monitor -p -w 1 -W 1",
    "rocprof-compute analyze -p nowhere -b 2.1.4",
    "rocpd summary -i results.db",
    "rocprof-sys-sample -c 400.cfg -o out -- python -m cifar_train --num-workers 0"
    " --max-steps 6 --roctx",
]


@pytest.mark.parametrize("command", NO_TAPE)
def test_without_a_tape_the_player_lists_those_of_the_tool(command: str, capsys) -> None:
    Path("400.cfg").write_text(SETTINGS.format(frequency=400))
    assert run(command) == 2
    listed = [line.strip() for line in capsys.readouterr().err.splitlines()]
    tool = command.split()[0]
    assert listed[1:] == [tape.command for tape in TAPES if tape.tool == tool]
    assert not Path("out").exists()


def test_settings_may_be_spelled_otherwise_and_options_change_their_order() -> None:
    Path("a.cfg").write_text(SETTINGS.format(frequency=1))
    command = "rocprof-sys-sample -f 500 -o out -c a.cfg -- python3 -m cifar_train --roctx"
    assert run(f"{command} --max-steps 6 --num-workers=0") == 0
    assert list(Path("out").glob("perfetto-trace-*.proto"))


REFUSED = [
    (f"rocprofv3 --kernel-tracing -- {TRAIN}", "10.1", 2),
    (f"rocprofv3 --kernel-trace -f rocpd -- {TRAIN}", "6.4", 2),
    (f"rocprofv3 --stats -- {TRAIN}", "10.1", 1),
    ("rocprofv3 --kernel-trace", "10.1", 1),
    ("rocprof-sys-run --trace", "10.1", 1),
    (f"rocprof-sys-run --traces -- {TRAIN}", "10.1", 1),
    (f"rocprof-compute profile -n a -b SQ -- {TRAIN}", "10.1", 2),
    ("rocprof-compute analyze -b 2", "10.1", 1),
    ("amd-smi watch", "10.1", 2),
    ("amd-smi version --json --csv", "10.1", 2),
    ("omnistat-query --export out", "10.1", 2),
    ("runTracer.sh -o a.rpd", "10.1", 2),
]


@pytest.mark.parametrize(("command", "release", "code"), REFUSED)
def test_the_player_refuses_what_the_tool_of_a_release_refuses(
    command: str, release: str, code: int, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("PROFLAB_ROCM", release)
    assert run(command) == code
    assert "The tapes of" not in capsys.readouterr().err


@pytest.mark.parametrize("release", shown())
def test_every_tool_has_options_and_a_version_in_every_release(release, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    for tool in TOOLS:
        assert build_parser(tool).format_help()
    assert run("amd-smi version") == 0
    assert release in capsys.readouterr().out


def test_no_file_is_written_over_a_folder(capsys) -> None:
    Path("out/x_kernel_trace.csv").mkdir(parents=True)
    assert run(f"{KERNELS} -o x -- {TRAIN}") == 2
    assert "out/x_" in capsys.readouterr().err


TOOL = """#!/bin/sh
[ "$1" = --version ] && { echo "rocm_version: 7.2.1"; exit; }
mkdir -p out own; echo a >out/r0_77_kernel_trace.csv; echo b >out/r1_78_kernel_trace.csv
echo c >out/note.txt; echo d >own/metrics.jsonl
echo "wrote $PWD/out/r0_77_kernel_trace.csv"; echo careful >&2; exit 3
"""


@pytest.fixture
def real_tool(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command line of a program that writes files as rocprofv3 does."""
    (here / "bin").mkdir()
    (here / "bin/rocprofv3").write_text(TOOL)
    (here / "bin/rocprofv3").chmod(0o755)
    monkeypatch.setenv("PATH", str(here / "bin"), prepend=":")
    return "--kernel-trace -d out -o r%env{RANK}%_%pid% -- python train.py --run-dir own"


def test_what_was_recorded_is_played_again(real_tool: str, here: Path, monkeypatch, capfd) -> None:
    words = ["rocprofv3", *real_tool.split()]
    monkeypatch.setattr(recorder, "tapes_folder", lambda: here / "tapes")
    assert proflab_main(["tape", "record", "--name", "first", "--gpu", "MI300X", "--", *words]) == 0
    told = json.loads((here / "tapes/first" / FILE).read_text())
    assert told["origin"]["detail"].startswith("MI300X, ")
    assert (told["rocm"], told["exit_code"], told["messages"]) == ("7.2", 3, "careful\n")
    assert told["processes"] == [{"pid": "77"}, {"pid": "78"}]
    again = [{"out": "new", "own": "mine"}.get(word, word) for word in words[1:]]
    assert player.play("rocprofv3", again, {}, here / "tapes") == 3
    assert Path("mine/metrics.jsonl").read_text() == "d\n"
    assert Path("new/r_77_kernel_trace.csv").read_text() == "a\n"
    assert Path("new/note.txt").read_text() == "c\n"
    assert "new/r_77_kernel_trace.csv" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_tape_is_not_written_over_and_needs_a_real_tool(
    real_tool: str, here: Path, name: str, monkeypatch
) -> None:
    (here / "tapes/first").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(recorder.LAUNCHERS) if name == "second" else "", prepend=":")
    with pytest.raises(recorder.CourseError):
        recorder.record(["rocprofv3", *real_tool.split()], name, {}, here / "tapes")

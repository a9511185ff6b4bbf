"""What a command gets from the one in front of it: signals, files, exit codes. No program here needs
torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidyprof.running import launch
from tidyprof_tests.patience import PATIENCE_S

RUN = [sys.executable, "-m", "tidyprof", "run"]


def _run(folder: Path, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("has_torch", [False, True])
def test_the_program_finds_the_users_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_torch: bool
) -> None:
    """uvx puts the folder of tidyprof's environment first, which has a Python, but no torch."""
    own = tmp_path / "tool/bin"
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setattr(launch, "find_spec", lambda name: object() if has_torch else None)
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}/user/bin")
    asked = launch.Asked("out", 30, 3, stacks=False, shapes=False, mark="")
    path = launch.environment(asked)["PATH"].split(os.pathsep)
    assert path == ([str(own)] if has_torch else []) + ["/user/bin"]


def test_open_files_reach_the_program(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"hello")
    os.close(writer)
    ended = _run(tmp_path, "--", "cat", f"/dev/fd/{reader}", pass_fds=[reader])
    os.close(reader)
    assert ended.stdout == "hello"


def test_the_exit_code_is_known_even_if_the_parent_ignores_its_children(tmp_path: Path) -> None:
    script = "trap '' CHLD; exec \"$@\""
    command = ["bash", "-c", script, "-", *RUN, "--", "bash", "-c", "exit 5"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 5


LOOPS = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGALRM, signal.SIGQUIT, signal.SIGKILL])
def test_a_signal_to_the_command_ends_the_program(tmp_path: Path, number: signal.Signals) -> None:
    command = [*RUN, "--", sys.executable, "-c", LOOPS]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        # The pipe ends when the program has.
        assert process.communicate(timeout=PATIENCE_S)[0] == ""
    assert process.returncode == -number


def test_two_runs_have_two_folders(tmp_path: Path) -> None:
    command = [
        *RUN,
        "--",
        "bash",
        "-c",
        "for run in tidyprof-run-*; do touch $run/kept; done; exit 3",
    ]
    runs = [
        subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, text=True)
        for _ in range(2)
    ]
    assert [run.wait(PATIENCE_S) for run in runs] == [3, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tidyprof-run-1",
        "tidyprof-run-2",
    ]


def test_a_folder_has_one_run(tmp_path: Path) -> None:
    first = _run(tmp_path, "--out", "out", "--", "touch", "out/kept")
    assert first.returncode == 0
    (tmp_path / "out/run.json").write_text("{}")
    assert _run(tmp_path, "--out", "out", "--", "touch", "begun").returncode == 2
    assert not (tmp_path / "begun").exists()


def test_an_error_of_the_report_leaves_the_exit_code(tmp_path: Path) -> None:
    """What the program left isn't what the hooks write, and nothing can be written any more."""
    script = "echo '[1]' > out/run_rank0.json; echo '{\"rank\": 0}' > out/run_rank1.json; exit 7"
    ended = _run(tmp_path, "--out", "out", "--json", "-", "--", "bash", "-c", script)
    assert ended.returncode == 7
    ended = _run(tmp_path, "--", "bash", "-c", "rm -r tidyprof-run-1; exit 7", stderr=None)
    assert ended.returncode == 7
    with open("/dev/full", "w") as full:
        command = [*RUN, "--", "bash", "-c", "exit 4"]
        assert subprocess.run(command, cwd=tmp_path, stderr=full).returncode == 4


def test_arguments_are_not_stored(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os; os.write(1, os.environ['TIDYPROF_RUN'].encode())")
    ended = _run(tmp_path, "--out", "out", "--", sys.executable, "train.py", "--token=secret")
    assert "secret" not in ended.stdout + ended.stderr
    assert not list(tmp_path.glob("out/*"))


def test_an_older_python_is_named(tmp_path: Path) -> None:
    """The hooks are loaded as a Python 3.9 would load them."""
    old = "import sys; sys.version_info = (3, 9, 1); exec(open(sys.argv[1]).read())"
    first = Path(sys.modules["tidyprof"].__file__ or "").parent / "running/first/sitecustomize.py"
    text = f"__file__ = {str(first)!r}; {old}"
    ended = _run(tmp_path, "--", sys.executable, "-c", text, str(first))
    assert "Python 3.9" in ended.stderr
    assert "Traceback" not in ended.stderr

"""Programs that crash, hang, flood and leave children behind; the real machine's answers; a whole
run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proflab.__main__ import main
from proflab.doctor import Finding, Machine, Status, check_up, machine
from proflab.doctor.findings import Probe, one_line
from proflab.doctor.machine import MOST_BYTES, run
from proflab.doctor.probes import limits, tools


def script(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_dead(pid: int) -> bool:
    for _ in range(200):
        if not is_alive(pid):
            return True
        time.sleep(0.01)
    return False


def pid_in(path: Path) -> int:
    return int(path.read_text())


def test_both_outputs_and_the_code_are_told(tmp_path: Path) -> None:
    answer = run([str(script(tmp_path, "tool", "echo one; echo two >&2; exit 7"))], 10, os.environ)
    assert (answer.end, answer.code, answer.out, answer.err) == ("exit", 7, "one\n", "two\n")
    assert not answer.succeeded
    assert answer.last_line == "two"


def test_death_by_a_signal_has_a_negative_code(tmp_path: Path) -> None:
    answer = run([str(script(tmp_path, "tool", "kill -SEGV $$"))], 10, os.environ)
    assert (answer.end, answer.code) == ("exit", -11)


def test_program_that_is_no_program_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"\x00\x01garbage")
    (tmp_path / "tool").chmod(0o755)
    for command in (str(tmp_path / "tool"), str(tmp_path / "none"), "with\0zero"):
        answer = run([command], 10, os.environ)
        assert (answer.end, answer.code) == ("not started", None)
        assert answer.err


def test_program_gets_no_input(tmp_path: Path) -> None:
    assert run([str(script(tmp_path, "tool", "cat; echo done"))], 10, os.environ).out == "done\n"


@pytest.mark.parametrize("start", ["sleep 1000 &", "setsid sleep 1000 &"])
def test_hanging_program_is_stopped_with_its_children(tmp_path: Path, start: str) -> None:
    noted = tmp_path / "child"
    tool = script(tmp_path, "tool", f"{start}\necho $! > {noted}\nwhile :; do sleep 1; done")
    begun = time.monotonic()
    answer = run([str(tool)], 0.7, os.environ)
    assert time.monotonic() - begun < 6
    assert (answer.end, answer.code) == ("time-out", None)
    assert wait_until_dead(pid_in(noted))


def test_program_that_ignores_requests_to_end_is_stopped(tmp_path: Path) -> None:
    tool = script(tmp_path, "tool", "trap '' TERM INT HUP\nwhile :; do sleep 0.1; done")
    assert run([str(tool)], 0.3, os.environ).end == "time-out"


def test_child_that_keeps_the_output_open_is_neither_waited_for_nor_left(tmp_path: Path) -> None:
    noted = tmp_path / "child"
    tool = script(tmp_path, "tool", f"sleep 1000 &\necho $! > {noted}\necho version 1.2")
    begun = time.monotonic()
    answer = run([str(tool)], 30, os.environ)
    assert time.monotonic() - begun < 10
    assert (answer.end, answer.out) == ("exit", "version 1.2\n")
    assert wait_until_dead(pid_in(noted))


def test_flood_is_cut(tmp_path: Path) -> None:
    answer = run([str(script(tmp_path, "tool", "exec yes"))], 30, os.environ)
    assert answer.end == "flood"
    assert len(answer.out) == MOST_BYTES


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    answer = run([str(script(tmp_path, "tool", r"printf '\377\376v1.2\033[31m'"))], 10, os.environ)
    assert answer.out == "\ufffd\ufffdv1.2\x1b[31m"
    assert one_line(answer.out) == "\ufffd\ufffdv1.2 [31m"


def test_one_line_is_short_and_printable() -> None:
    assert one_line("a\tb\n\n c\u202ed") == "a b c d"
    assert one_line("x" * 200) == "x" * 119 + "…"


def test_hanging_tool_makes_its_row_unknown_and_costs_no_more_than_the_patience(
    tmp_path: Path,
) -> None:
    noted = tmp_path / "self"
    script(tmp_path / "bin", "rocprofv3", f"echo $$ > {noted}\nwhile :; do sleep 1; done")
    script(
        tmp_path / "bin", "rocprof-compute", "echo 'rocprofiler-compute version: 3.7.0 (release)'"
    )
    script(tmp_path / "bin", "rocprof-sys-run", "echo boom >&2; exit 1")
    machine = Machine({**os.environ, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}, patience_s=1.0)
    begun = time.monotonic()
    found = {finding.key: finding for finding in check_up(machine, tools.PROBES).findings}
    assert time.monotonic() - begun < 10
    assert found["rocprofv3"].status is Status.UNKNOWN
    assert "no answer in 1 s" in found["rocprofv3"].found
    assert found["rocprof-compute"].found == "3.7.0, real"
    assert found["rocprof-sys"].status is Status.FIX
    assert "boom" in found["rocprof-sys"].found
    assert wait_until_dead(pid_in(noted))


def test_probe_that_never_comes_back_does_not_hold_the_others_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proflab.doctor.checkup.GRACE_S", 0.2)

    def sleeper(machine: Machine) -> Iterator[Finding]:
        time.sleep(20)
        yield Finding("memory", Status.OK, "late")

    def broken(machine: Machine) -> Iterator[Finding]:
        raise KeyError("oops\nand more")

    probes = [
        Probe(("memory",), sleeper),
        Probe(("cores",), broken),
        Probe(("ptrace-scope",), limits.attaching),
    ]
    begun = time.monotonic()
    found = {finding.key: finding for finding in check_up(Machine(patience_s=0.3), probes).findings}
    assert time.monotonic() - begun < 5
    assert found["memory"].status is Status.UNKNOWN
    assert "no answer in 0.5 s" in found["memory"].found
    assert found["cores"].status is Status.UNKNOWN
    assert "KeyError" in found["cores"].found
    assert found["ptrace-scope"].found


def test_descendants_of_nobody_are_none() -> None:
    assert machine._descendants(2**22 + 1) == []


def test_real_machine_answers_nothing_for_what_is_not_there(tmp_path: Path) -> None:
    machine = Machine({})
    none = tmp_path / "none"
    assert machine.read(none) is None
    assert machine.read("zero\0byte") is None
    assert machine.names(none) == []
    assert not machine.exists(none)
    assert not machine.may_use(none)
    assert machine.group_of(none) is None
    assert machine.which("sh") is None  # no PATH
    assert machine.package_folder("no_such_package_here") is None
    assert machine.space(none / "deeper").free > 0
    assert machine.space(none / "deeper").writable
    assert machine.connect("127.0.0.1", 9, 0.5)  # nobody listens to the discard port


def test_whole_command_as_json(tmp_path: Path) -> None:
    environment = {**os.environ, "PROFLAB_RUNS": str(tmp_path / "runs")}
    command = [sys.executable, "-m", "proflab", "doctor", "--json", "--patience", "60"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stderr == ""
    record = json.loads(done.stdout)
    assert done.returncode == (0 if record["ok"] else 1)
    found = {finding["key"]: finding for finding in record["findings"]}
    assert found["data"]["status"] == "note"  # an empty folder
    assert found["python"]["found"].split()[0] == sys.version.split()[0]
    assert found["torch-device"]["status"] in ("ok", "fix")  # torch was imported and asked
    assert not (tmp_path / "runs").exists()  # looking leaves nothing behind


def test_wrong_options_end_with_code_2() -> None:
    for options in (["--patience", "0"], ["--patience", "soon"], ["--verbose"]):
        with pytest.raises(SystemExit) as end:
            main(["doctor", *options])
        assert end.value.code == 2

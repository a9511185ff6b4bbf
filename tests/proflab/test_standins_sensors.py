"""The stand-ins that show the modelled node: amd-smi and omnistat."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidyprof
from proflab.standins import sensors
from tests.proflab import played_runs
from tests.proflab.played_runs import run
from tidyprof_tests.patience import PATIENCE_S

JOB = "srun -n 2 cifar-train --max-steps 3"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder of its own, the made-up player, an idle node."""
    monkeypatch.setattr(sensors, "_running", lambda environment: None)
    return played_runs.stage(tmp_path, monkeypatch)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_an_idle_node_shows_eight_devices_without_activity(here, capsys):
    assert run("amd-smi monitor --csv") == 0
    out, err = capsys.readouterr()
    assert err == "amd-smi: stand-in, nothing was measured: modelled MI300X, idle\n"
    rows = table(out)
    assert [row["gpu"] for row in rows] == list("01234567")
    assert {(row["gfx"], row["power_usage"], row["gfx_clk"]) for row in rows} == {
        ("0", "171", "N/A")
    }


def test_a_running_workload_shows_on_its_devices_only(here, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_WORKLOAD", JOB)
    assert run("amd-smi monitor -u -p --csv") == 0
    out, err = capsys.readouterr()
    assert "kernel time within 20 %" in err
    activity = [int(row["gfx"]) for row in table(out)]
    # The handmade run has samples of 40, 41 and 42 percent.
    assert all(40 <= value <= 42 for value in activity[:2])
    assert activity[2:] == [0] * 6


def test_the_steps_after_the_warm_up_come_again_while_the_process_lives(here, monkeypatch):
    monkeypatch.setenv("PROFLAB_WORKLOAD", JOB)
    node = sensors.Node()
    begin = node.workload.started
    # Samples at 0.5, 1.5 and 2.5 ms; the run lasts 3.1 ms, its first step of 1 ms is warm-up.
    seen = [
        node.readings(begin + milliseconds / 1e3)[0].values["gfx_activity"]
        for milliseconds in (0.6, 1.6, 2.6)
    ]
    assert seen == [40.0, 41.0, 42.0]
    later = {node.readings(begin + 1 + part / 1e4)[0].values["gfx_activity"] for part in range(60)}
    assert later == {40.0, 41.0, 42.0}
    assert node.readings(begin + 1)[5].values["power"] == node.device.idle_watt


def test_a_process_of_this_user_is_found_by_its_command_line(monkeypatch):
    import os

    import psutil

    def process(number: int, words: str, user: int) -> SimpleNamespace:
        uids = SimpleNamespace(real=user)
        return SimpleNamespace(
            info={
                "pid": number,
                "uids": uids,
                "cmdline": words.split(),
                "create_time": 100.0 - number,
            }
        )

    me = os.getuid()
    processes = [
        process(1, "python -m pytest tests/cifar_train", me),
        process(2, "python -m cifar_train --batch-size 7", me + 1),
        process(3, "rocprofv3 --kernel-trace -- torchrun --nproc-per-node 2 -m cifar_train", me),
        process(4, "python -m cifar_train --batch-size 8 --frobnicate", me),
    ]
    monkeypatch.undo()
    monkeypatch.setattr(psutil, "process_iter", lambda attributes: processes)
    found = sensors._running({})
    assert (found.pid, found.started, found.command.workload.ranks) == (3, 97.0, 2)


def test_the_log_of_a_watched_node_is_read_by_tidyprof(here, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_WORKLOAD", JOB)
    assert run("amd-smi monitor -p -t -u -m -v -g 0 1 -w 1 -i 2 --csv --file smi.csv") == 0
    assert capsys.readouterr().out == ""
    profile = tidyprof.read_system("smi.csv")
    assert profile.meta["samples"] == 2
    assert set(profile.counters["device"].dropna()) == {0, 1}


def test_the_terminal_view_has_units_and_the_line_about_stopping(here, capsys):
    assert run("amd-smi monitor -g 3 -w 1 -W 1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "'CTRL' + 'C' to stop watching output:"
    header = " ".join(lines[1].split())
    assert header == "TIMESTAMP GPU XCP POWER GPU_T MEM_T GFX_CLK GFX% MEM% ENC% DEC% VRAM_USAGE"
    assert lines[2].split()[1:5] == ["3", "0", "171", "W"]


def test_json_has_values_with_their_units(here, capsys):
    assert run("amd-smi monitor -g 2 -p --json") == 0
    (device,) = json.loads(capsys.readouterr().out)
    assert (device["gpu"], device["power_usage"]) == (2, {"value": 171, "unit": "W"})


def test_a_full_disk_leaves_the_samples_before_it(here, monkeypatch):
    """A log is written anew with each sample: half of it must not take the place of what was
    there.
    """
    whole, sizes = Path.write_text, []

    def full(path, text, **more):
        if path.name == "smi.csv":
            sizes.append(len(text))
        if len(sizes) < 3:
            return whole(path, text, **more)
        whole(path, text[: sizes[0] // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert run("amd-smi monitor -p -g 0 -w 1 -i 3 --csv --file smi.csv") == 2
    assert Path("smi.csv").stat().st_size == sizes[1]
    assert {path.name for path in Path().iterdir()} >= {"smi.csv", "smi_modelled.json"}
    assert not list(Path().glob(".unfinished-*"))


def test_a_single_snapshot_is_appended_to_a_file(here):
    for _ in range(2):
        assert run("amd-smi monitor -g 0 --csv --file smi.csv") == 0
    assert Path("smi.csv").read_text().count("power_usage") == 2


def test_a_second_monitor_of_one_log_is_refused_until_the_first_is_dead(here, capsys):
    """Each would replace what the other has written."""
    watching = "amd-smi monitor -p -g 0 -w 1 --csv --file smi.csv"
    with subprocess.Popen([sys.executable, "-m", "proflab.standins", *watching.split()]) as first:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not Path("smi.csv").exists():
                assert first.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            for more in ("-w 1 -i 1", ""):
                assert run(f"amd-smi monitor -p -g 1 {more} --csv --file smi.csv") == 2
                error = capsys.readouterr().err.splitlines()[-1]
                assert (
                    error
                    == "amd-smi: stand-in: smi.csv is in use by another amd-smi; wait for its end,"
                    " or give another --file"
                )
            assert {row["gpu"] for row in table(Path("smi.csv").read_text())} == {"0"}
            assert run("amd-smi monitor -p -g 1 --csv --file other.csv") == 0
        finally:
            first.kill()
    assert run("amd-smi monitor -p -g 1 -w 1 -i 1 --csv --file smi.csv") == 0
    assert {row["gpu"] for row in table(Path("smi.csv").read_text())} == {"1"}
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "amd-smi frobnicate",
            255,
            "Command 'frobnicate' is invalid. Run '--help' for more info. Error code: -1",
        ),
        ("amd-smi monitor --frobnicate", 254, "Parameter '--frobnicate' is invalid."),
        (
            "amd-smi monitor -g 9",
            253,
            "GPU_INDEX '9' cannot be found on the system. Error code: -3",
        ),
        ("amd-smi monitor -w 0.5", 251, "Value '0.5' is not of valid type or format."),
        ("amd-smi monitor -w", 250, "requires a value."),
        ("amd-smi monitor --json --csv", 254, "is invalid"),
        ("amd-smi monitor -r", 2, "-r is not modelled"),
        ("amd-smi topology --json", 2, "topology is not modelled"),
        ("amd-smi metric -g 0 --usage", 2, "metric is not modelled"),
        ("amd-smi static --frobnicate", 254, "Parameter '--frobnicate' is invalid."),
        ("amd-smi monitor --file nowhere/smi.csv", 2, "cannot be written"),
        ("omnistat-query", 2, "required: --job"),
        ("omnistat-query --job 7", 2, "no job is known"),
        ("omnistat-usermode --start --interval 0.001", 2, "at the most often"),
    ],
)
def test_what_the_tools_refuse(here, capsys, text, code, said):
    assert run(text) == code
    assert said in capsys.readouterr().err


def test_a_wrong_workload_in_the_variable_is_refused(here, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_WORKLOAD", "sleep 9")
    assert run("amd-smi monitor") == 2
    assert "is not the course's workload" in capsys.readouterr().err


def test_the_report_of_omnistat_agrees_with_its_export(here, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_WORKLOAD", JOB)
    assert run("omnistat-usermode --start --interval 0.005") == 0
    assert run("omnistat-query --job 7 --interval 0.005 --export csv --output report.txt") == 0
    out = capsys.readouterr().out
    assert "Omnistat Report Card for Job # 7" in out
    assert Path("report.txt").read_text() in out
    counters = tidyprof.read_system("csv").counters
    most = counters[(counters["name"] == "gpu_busy") & (counters["device"] == 0)]["value"].max()
    row = next(line for line in out.splitlines() if line.strip().startswith("0 |"))
    assert float(row.split("|")[1].split()[0]) == most
    assert row.split("|")[3].split() == ["N/A", "N/A"]  # the handmade run has no temperatures

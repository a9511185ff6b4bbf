"""The GPU log of lesson 01: recorded beside a command, and summarised with numbers that can be
worked out by hand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.snippets.conftest import Run

NAMES = (
    "timestamp,gpu,xcp,power_usage,max_power,hotspot_temperature,gfx_clk,gfx,mem,vram_used,"
    "vram_total"
)
OLD_NAMES = NAMES.replace(",xcp", "").replace(",max_power", "")
BEGIN = 1_795_298_400  # 2026-11-21 22:00 UTC


SAMPLES = [(150, 0, 300), (300, 90, 9000), (400, 95, 9000), (500, 100, 10000), (150, 0, 300)]
"""W, busy % and MB of GPU 0, every 10 s: it works from the second sample to the fourth."""

COLUMNS = (
    "samples",
    "busy %",
    "memory busy %",
    "power W",
    "limit W",
    "memory GB",
    "energy Wh",
    "J/image",
)


def log(names: str, played: Sequence[tuple[int, int, int]] = SAMPLES) -> str:
    """What watch mode prints, with GPU 1 idle: a line for people, and the header again for each
    sample.
    """
    lines = ["'CTRL' + 'C' to stop watching output:"]
    for place, (watt, busy, used) in enumerate(played):
        values = {
            "timestamp": BEGIN + 10 * place,
            "gpu": 0,
            "xcp": 0,
            "power_usage": watt,
            "max_power": 750,
        }
        values |= {"gfx": busy, "mem": 20, "vram_used": used, "vram_total": 196592}
        idle = values | {"gpu": 1, "power_usage": 140, "gfx": 0, "vram_used": 300}
        rows = [
            ",".join(str(row.get(name.lower(), "N/A")) for name in names.split(","))
            for row in (values, idle)
        ]
        lines += [names, *rows]
    return "\n".join(lines) + "\n"


def summary(
    bare: Run,
    folder: Path,
    *options: str,
    names: str = NAMES,
    played: Sequence[tuple[int, int, int]] = SAMPLES,
) -> dict[str, dict[str, str]]:
    """GPU -> column -> text, of the table that is printed."""
    (folder / "gpu.csv").write_text(log(names, played))
    lines = bare(
        "python", "snippets/01_gpu_log.py", "summary", "gpu.csv", *options
    ).stdout.splitlines()
    columns = [name for name in COLUMNS if name in lines[1]]
    return {
        line.split()[0]: dict(zip(columns, line.split()[1:], strict=True)) for line in lines[3:]
    }


def test_the_work_of_each_gpu_is_found_by_its_memory(bare: Run, tmp_path: Path) -> None:
    found = summary(bare, tmp_path)
    assert found["0"]["samples"] == "3.0"
    assert (found["0"]["busy %"], found["0"]["power W"], found["0"]["limit W"]) == (
        "95.0",
        "400.0",
        "750.0",
    )
    assert found["0"]["energy Wh"] == f"{(350 * 10 + 450 * 10) / 3600:.1f}"
    assert found["1"]["samples"] == "5.0"  # it held the same all the time


def test_energy_is_not_added_up_across_a_pause(bare: Run, tmp_path: Path) -> None:
    work, idle = (500, 100, 9000), (150, 0, 300)
    found = summary(bare, tmp_path, played=[*[work] * 7, *[idle] * 60, *[work] * 7])
    assert found["0"]["samples"] == "14.0"
    assert found["0"]["energy Wh"] == f"{500 * 120 / 3600:.1f}"


def test_a_window_and_joules_an_image(bare: Run, tmp_path: Path) -> None:
    window = ("--begin", "2026-11-21T22:00:20", "--end", "2026-11-21T22:00:30", "--images", "100")
    found = summary(bare, tmp_path, *window)
    assert (found["0"]["samples"], found["0"]["J/image"]) == ("2.0", "45.0")
    assert (found["1"]["samples"], found["1"]["J/image"]) == ("2.0", "14.0")


def test_a_release_that_writes_capitals_and_names_no_limit(bare: Run, tmp_path: Path) -> None:
    found = summary(bare, tmp_path, names=OLD_NAMES.upper())
    assert "limit W" not in found["0"]
    assert found["0"]["power W"] == "400.0"


@pytest.mark.parametrize("code", [0, 3])
def test_the_monitor_runs_beside_the_command_and_ends_with_it(
    bare: Run, tmp_path: Path, code: int
) -> None:
    tool = tmp_path / "tools" / "amd-smi"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\necho "$@" > options.txt\nprintf "{NAMES}\\n" > "${{11}}"\nexec sleep 100000\n'
    )
    tool.chmod(0o755)
    wait = f"until test -s gpu.csv; do sleep 0.05; done; exit {code}"
    path = os.pathsep.join([str(tool.parent), os.environ["PATH"]])
    done = bare(
        "python",
        "snippets/01_gpu_log.py",
        "record",
        "gpu.csv",
        "sh",
        "-c",
        wait,
        check=False,
        PATH=path,
    )
    assert done.returncode == code, done.stderr
    assert (
        tmp_path / "options.txt"
    ).read_text() == "monitor -p -t -u -m -v -w 1 --csv --file gpu.csv\n"
    again = bare(
        "python", "snippets/01_gpu_log.py", "record", "gpu.csv", "true", check=False, PATH=path
    )
    assert again.returncode == 1
    assert "exists" in again.stderr


def test_without_the_monitor_the_command_runs_all_the_same(bare: Run, tmp_path: Path) -> None:
    command = (
        "python",
        "snippets/01_gpu_log.py",
        "record",
        "gpu.csv",
        "/bin/sh",
        "-c",
        "echo trained; exit 3",
    )
    done = bare(*command, check=False, PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "trained\n")
    assert done.stderr.startswith("no log of the GPUs: ")
    assert "amd-smi" in done.stderr

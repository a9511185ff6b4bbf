"""The GPU log of lesson 01: recorded beside a command, and summarized with numbers that can be
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

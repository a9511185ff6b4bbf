"""The timer of lesson 00 on steps of known length: by the host's clock, and by events of a GPU that
only counts.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.snippets.conftest import SNIPPETS, Run

REPORT = re.compile(
    r"[\d.]+ ms per step \(mean of (\d+), median ([\d.]+), quartiles [\d.]+ to [\d.]+\),"
    r" ([\d.]+) images/s, (.+), torch "
)

COUNTING_CLOCK = """
import time, torch, time_a_step
now = [0.0]
def step(length=[9.0] * 3 + [0.02] * 9 + [0.1]):
    now[0] += length.pop(0)
time_a_step.time.perf_counter = lambda: now[0]
print(time_a_step.report(time_a_step.step_seconds(step, steps=10, warmup=3), images=8))
"""
"""Three steps of warm-up, nine steady ones of 20 ms, and a slow one."""

ON_A_GPU = """
import types, torch, time_a_step
host, gpu = [0.0], [0.0]
class Event:
    def __init__(self, enable_timing):
        assert enable_timing
    def record(self):
        gpu[0] = max(gpu[0], host[0])
        self.at = gpu[0]
    def elapsed_time(self, other):
        assert host[0] >= other.at, "read before the GPU was done"
        return 1e3 * (other.at - self.at)
def synchronize():
    host[0] = max(host[0], gpu[0])
def step():  # launched in 1 ms, done in 50
    host[0] += 0.001
    gpu[0] = max(gpu[0], host[0]) + 0.05
torch.cuda = types.SimpleNamespace(\
Event=Event, synchronize=synchronize, get_device_name=lambda: "a GPU")
time_a_step.ON_GPU, time_a_step.time.perf_counter = True, lambda: host[0]
print(time_a_step.report(time_a_step.step_seconds(step, steps=20), images=64))
"""
"""A GPU whose queue and host have clocks that only the work moves."""


def reported(bare: Run, folder: Path, script: str) -> tuple[float, int, float, str]:
    """Median in ms, steps, images/s, device, from a script that imports the copied timer."""
    (folder / "time_a_step.py").write_text((SNIPPETS / "00_time_a_step.py").read_text())
    (folder / "own.py").write_text(script)
    found = REPORT.match(bare("python", "own.py").stdout)
    return float(found[2]), int(found[1]), float(found[3]), found[4]


def test_the_warm_up_does_not_count_and_the_median_ignores_a_slow_step(
    bare: Run, tmp_path: Path
) -> None:
    median, steps, rate, device = reported(bare, tmp_path, COUNTING_CLOCK)
    assert (median, steps, rate) == (20.0, 10, round(80 / 0.28, 1))
    assert device.startswith("CPU")


def test_on_a_gpu_the_events_count_and_not_the_launches(bare: Run, tmp_path: Path) -> None:
    rate = 20 * 64 / (20 * 0.05 + 0.001)  # the first launch finds an empty queue
    assert reported(bare, tmp_path, ON_A_GPU) == (50.0, 20, round(rate, 1), "a GPU")


def test_its_own_trial_runs(bare: Run) -> None:
    assert (
        REPORT.match(bare("python", "snippets/00_time_a_step.py").stdout.splitlines()[-1])[1]
        == "50"
    )

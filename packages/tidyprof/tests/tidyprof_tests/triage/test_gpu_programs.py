"""triage on programs with a known fault on a real GPU: what it takes from the files themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof_tests.triage.gpu_programs import PROGRAMS, TRUTH, profiles, triaged

TIMED_BY_THE_BLOCK = [
    "bird_spectrograms",
    "ecg_checkpoints",
    "face_gallery",
    "fleet_heartbeat",
    "flux_emulator_mlp",
    "mixture_accumulate",
    "ocean_fields",
    "rerank_graphs",
    "seismic_mixer",
    "sketch_diffusion",
    "surgery_clips",
    "tissue_vit",
]
"""Programs whose first variant wrote its unprofiled steps into the trace. We name them here because
a reader that loses those times must fail.
"""


@pytest.mark.parametrize("name", TIMED_BY_THE_BLOCK)
def test_what_the_block_timed_is_what_another_clock_shows(name: str) -> None:
    """Within a fifth: other steps, of the same process."""
    variant = "sick" if (name, "sick") in TRUTH else "cured"
    step = TRUTH[name, variant]["untraced_ms"]
    found = tidyprof.diagnose(profiles(PROGRAMS, name, variant))
    assert found.overhead.measured_ns == pytest.approx(1e6 * step, rel=0.2)
    assert found.cause == triaged(name, variant, "given").cause


def test_the_command_writes_the_step_with_and_without_the_profiler(tmp_path: Path) -> None:
    command = ["triage", str(PROGRAMS / "gan_scores/sick"), "--json", str(tmp_path / "found.json")]
    assert main(command) == 0
    found = json.loads((tmp_path / "found.json").read_text())["overhead"]
    low, high = found["estimated_step_ms"]
    assert low < TRUTH["gan_scores", "sick"]["untraced_ms"] < high
    assert (found["measured_step_ms"], found["events_per_step"]) == (None, pytest.approx(5161))
    assert main([*command, "--step-time-ms", "18.2"]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["overhead"]["measured_step_ms"] == 18.2
    assert (found["cause"], found["confident"]) == ("sync-bound", True)

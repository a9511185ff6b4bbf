"""triage on programs with a known fault on a real GPU: with their untraced step given, and by the
trace alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof_tests.triage.gpu_programs import (
    FORMS,
    PROGRAMS,
    TRUTH,
    profiles,
    triaged,
)

TIMED_BY_THE_BLOCK = {
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
}
"""Programs whose first form, if there are two, wrote its untraced steps into the trace. Named here
and not asked of the files: a reader that loses those times must fail, and a collection of tests
reads no traces.
"""
FIRST_TRACED = [
    (name, form)
    for name, form in FORMS
    if name in TIMED_BY_THE_BLOCK and (form == "sick" or len(TRUTH[name]["untraced_ms"]) == 1)
]


@pytest.mark.parametrize(("name", "form"), FIRST_TRACED)
def test_what_the_block_timed_is_what_an_own_clock_says(name: str, form: str) -> None:
    """Within a fifth: other steps, of the same process."""
    own = TRUTH[name]["untraced_ms"][form]
    assert profiles(name, form)[0].meta["untraced"]
    found = tidyprof.triage(profiles(name, form))
    assert found.signs.observer.unprofiled_step_ns == pytest.approx(1e6 * own, rel=0.2)
    assert found.cause == triaged(name, form, "given").cause


def test_the_command_writes_the_step_with_and_without_the_profiler(tmp_path: Path) -> None:
    folder, written = PROGRAMS / "gan_scores/sick", tmp_path / "found.json"
    assert main(["triage", str(folder), "--json", str(written)]) == 0
    told = json.loads(written.read_text())
    found = told["observer"]
    low, high = found["estimated_step_ms"]
    estimated = told["signs"]["observer"]["estimated_ns"]
    assert (estimated["low"], estimated["high"]) == pytest.approx((1e6 * low, 1e6 * high))
    assert low < estimated["middle"] / 1e6 < high
    assert found["unprofiled_step_ms"] is None
    assert low < TRUTH["gan_scores"]["untraced_ms"]["sick"] < high < found["traced_step_ms"]
    assert found["events_a_step"] == pytest.approx(5161, rel=0.01)
    assert main(["triage", str(folder), "--json", str(written), "--step-time-ms", "18.2"]) == 0
    found = json.loads(written.read_text())
    assert found["observer"]["unprofiled_step_ms"] == 18.2
    assert (found["cause"], found["confident"]) == ("sync-bound", True)

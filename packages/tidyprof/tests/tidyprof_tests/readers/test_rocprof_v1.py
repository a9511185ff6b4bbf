"""The reader of the first rocprof against a real recording with known figures, and against written
outputs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidyprof import Origin
from tidyprof.readers.rocprof_v1.reader import read_rocprof_v1
from tidyprof_tests.readers.kit import samples

RECORDING = "rocprofv1-mi210-torch-add"
SUBJECTS = {
    "stats": "kernel",
    "hip_stats": "hip_api",
    "hsa_stats": "hsa_api",
    "copy_stats": "memory_copy",
}
STATISTICS = [
    "HIP_trace/results.copy_stats.csv",
    "HIP_trace/results.hip_stats.csv",
    "HIP_trace/results.stats.csv",
    "HSA_trace/results.copy_stats.csv",
    "HSA_trace/results.hsa_stats.csv",
    "HSA_trace/results.stats.csv",
]


@pytest.fixture(scope="session")
def folder(recordings: Path) -> Path:
    return recordings / RECORDING


@pytest.fixture(scope="session")
def entry(manifest: dict[str, dict]) -> dict:
    return manifest[RECORDING]


def test_table_of_kernels(folder, entry):
    profile = read_rocprof_v1(folder / "HSA_trace" / "results.csv")
    expected = entry["truth"]["HSA_trace/results.csv"]
    (event,) = profile.events.to_dict("records")
    assert (event["name"], event["duration_ns"]) == (expected["kernel"], expected["duration_ns"])


@pytest.mark.parametrize("path", STATISTICS)
def test_statistics(folder, entry, path):
    expected = entry["truth"][path]
    meta = read_rocprof_v1(folder / path).meta
    ((subject, found),) = meta["stats"].items()
    assert subject == SUBJECTS[path.split(".")[1]]
    assert len(found) == expected["rows"]
    assert found["calls"].sum() == expected["calls"]
    assert found["total_ns"].sum() == expected["total_ns"]
    assert found["name"].iloc[0] == expected["first_row"]
    assert found[["min_ns", "max_ns", "std_ns"]].isna().all(axis=None)
    assert "only statistics" in meta["warnings"][-1]


def test_meta_of_a_folder(folder):
    origin = Origin("recorded", "blog")
    meta = read_rocprof_v1(folder / "HSA_trace", origin=origin).meta
    assert meta["origin"] is origin
    assert sorted(meta["stats"]) == ["hsa_api", "kernel", "memory_copy"]
    assert len(meta["files"]) == 4
    assert not meta["warnings"]


def test_a_barrier_is_no_kernel(tmp_path):
    sample = samples()["rocprof_v1-results"]
    (tmp_path / "results.csv").write_bytes(sample.content.replace(b'"f"', b'"<barrier packet>"'))
    profile = read_rocprof_v1(tmp_path)
    assert profile.events["name"].tolist() == ["g"]
    assert profile.meta["not_kept"] == {"BARRIER": 1}

"""What ships with the course: complete, small, readable and marked as what it is."""

from __future__ import annotations

import pytest

import tidyprof
from cifar_train.config import FAULTS, MODELS
from proflab.parts.modeled_runs import ERROR
from proflab.recordings import load_manifest, recording, shipped_folder
from tests.conftest import REPOSITORY

MODELED = [name for name, entry in load_manifest().items() if entry.origin == "modeled"]
SHIPPED = [
    name for name, entry in load_manifest().items() if all(file.url is None for file in entry.files)
]
MAX_BYTES = 10 * 10**6
MAX_BYTES_OF_A_GPU = 8 * 10**6


def test_every_model_is_there_and_what_else_is_modeled_is_a_pathology() -> None:
    names = {name.removeprefix("modeled-") for name in MODELED}
    assert set(MODELS) < names <= {*MODELS, *FAULTS}


def test_modeled_recordings_and_tapes_stay_small():
    tapes = (shipped_folder() / "tapes").rglob("*.*")
    assert sum(path.stat().st_size for path in tapes) <= MAX_BYTES
    assert sum(load_manifest()[name].total_bytes for name in MODELED) <= MAX_BYTES


def test_traces_of_the_gpu_that_the_course_ran_on_are_small() -> None:
    programs = (REPOSITORY / "packages/tidyprof/tests/third_party/gpu").rglob("*.zst")
    own = (REPOSITORY / "recordings").glob("torch-h200-*/*")
    assert sum(path.stat().st_size for path in (*programs, *own)) <= MAX_BYTES_OF_A_GPU


def test_every_file_in_the_folder_is_listed_and_has_its_checksum():
    listed = {file.path for name in SHIPPED for file in load_manifest()[name].files}
    cuts = [entry.cut for entry in load_manifest().values() if entry.cut]
    listed |= {f"cuts/{file.path}" for cut in cuts for file in cut.files}
    found = {
        str(path.relative_to(shipped_folder()))
        for path in shipped_folder().rglob("*")
        if path.is_file()
        and path.relative_to(shipped_folder()).parts[0] != "tapes"  # test_tapes plays each of them
    }
    licenses = {f"cuts/licenses/{name}.txt" for name in ("MIT", "Apache-2.0")}
    assert found - listed == {"manifest.json", "cuts/NOTICE.md", *licenses}
    assert all(recording(name).source == "shipped" for name in SHIPPED)
    assert all(
        recording(name).source == "cut" for name, entry in load_manifest().items() if entry.cut
    )


@pytest.mark.parametrize("name", MODELED)
def test_modeled_recordings_are_read_as_modeled_with_the_present_error(name):
    root = recording(name)
    tools = {path.partition("/")[0] for path in root.files}
    assert {"torch", "rocprofv3"} <= tools
    for tool in tools:
        profile = tidyprof.read(root.root / name / tool)
        assert len(profile.events) or len(profile.counters)
        assert profile.origin.kind == "modeled"
        assert ERROR in profile.origin.detail
    assert root.origin.kind == "modeled"
    assert ERROR in root.origin.detail


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in MODELED])
def test_other_shipped_recordings_are_read_as_recorded(name):
    found = recording(name)
    profile = tidyprof.read(found.path, origin=found.origin)
    assert len(profile.events) > 1000
    assert profile.origin.kind == "recorded"
    assert ("NVIDIA H200" if "h200" in name else "no GPU") in profile.origin.detail


def test_what_compiling_does_to_the_vision_transformer():
    eager, compiled = (
        tidyprof.operators(tidyprof.read(recording(name).path)).set_index("name")["calls"]
        for name in ("torch-cpu-vit", "torch-cpu-vit-compiled")
    )
    for kept in (
        "aten::addmm",
        "aten::mm",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::lerp_",
    ):
        assert eager[kept] == compiled[kept] > 0
    for merged in ("aten::gelu", "aten::native_layer_norm"):
        assert eager[merged] > 0
        assert merged not in compiled

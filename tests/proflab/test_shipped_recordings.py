"""What ships with the course: complete, small, readable, marked as what it is, and made again the
same.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from types import ModuleType

import pytest

import tidyprof
from cifar_train.config import MODELS, ZOO
from gpumodel.devices import model_error
from proflab.recordings import load_manifest, recording, shipped_folder
from tests.conftest import REPOSITORY

MODELLED = [name for name, entry in load_manifest().items() if entry.origin == "modelled"]
SHIPPED = [
    name for name, entry in load_manifest().items() if all(file.url is None for file in entry.files)
]
MOST_BYTES = 10 * 10**6
MOST_BYTES_OF_A_GPU = 8 * 10**6


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """scripts/dev/make_recordings.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "make_recordings", REPOSITORY / "scripts/dev/make_recordings.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_model_and_every_recorded_pathology_is_there(maker):
    assert sorted(MODELLED) == sorted(recipe.name for recipe in maker.recipes())
    names = [*MODELS, *(one.name for one in ZOO.values() if one.recording)]
    assert {f"modelled-{name}" for name in names} == set(MODELLED)


def test_modelled_recordings_stay_small():
    assert sum(load_manifest()[name].total_bytes for name in MODELLED) <= MOST_BYTES


def test_traces_of_the_gpu_that_the_course_ran_on_are_small() -> None:
    programs = (REPOSITORY / "tests/strangers/gpu").rglob("*.zst")
    own = (REPOSITORY / "recordings").glob("torch-h200-*/*")
    assert sum(path.stat().st_size for path in (*programs, *own)) <= MOST_BYTES_OF_A_GPU


def test_every_file_in_the_folder_is_listed_and_has_its_checksum():
    listed = {file.path for name in SHIPPED for file in load_manifest()[name].files}
    cuts = [entry.cut for entry in load_manifest().values() if entry.cut]
    listed |= {f"cuts/{file.path}" for cut in cuts for file in cut.files}
    found = {
        str(path.relative_to(shipped_folder()))
        for path in shipped_folder().rglob("*")
        if path.is_file()
    }
    licences = {f"cuts/licences/{name}.txt" for name in ("MIT", "Apache-2.0")}
    assert found - listed == {"manifest.json", "cuts/NOTICE.md", *licences}
    assert all(recording(name).source == "shipped" for name in SHIPPED)
    assert all(
        recording(name).source == "cut" for name, entry in load_manifest().items() if entry.cut
    )


@pytest.mark.parametrize("name", MODELLED)
def test_modelled_recordings_are_read_as_modelled_with_the_present_error(name):
    root = recording(name)
    tools = {path.partition("/")[0] for path in root.files}
    assert {"torch", "rocprofv3"} <= tools
    for tool in tools:
        profile = tidyprof.read(root.root / name / tool)
        assert len(profile.events) or len(profile.counters)
        assert profile.origin.kind == "modelled"
        assert model_error() in profile.origin.detail
    assert root.origin.kind == "modelled"
    assert model_error() in root.origin.detail


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in MODELLED])
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


def test_the_kernels_that_have_counters_are_chosen_anew(maker, tmp_path):
    run = maker.recipes()[0].play("rocprofv3", max_steps=2)
    maker.write(
        "rocprof-compute",
        maker.with_longest(run),
        tmp_path,
        blocks=("2",),
        output_directory=maker.UNPACKED,
    )
    written = tmp_path / maker.UNPACKED / "pmc_perf.csv"
    assert maker.same_content(
        REPOSITORY / "recordings/modelled-resnet/rocprof-compute/pmc_perf.csv", written.read_bytes()
    )


def test_making_one_again_changes_nothing(maker, tmp_path):
    shutil.copy(REPOSITORY / "recordings" / "manifest.json", tmp_path)
    (recipe,) = [recipe for recipe in maker.recipes() if recipe.name == "modelled-tiny-batch"]
    entry = maker.make(recipe, tmp_path)
    assert entry["files"]
    for file in entry["files"]:
        content = maker.unpacked(tmp_path / file["path"])
        assert maker.same_content(REPOSITORY / "recordings" / file["path"], content), file["path"]
    maker.update_manifest(tmp_path / "manifest.json", [entry])
    names = [each["name"] for each in json.loads((tmp_path / "manifest.json").read_text())]
    assert names == list(load_manifest())

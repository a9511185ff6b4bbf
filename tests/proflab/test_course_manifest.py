"""The course's manifest: complete, consistent with the truths of the tests, and found in a checkout
and in a wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from proflab.errors import CourseError
from proflab.recordings import find_entry, load_manifest, shipped_folder

REPOSITORY = Path(__file__).resolve().parents[2]


def test_entries_are_consistent() -> None:
    manifest = load_manifest()
    assert len(manifest) >= 24
    for entry in manifest.values():
        paths = [file.path for file in entry.files]
        assert len(set(paths)) == len(paths) > 0
        assert all(path.startswith(f"{entry.name}/") and ".." not in path for path in paths)
        assert all(re.fullmatch(r"[0-9a-f]{64}", file.sha256) for file in entry.files)
        assert entry.main is None or f"{entry.name}/{entry.main}" in paths
        assert entry.licence
        assert entry.copyright
        for file in entry.files:
            if file.url is None:
                assert (shipped_folder() / file.path).is_file(), (
                    f"{file.path} has no address and is not shipped"
                )
            else:
                assert file.url.startswith("https://")
                assert entry.source_commit in file.url


def test_rocm_release_is_taken_from_the_manifest_only() -> None:
    assert find_entry("torch-mi300x-resnet-ddp-rank0").short_rocm == "ROCm 6.4"
    assert find_entry("rocprofv3-json-mi350x-torch-training").short_rocm is None
    assert find_entry("torch-mi300x-resnet-ddp-rank0").short_gpu == "AMD Instinct MI300X"


def test_unknown_name_gives_the_near_one() -> None:
    with pytest.raises(CourseError, match=r"did you mean torch-mi210-gpu-only"):
        find_entry("torch-mi210-gpu")


def test_manifest_is_found_in_the_layout_of_a_wheel(tmp_path: Path) -> None:
    package = tmp_path / "proflab"
    shutil.copytree(
        REPOSITORY / "src/proflab", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(REPOSITORY / "recordings", package / "shipped_recordings")
    code = "from proflab.recordings import *; print(shipped_folder(), len(load_manifest()))"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY / "src")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(package / "shipped_recordings"), str(len(load_manifest()))]


def test_wheel_is_told_to_carry_the_manifest() -> None:
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    assert build["force-include"]["recordings"] == "proflab/shipped_recordings"


def imported(listed: list[dict], known: list[dict], folder: Path) -> tuple[Path, Path]:
    """The manifest and the truths that the script writes from a list and the manifest before."""
    (folder / "list.json").write_text(json.dumps(listed))
    target, truths = folder / "manifest.json", folder / "recordings.json"
    target.write_text(json.dumps(known))
    script = str(REPOSITORY / "scripts/dev/import_manifest.py")
    places = ["--target", str(target), "--truths", str(truths)]
    command = [sys.executable, script, str(folder / "list.json"), *places]
    subprocess.run(command, check=True, capture_output=True)
    return target, truths


def test_the_truths_are_of_the_files_that_the_manifest_names(tmp_path: Path) -> None:
    """Both come from one list: what the script writes from the two together is the two again."""
    course, tests = REPOSITORY / "recordings/manifest.json", REPOSITORY / "tests/recordings.json"
    known, truths = json.loads(course.read_text()), json.loads(tests.read_text())
    listed = [{**truths[entry["name"]], **entry} for entry in known if entry["name"] in truths]
    target, written = imported(listed, known, tmp_path)
    assert target.read_text() == course.read_text()
    assert written.read_text() == tests.read_text()


def test_every_public_recording_has_its_truth_and_the_truths_are_small() -> None:
    path = REPOSITORY / "tests/recordings.json"
    public = [name for name, entry in load_manifest().items() if entry.has_address]
    truths = json.loads(path.read_text())
    assert list(truths) == public
    assert all(entry["truth"] for entry in truths.values())
    assert path.stat().st_size < 62_000


def test_import_script_leaves_out_files_without_an_address_and_keeps_the_courses_own(
    tmp_path: Path,
) -> None:
    file = {
        "path": "a/x",
        "sha256": "0" * 64,
        "bytes": 1,
        "role": "recording",
        "url": "https://example.org/x",
    }
    texts = dict.fromkeys(
        ("kind", "tool", "gpu", "workload", "licence", "licence_url", "copyright", "notes"), "text"
    )
    mirror = [
        {
            "name": "a",
            **texts,
            "files": [file, {**file, "path": "a/y", "url": None}],
            "truth": {"rows": 1},
        },
        {"name": "b", **texts, "files": [{**file, "path": "b/x", "url": None}]},
    ]
    own = {"name": "own", **texts, "files": [{**file, "path": "own/x", "url": None}]}
    target, truths = imported(mirror, [own], tmp_path)
    written = {entry["name"]: entry for entry in json.loads(target.read_text())}
    assert set(written) == {"a", "own"}
    assert [file["path"] for file in written["a"]["files"]] == ["a/x"]
    assert written["a"]["main"] == "x"
    assert "truth" not in written["a"]
    assert json.loads(truths.read_text()) == {
        "a": {
            "address": "https://example.org/x",
            "files": 1,
            "bytes": 1,
            "sha256": hashlib.sha256(f"{'0' * 64}  a/x\n".encode()).hexdigest(),
            "licence": "text",
            "truth": {"rows": 1},
        }
    }

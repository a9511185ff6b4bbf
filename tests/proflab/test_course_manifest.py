"""The course's manifest: complete, consistent with the truths of the tests, and found in a checkout
and in a wheel.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from proflab.recordings import load_manifest, shipped_folder

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

"""The course's manifest: complete, consistent with the truths of the tests, and found in a checkout
and in a wheel.
"""

from __future__ import annotations

import json
import re
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
        assert entry.license
        assert entry.copyright
        for file in entry.files:
            if file.url is None:
                assert (shipped_folder() / file.path).is_file(), (
                    f"{file.path} has no address and is not shipped"
                )
            else:
                assert file.url.startswith("https://")
                assert entry.source_commit in file.url


def test_every_public_recording_has_its_truth_and_the_truths_are_small() -> None:
    path = REPOSITORY / "tests/recordings.json"
    public = [name for name, entry in load_manifest().items() if entry.has_address]
    truths = json.loads(path.read_text())
    assert list(truths) == public
    assert all(entry["truth"] for entry in truths.values())
    assert path.stat().st_size < 62_000

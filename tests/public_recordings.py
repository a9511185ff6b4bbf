"""Whole public recordings, where tests find them: in the mirror, which `make mirror` fills; those
without an address are with the tests.
"""

from __future__ import annotations

import functools
import gzip
import json
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

from proflab.recordings import load_manifest, problem, shipped_folder

TRUTHS = Path(__file__).with_name("recordings.json")
WITH_THE_TESTS = Path(__file__).with_name("recordings")
GET = "`make mirror` gets it"
"""What a test that waits is told; the last line of a run counts them by it."""

_unpacked = tempfile.TemporaryDirectory(prefix="tests-recordings-")


class Mirror(type(Path())):
    """The folder that has each public recording by its name. Whoever asks for one that is not here,
    or not as it was published, waits for `make mirror`.
    """

    def __truediv__(self, key: str | Path) -> Path:
        name = PurePath(key).parts[0]
        if name not in truths():
            return with_the_tests(name).parent / key
        self._wait_for(name)
        return Path(self, key)

    def glob(self, pattern: str) -> Iterator[Path]:
        """Files of those recordings that the first part of the pattern names."""
        first = PurePath(pattern).parts[0]
        self._wait_for(*(name for name in truths() if fnmatchcase(name, first)))
        return Path(self).glob(pattern)

    def whole(self) -> Path:
        """The folder, with all recordings in it."""
        self._wait_for(*truths())
        return Path(self)

    def _wait_for(self, *names: str) -> None:
        from tests.conftest import require

        for name in names:
            wrong = _problem(name, Path(self))
            what = f"recording {name}" + (f" ({wrong})" if wrong else "")
            require(wrong is None, what, f": {GET} into {self}")


@functools.cache
def _problem(name: str, folder: Path) -> str | None:
    return problem(load_manifest()[name].files, folder)


@functools.cache
def truths() -> dict[str, dict[str, Any]]:
    """What a reader must find in each public recording, by its name."""
    return json.loads(TRUTHS.read_text(encoding="utf-8"))


@functools.cache
def with_the_tests(name: str) -> Path:
    """A recording that the course and its tests ship, as its tool wrote it: unpacked."""
    target = Path(_unpacked.name) / name
    for source in (shipped_folder() / name, WITH_THE_TESTS / name):
        for path in (path for path in source.rglob("*") if path.is_file()):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes()
            if path.suffix == ".gz":
                place, content = place.with_suffix(""), gzip.decompress(content)
            place.write_bytes(content)
    return target

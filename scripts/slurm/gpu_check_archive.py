"""The archive of `make gpu-check` as folders of finished jobs, for collect_recordings.py.

An archive comes from somebody else: only plain files below its own folder are unpacked, and not
without end.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidyprof.errors import UserError

LARGEST_BYTES, MOST_FILES = 8 * 10**9, 20_000
"""Of all files together: far more than the traces and what AMD's tools write in the lessons."""

PIECE = 2**20
DAMAGE = (tarfile.TarError, zlib.error, EOFError, OSError)


@contextmanager
def job_folders(results: Path) -> Iterator[Path]:
    """The folder of job folders itself, or those of an archive, which end with the block. Raises
    UserError.
    """
    if results.is_dir():
        yield results
        return
    with tempfile.TemporaryDirectory() as place:
        unpack(results, Path(place) / "archive")
        yield arranged(Path(place) / "archive", Path(place) / "jobs")


def unpack(archive: Path, target: Path) -> None:
    """All files of the archive below `target`. Raises UserError for what is no sound archive of
    gpu-check.
    """
    try:
        with gzip.open(archive) as packed, tarfile.open(fileobj=packed) as source:
            size = count = 0
            for entry in source:
                size, count = size + entry.size, count + 1
                if not entry.isfile() or size > LARGEST_BYTES or count > MOST_FILES:
                    raise UserError(
                        f"{archive}: {entry.name!r} is no file or too large; gpu-check packs"
                        " nothing like it"
                    )
                _write(source, entry, target)
            while packed.read(PIECE):  # to the checksum, which stands at the end
                pass
    except DAMAGE as error:
        raise UserError(f"{archive}: cannot be unpacked ({error}); have it sent again") from error


def _write(source: tarfile.TarFile, entry: tarfile.TarInfo, target: Path) -> None:
    """Without tarfile's filters, which Python has from 3.11.4 on."""
    path = (target / entry.name).resolve()
    if not path.is_relative_to(target.resolve()):
        raise UserError(
            f"{entry.name!r} would lie outside of the archive's folder; gpu-check packs nothing"
            " like it"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with source.extractfile(entry) as content, path.open("wb") as file:
        shutil.copyfileobj(content, file)


def arranged(archive: Path, target: Path) -> Path:
    """The traced trainings, each as a finished job `torch_profiler_NUMBER`. Raises UserError where
    there is none.
    """
    target.mkdir()
    for result in sorted(archive.glob("*/traces/result.json")):
        try:
            passed = json.loads(result.read_bytes())["state"] == "passed"
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{result.relative_to(archive)} cannot be read; have the archive sent again"
            ) from error
        for number, training in enumerate(
            sorted(path for path in result.parent.iterdir() if path.is_dir())
        ):
            job = target / f"torch_profiler_{number}"
            shutil.move(training, job / "train")
            (job / "exit_code").write_text(f"{int(not passed)}\n")
    if not any(target.iterdir()):
        raise UserError(f"{archive.name}: no traced training is in it; did the part `traces` run?")
    return target

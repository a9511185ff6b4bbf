"""Recorded operators on disk: the steps that ship with the model, then those that this machine has recorded."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cifar_train.whole_files import whole_file

FOLDER_VARIABLE = "GPUMODEL_CACHE"
"""Environment variable with the folder; empty switches the cache off."""

SHIPPED = Path(__file__).parents[1] / "data" / "steps"
"""Steps that the lessons and recordings play, by scripts/dev/record_steps.py: they need no torch, and are the same
whatever its version."""

Kept = TypeVar("Kept")


def folder() -> Path | None:
    """Where recordings are kept, by default below XDG_CACHE_HOME or ~/.cache; None if switched off or homeless."""
    if FOLDER_VARIABLE in os.environ:
        chosen = os.environ[FOLDER_VARIABLE]
        return Path(chosen) if chosen else None
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "gpumodel"
    with suppress(RuntimeError):  # neither HOME nor an entry in the list of users
        return Path.home() / ".cache" / "gpumodel"
    return None


def load_or_make(name: str, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
    """What ships under the name; else what `make` gives, kept for these versions of the libraries and the recorder."""
    shipped = SHIPPED / f"{name}.json.gz"
    if shipped.exists():
        return unpack(shipped.read_bytes(), kind)
    where = folder()
    if where is None:
        return make()
    target = where / f"{name}-{_digest()}.json.gz"
    with suppress(OSError, EOFError, zlib.error, msgspec.DecodeError):
        return unpack(target.read_bytes(), kind)
    made = make()
    # A read-only home folder costs time and nothing else.
    with suppress(OSError):
        where.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            partial.write_bytes(pack(made))
    return made


def pack(content: Any) -> bytes:
    """As compressed JSON, the same bytes for the same content."""
    return gzip.compress(msgspec.json.encode(content), 9, mtime=0)


def unpack(packed: bytes, kind: type[Kept]) -> Kept:
    """The content of `pack`. Raises OSError, EOFError, zlib.error or msgspec.DecodeError for what is none."""
    return msgspec.json.decode(gzip.decompress(packed), type=kind)


def _digest() -> str:
    versions = " ".join(metadata.version(name) for name in ("torch", "transformers"))
    here = Path(__file__)
    sources = sorted([*here.parent.glob("*.py"), *(here.parents[2] / "cifar_train").rglob("*.py")])
    content = b"".join(path.read_bytes() for path in sources)
    return hashlib.sha256(versions.encode() + content).hexdigest()[:16]

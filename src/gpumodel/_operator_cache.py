"""Recorded operators on disk, so that the model need not be built again for the same step."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "GPUMODEL_CACHE"
"""Environment variable with the folder; empty switches the cache off."""


def folder() -> Path | None:
    """Where recordings are kept, by default below XDG_CACHE_HOME or ~/.cache; None if switched off."""
    if FOLDER_VARIABLE in os.environ:
        chosen = os.environ[FOLDER_VARIABLE]
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gpumodel"


def load_or_make(key: dict[str, Any], make: Callable[[], Any]) -> Any:
    """What `make` gives, kept under the key, the versions of the libraries and the recorder's own source."""
    where = folder()
    if where is None:
        return make()
    target = where / f"operators-{_digest(key)}.pickle"
    with suppress(OSError, pickle.UnpicklingError, EOFError, AttributeError):
        return pickle.loads(target.read_bytes())
    made = make()
    # A read-only home folder costs time and nothing else.
    with suppress(OSError):
        where.mkdir(parents=True, exist_ok=True)
        # A rename is whole or not at all, also with several processes at once.
        with tempfile.NamedTemporaryFile(dir=where, delete=False) as part:
            part.write(pickle.dumps(made))
        Path(part.name).replace(target)
    return made


def _digest(key: dict[str, Any]) -> str:
    versions = {name: metadata.version(name) for name in ("torch", "transformers")}
    sources = sorted(Path(__file__).parent.glob("*operator*.py"))
    trainer = Path(__file__).parents[1] / "cifar_train"
    sources += [trainer / name for name in ("loop.py", "models.py", "pathologies.py", "transforms.py")]
    content = hashlib.sha256(b"".join(path.read_bytes() for path in sources if path.exists())).hexdigest()
    return hashlib.sha256(json.dumps([key, versions, content], sort_keys=True).encode()).hexdigest()[:24]

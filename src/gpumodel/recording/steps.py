"""The aten operators of one training step, recorded on shapes alone.

The trainer's own model, loss and backward pass run on meta tensors, which have shapes and no
memory, so that a step takes seconds and no GPU. Names are those of a ROCm build
(aten::miopen_convolution), and the optimizer, gradient scaling and gradient exchange are the ones
that a GPU gets. The trainer is taken to be started by a launcher (srun, torchrun), which wraps the
model in DistributedDataParallel for one rank as well.

Recorded steps stay on disk: those that ship with the model, then those that this machine has
recorded.
"""

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

from cifar_train.config import ZOO, TrainConfig, apply_to_config
from gpumodel.recording.operators import Operator
from tidyprof.whole_files import whole_file

RECORDED_FIELDS = (
    *(
        "model",
        "precision",
        "batch_size",
        "batched_transforms",
        "compile",
        "channels_last",
        "fused_optimizer",
    ),
    "pathology",
)
"""Fields of the configuration that change the operators of a step."""


def operators_of_step(config: TrainConfig) -> tuple[Operator, ...]:
    """All operators of one steady step of the trainer with this configuration, its pathology
    included.

    Host effects of a pathology (a slow loader, a late rank) have no operators; gpumodel.play adds
    them.
    """
    return load_or_make(step_name(config), tuple[Operator, ...], lambda: record(config))


def step_name(config: TrainConfig) -> str:
    """`resnet-automixed-256-channels_last`: the fields that count in order, a switch that is on by
    its name.
    """
    acting = _acting(config)
    fields = {name: getattr(acting, name) for name in RECORDED_FIELDS}
    words = (
        name if value is True else value
        for name, value in fields.items()
        if value not in (None, False)
    )
    return "-".join(map(str, words))


def _acting(config: TrainConfig) -> TrainConfig:
    """The configuration with its pathology's settings in place, and without one that leaves no
    operators.
    """
    config = apply_to_config(config)
    has_operators = config.pathology is None or ZOO[config.pathology].operators
    return config if has_operators else config.replace(pathology=None)


def record(config: TrainConfig) -> tuple[Operator, ...]:
    """The operators as torch gives them now; imports torch, which nothing else here does."""
    from gpumodel.recording.record import record_step

    return record_step(_acting(config))


FOLDER_VARIABLE = "GPUMODEL_CACHE"
"""Environment variable with the folder; empty switches the cache off."""

SHIPPED = Path(__file__).parents[1] / "data" / "steps"
"""Steps that the lessons and recordings play, by scripts/dev/record_steps.py: they need no torch,
and are the same whatever its version.
"""

Kept = TypeVar("Kept")


def folder() -> Path | None:
    """Where recordings are kept, by default below XDG_CACHE_HOME or ~/.cache; None if switched off
    or homeless.
    """
    if FOLDER_VARIABLE in os.environ:
        chosen = os.environ[FOLDER_VARIABLE]
        return Path(chosen) if chosen else None
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "gpumodel"
    with suppress(RuntimeError):  # neither HOME nor an entry in the list of users
        return Path.home() / ".cache" / "gpumodel"
    return None


def load_or_make(name: str, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
    """What ships under the name; else what `make` gives, kept for these versions of the libraries
    and the recorder.
    """
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
    """The content of `pack`. Raises OSError, EOFError, zlib.error or msgspec.DecodeError for what
    is none.
    """
    return msgspec.json.decode(gzip.decompress(packed), type=kind)


def _digest() -> str:
    versions = " ".join(metadata.version(name) for name in ("torch", "transformers"))
    here = Path(__file__)
    sources = sorted([*here.parent.glob("*.py"), *(here.parents[2] / "cifar_train").rglob("*.py")])
    content = b"".join(path.read_bytes() for path in sources)
    return hashlib.sha256(versions.encode() + content).hexdigest()[:16]

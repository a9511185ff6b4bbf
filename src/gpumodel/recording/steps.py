"""The aten operators of one training step, recorded on shapes alone.

The trainer's own model, loss and backward pass run on meta tensors, which have shapes and no
memory, so a step takes seconds and needs no GPU. Names are those of a ROCm build
(aten::miopen_convolution). Optimizer, gradient scaling and gradient exchange are those of a GPU.
The trainer is taken to be started by a launcher (srun, torchrun), so it wraps the model in
DistributedDataParallel even for one rank.

Recorded steps are kept on disk: some ship with the model, others were recorded on this machine.
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

    What a pathology does on the host (a slow loader, a late rank) has no operators; gpumodel.play
    adds it.
    """
    return load_or_make(step_name(config), tuple[Operator, ...], lambda: record(config))


def step_name(config: TrainConfig) -> str:
    """Name of a step, such as `resnet-automixed-256-channels_last`: the values of RECORDED_FIELDS
    in order, and for a switch that is on its name.
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
    """The configuration with its pathology's settings in place; a pathology that changes no
    operators is left out.
    """
    config = apply_to_config(config)
    has_operators = config.pathology is None or ZOO[config.pathology].operators
    return config if has_operators else config.replace(pathology=None)


def record(config: TrainConfig) -> tuple[Operator, ...]:
    """The operators as this machine's torch gives them. Imports torch, as nothing else here
    does.
    """
    from gpumodel.recording.record import record_step

    return record_step(_acting(config))


FOLDER_VARIABLE = "GPUMODEL_CACHE"
"""Environment variable that names the folder of recorded steps; empty, it switches that off."""

SHIPPED = Path(__file__).parents[1] / "data" / "steps"
"""Steps that the lessons and recordings play, made by scripts/dev/record_steps.py: they need no
torch, and do not change with its version.
"""

Kept = TypeVar("Kept")


def folder() -> Path | None:
    """The folder of recorded steps, by default below XDG_CACHE_HOME or ~/.cache; None if it is
    switched off, or if there is no home folder.
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
    """What ships under this name, else what `make` returns. That is kept as long as the libraries
    and the recorder stay the same.
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
    """The content as compressed JSON: the same bytes for the same content."""
    return gzip.compress(msgspec.json.encode(content), 9, mtime=0)


def unpack(packed: bytes, kind: type[Kept]) -> Kept:
    """The content that `pack` packed. Raises OSError, EOFError, zlib.error or msgspec.DecodeError
    for other bytes.
    """
    return msgspec.json.decode(gzip.decompress(packed), type=kind)


def _digest() -> str:
    # Another torch, or a recorder or trainer that was edited, may give other operators.
    versions = " ".join(metadata.version(name) for name in ("torch", "transformers"))
    here = Path(__file__)
    sources = sorted([*here.parent.glob("*.py"), *(here.parents[2] / "cifar_train").rglob("*.py")])
    content = b"".join(path.read_bytes() for path in sources)
    return hashlib.sha256(versions.encode() + content).hexdigest()[:16]

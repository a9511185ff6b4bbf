"""Snapshots of PyTorch's allocator for lesson 11: of the modelled trainer, and of requests that
come and go.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from proflab import journal
from tidyprof.whole_files import whole_file

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FOLDER = "11"
"""Folder of the snapshots, below the runs folder."""

SECOND_US = 1_000_000
"""Requests are made, ended and made again a second apart."""


def trainer_parameters() -> list[int]:
    """Bytes of each parameter of the trainer's ResNet-50, in float32."""
    from cifar_train.config import TrainConfig
    from gpumodel.play.counters import parameter_bytes
    from gpumodel.recording.steps import operators_of_step

    return parameter_bytes(operators_of_step(TrainConfig()))


def modelled_snapshot(name: str, options: str = "") -> Profile:
    """Play the trainer for three steps on a modelled MI300X and read the snapshot that it would
    leave.

    name -- of the folder. options -- of the trainer, as on its command line.
    """
    import tidyprof
    from cifar_train.config import parse
    from gpumodel import Training, simulate, writers

    run = simulate(Training(config=parse(f"--max-steps 3 --data synthetic {options}".split())))
    return tidyprof.read(
        writers.write("memory-snapshot", run, journal.runs_folder() / FOLDER / name)[0]
    )


def play_requests(
    requests: Sequence[tuple[int, bool]], last: int, capacity: int, name: str = "requests"
) -> Profile:
    """By the rules of PyTorch's allocator, on a device with `capacity` bytes: all requests in
    order, then those that don't stay are freed, then one more of `last` bytes is made. The snapshot
    after that, or after memory ran out.

    requests -- bytes, and whether the tensor stays. name -- of the folder.
    """
    import tidyprof
    from gpumodel.writers.memory_snapshot import CachingAllocator, OutOfMemoryError

    allocator = CachingAllocator(capacity)
    stay, go, long = (((("serve.py", line, "answer"),)) for line in (7, 9, 12))
    held = [
        (allocator.allocate(size, SECOND_US, stay if stays else go), stays)
        for size, stays in requests
    ]
    for address, stays in held:
        if not stays:
            allocator.free(address, 2 * SECOND_US)
    with suppress(OutOfMemoryError):
        allocator.allocate(last, 3 * SECOND_US, long)
    path = journal.runs_folder() / FOLDER / name / "snapshot.pickle"
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_bytes(pickle.dumps(allocator.snapshot(), protocol=4))
    return tidyprof.read(
        path, origin=tidyprof.Origin("modelled", "by the rules of PyTorch's allocator")
    )

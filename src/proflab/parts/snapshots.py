"""Snapshots of PyTorch's allocator for lesson 11: of the modelled trainer, and of single requests.
Also a figure of the allocator's segments, with the used and the free part of each.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from proflab import journal
from tidyprof.plots import style, viewer
from tidyprof.plots.figure import TidyFigure, add_legend, new_figure, origin_of, settings
from tidyprof.whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile

FOLDER = "11"
"""Folder of the snapshots, below the runs folder."""

SECOND_US = 1_000_000
"""Microseconds between allocating, freeing and allocating again."""

MEBIBYTE = 2**20
LOOKS = {"active_allocated": (style.BLUE, ""), "inactive": (style.GREY, "//")}
"""State of a block -> its look."""


def trainer_parameters() -> list[int]:
    """Bytes of each parameter of the trainer's ResNet-50, in float32."""
    from cifar_train.config import TrainConfig
    from gpumodel.play.counters import parameter_bytes
    from gpumodel.recording.steps import operators_of_step

    return parameter_bytes(operators_of_step(TrainConfig()))


def modelled_snapshot(name: str, options: str = "") -> Profile:
    """Run the trainer for three steps on a modelled MI300X and read the snapshot that it would
    leave.

    name    -- of the folder.
    options -- of the trainer, as on its command line.
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
    """A snapshot of PyTorch's allocator on a device with `capacity` bytes, by the allocator's
    rules: all requests in order, then the tensors that don't stay are freed, then `last` bytes are
    requested. The snapshot is taken after that, or after memory ran out.

    requests -- for each its bytes, and whether the tensor stays.
    name     -- of the folder.
    """
    import tidyprof
    from gpumodel.writers.memory_snapshot import CachingAllocator, OutOfMemoryError

    allocator = CachingAllocator(capacity)
    # Each kind of request has a line of its own, by which tables tell them apart.
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


def memory_map(blocks: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """One bar for each segment of `tidyprof.memory_blocks`, from its start on, in MiB."""
    with settings():
        figure, (axes,) = new_figure(origin_of(blocks), height=3.2, title=title)
        start = (blocks.groupby("segment")["bytes"].cumsum() - blocks["bytes"]) / MEBIBYTE
        row = blocks["segment"].rank(method="dense") - 1
        for state, (colour, hatch) in LOOKS.items():
            own = blocks["state"] == state
            size = blocks["bytes"][own] / MEBIBYTE
            axes.barh(
                row[own],
                size,
                0.8,
                start[own],
                color=colour,
                hatch=hatch,
                edgecolor=style.TEXT,
                linewidth=0.3,
            )
        axes.set(xlabel="MiB in the segment", ylabel="segment", ylim=(row.max() + 0.6, -0.6))
        add_legend(axes, {state.replace("_", " "): look for state, look in LOOKS.items()})
    free = 100 * blocks.loc[blocks["state"] == "inactive", "bytes"].sum() / blocks["bytes"].sum()
    figure.alternative_text = (
        f"{int(row.max()) + 1} segments of memory as bars. {free:.0f} % of their bytes are free."
    )
    figure.closer = _closer(blocks, title)
    return figure


def _closer(blocks: pd.DataFrame, title: str | None) -> str:
    """The page of the viewer: each block with its size and place in its segment, in bytes."""
    state = blocks["state"].astype(str).str.replace("_", " ")
    looks = {name.replace("_", " "): look for name, look in LOOKS.items()}
    start = blocks.groupby("segment")["bytes"].cumsum() - blocks["bytes"]
    row = blocks["segment"].rank(method="dense").astype(int) - 1
    table = blocks.assign(row=row, start=start, length=blocks["bytes"], name=state)
    drawn = table[state.isin(list(looks))]
    return viewer.boxes(
        drawn.assign(whole_name=drawn["name"], look=drawn["name"].map([*looks].index)),
        int((start + blocks["bytes"]).max()),
        [f"segment {number}" for number in range(row.max() + 1)],
        looks,
        origin=origin_of(blocks),
        title=title,
        unit="bytes",
        things="blocks",
        axis="Across: place in the segment",
    )

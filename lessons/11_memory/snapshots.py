"""Snapshots of PyTorch's allocator: of the modeled trainer, and of single requests.

Also a figure of the allocator's segments, with the used and the free part of each.
"""

from __future__ import annotations

import json
import lzma
import pickle
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proflab import journal
from tidyprof.plots import style, viewer
from tidyprof.plots.figure import TidyFigure, add_legend, new_figure, origin_of, settings
from tidyprof.atomic_write import whole_file

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile

HERE = Path(__file__).parent

FOLDER = "11"
"""Folder of the snapshots, below the runs folder."""

SECOND_US = 1_000_000
"""Microseconds between allocating, freeing and allocating again."""

MEBIBYTE = 2**20
LOOKS = {"active_allocated": (style.BLUE, ""), "inactive": (style.GREY, "//")}
"""State of a block -> its look."""


def trainer_parameters() -> list[int]:
    """Return the bytes of each parameter of the trainer's ResNet-50, in float32."""
    return json.loads((HERE / "resnet50_parameters.json").read_text(encoding="utf-8"))


def modeled_snapshot(name: str) -> Profile:
    """Read the modeled snapshot of three steps, healthy or growing, from the lesson's folder."""
    import tidyprof

    folder = journal.runs_folder() / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "snapshot_rank0.pickle"
    path.write_bytes(lzma.decompress((HERE / f"modeled/{name}.pickle.xz").read_bytes()))
    shutil.copy(HERE / "modeled/modelled.json", folder)
    return tidyprof.read(path)


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
    from proflab.parts.allocator import CachingAllocator, OutOfMemoryError

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
        path, origin=tidyprof.Origin("modeled", "by the rules of PyTorch's allocator")
    )


def memory_map(blocks: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """One bar for each segment of `tidyprof.memory_blocks`, from its start on, in MiB."""
    with settings():
        figure, (axes,) = new_figure(origin_of(blocks), height=3.2, title=title)
        start = (blocks.groupby("segment")["bytes"].cumsum() - blocks["bytes"]) / MEBIBYTE
        row = blocks["segment"].rank(method="dense") - 1
        for state, (color, hatch) in LOOKS.items():
            own = blocks["state"] == state
            size = blocks["bytes"][own] / MEBIBYTE
            axes.barh(
                row[own],
                size,
                0.8,
                start[own],
                color=color,
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

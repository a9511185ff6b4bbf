"""Snapshots of PyTorch's allocator, from the modeled trainer and from single requests.

The module also draws a figure of the segments.
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
from proflab.showing import point_at
from tidyprof.plots import style
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
LOOKS = {"active allocated": (style.BLUE, ""), "inactive": (style.GREY, "//")}
"""Color and hatch of each state of a block."""


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
    """Play requests by the rules of PyTorch's allocator, and return the snapshot.

    The tensors that don't stay are freed after all requests, then `last` bytes are requested. The
    snapshot is taken after that, even if memory ran out.

    requests -- bytes, and whether the tensor stays.
    capacity -- bytes of the device.
    name     -- of the folder.
    """
    import tidyprof
    from proflab.parts.allocator import CachingAllocator, OutOfMemoryError

    allocator = CachingAllocator(capacity)
    # Each kind of request has its own line, so that tables can tell them apart.
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
    """Draw one bar in MiB per segment of `tidyprof.memory_blocks`."""
    starts = blocks.groupby("segment")["bytes"].cumsum() - blocks["bytes"]
    rows = blocks["segment"].rank(method="dense").astype(int) - 1
    names = blocks["state"].astype(str).str.replace("_", " ")
    table = blocks.assign(row=rows, start=starts, length=blocks["bytes"], name=names)
    drawn = table[names.isin([*LOOKS])]
    with settings():
        figure, (axes,) = new_figure(origin_of(blocks), height=3.2, title=title)
        for name, (color, hatch) in LOOKS.items():
            own = drawn[drawn["name"] == name]
            sizes, left = own["length"] / MEBIBYTE, own["start"] / MEBIBYTE
            look = {"color": color, "hatch": hatch, "edgecolor": style.TEXT, "linewidth": 0.3}
            axes.barh(own["row"], sizes, 0.8, left, **look)
        axes.set(xlabel="MiB in the segment", ylabel="segment", ylim=(rows.max() + 0.6, -0.6))
        add_legend(axes, LOOKS)
    free = 100 * drawn.loc[drawn["name"] == "inactive", "length"].sum() / blocks["bytes"].sum()
    figure.alternative_text = (
        f"{rows.max() + 1} segments of memory as bars. {free:.0f}% of their bytes are free."
    )
    for block in drawn[drawn["name"] == "inactive"].nlargest(1, "length").itertuples():
        text = f"largest free block: {block.length / MEBIBYTE:.0f} MiB"
        point_at(figure, text, (1.05 * block.start / MEBIBYTE, block.row), (0.4, 0.6))
    return figure

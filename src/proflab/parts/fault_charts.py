"""Pictures of lesson 09: how far an index may miss before the GPU notices, and where the lanes of a wave looked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proflab.parts.fault_report import PAGE_BYTES

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.fault_report import FaultReport
    from tidyprof.plots import TidyFigure

SMALL_BYTES, SMALL_BLOCK = 2**20, 2**21
"""PyTorch's allocator cuts tensors of at most SMALL_BYTES out of blocks of SMALL_BLOCK (c10, CUDACachingAllocator)."""

LARGE_BYTES, LARGE_BLOCK = 10 * 2**20, 20 * 2**20
"""Below LARGE_BYTES out of blocks of LARGE_BLOCK, else in multiples of SMALL_BLOCK (the same file)."""

MEMORY_BYTES = 192 * 10**9
"""Memory of an MI300X (https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html)."""

_GIB = 2**30


def index_reach(tensor_bytes: int, element_bytes: int = 4) -> pd.DataFrame:
    """How far an index may leave a tensor before it must hit memory that is not there, at least.

    One row with PyTorch's cache and one without: allocator (in words), tensor_bytes, mapped_bytes (what is there,
    if the tensor stands at its begin), silent_bytes (the difference), first_fault (smallest index that leaves it).
    What follows may be mapped too, so the GPU may stay silent for longer. Raises ValueError for an empty tensor.
    """
    import pandas as pd

    if tensor_bytes <= 0:
        raise ValueError(f"a tensor of {tensor_bytes} bytes has no elements")
    mapped = {"with the cache": _block_bytes(tensor_bytes), "without": _rounded_up(tensor_bytes, PAGE_BYTES)}
    table = pd.DataFrame({"allocator": mapped.keys(), "tensor_bytes": tensor_bytes, "mapped_bytes": mapped.values()})
    table["silent_bytes"] = table["mapped_bytes"] - table["tensor_bytes"]
    table["first_fault"] = table["mapped_bytes"] // element_bytes
    table.attrs["origin"] = "modelled: block sizes of PyTorch's allocator, pages of 4 KiB; the tensor begins its block"
    return table


def reach_figure(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """One bar for each row of `index_reach`: the tensor, what is read silently behind it, and where a fault is sure."""
    from tidyprof.plots import style
    from tidyprof.plots.figure import add_legend, new_figure, origin_of, settings

    looks = {
        "the tensor": (style.BLUE, ""),
        "other memory of the process: read without a sound": (style.ORANGE, "///"),
        "may be missing: fault": (style.GROUND, ""),
    }
    tensor, silent = table["tensor_bytes"] / 2**20, table["silent_bytes"] / 2**20
    end = 1.15 * float((tensor + silent).max())
    widths = (tensor, silent, end - tensor - silent)
    with settings():
        figure, (axes,) = new_figure(origin_of(table), height=2.3, title=title)
        left = 0 * tensor
        for (colour, hatch), width in zip(looks.values(), widths, strict=True):
            axes.barh(table["allocator"], width, left=left, color=colour, hatch=hatch, edgecolor=style.TEXT, height=0.5)
            left = left + width
        axes.set_xlim(0, end)
        axes.invert_yaxis()
        axes.set_xlabel("distance from the start of the tensor, MiB")
        add_legend(axes, looks)
    cached, plain = table["silent_bytes"]
    figure.alternative_text = (
        f"Two bars of memory, each beginning with a tensor of {tensor.iloc[0]:.2f} MiB. With PyTorch's cache "
        f"{cached / 2**20:.2f} MiB behind it can be read without a fault, without the cache {plain / 2**20:.2f} MiB."
    )
    return figure


def lanes_figure(report: FaultReport, base: int, first: int, title: str | None = None) -> TidyFigure:
    """How far from `base` each lane of each wave looked: the addresses in vector registers `first` and `first` + 1.

    A circle marks lanes on the faulting page, a line the size of the GPU's memory. Raises CourseError if a wave was
    printed without these registers.
    """
    from tidyprof.plots import style
    from tidyprof.plots.figure import new_figure, settings

    looked = [address for wave in report.waves for address in wave.vector_pair(first)]
    far = [(address - base) / _GIB for address in looked]
    page = report.faulting_page
    hit = [place for place, address in enumerate(looked) if address // PAGE_BYTES * PAGE_BYTES == page]
    with settings():
        figure, (axes,) = new_figure(str(report.origin), height=3.6, title=title)
        axes.plot(range(len(far)), far, linestyle="", marker=".", markersize=6, color=style.BLUE, label="one lane")
        ring = {"marker": "o", "markersize": 13, "mfc": "none", "mew": 2, "color": style.VERMILLION}
        axes.plot(hit, [far[place] for place in hit], linestyle="", label="on the faulting page", **ring)
        axes.axhline(MEMORY_BYTES / _GIB, color=style.TEXT, linestyle="--", label="all memory of an MI300X")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.3)
        axes.set_xlabel("lanes of all waves, one after the other")
        axes.set_ylabel("distance from the tensor, GiB")
        axes.set_xlim(-1, len(far))
    outside = sum(abs(distance) > MEMORY_BYTES / _GIB for distance in far)
    figure.alternative_text = (
        f"{len(far)} points, one for each lane, by their distance from the tensor: {outside} looked farther away than "
        f"an MI300X has memory, the farthest {max(far):,.0f} GiB. {len(hit)} of them looked at the faulting page."
    )
    return figure


def _block_bytes(size: int) -> int:
    if size <= SMALL_BYTES:
        return SMALL_BLOCK
    return LARGE_BLOCK if size < LARGE_BYTES else _rounded_up(size, SMALL_BLOCK)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit

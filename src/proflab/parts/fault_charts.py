"""The picture of lesson 09: where the lanes of all waves looked."""

from __future__ import annotations

from collections.abc import Sequence

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, new_figure, settings

PAGE_BYTES = 4096
"""Size of the smallest page of GPU memory (Linux, drivers/gpu/drm/amd/amdgpu: AMDGPU_GPU_PAGE_SIZE)."""

MEMORY_BYTES = 192 * 10**9
"""Memory of an MI300X (https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html)."""

_GIB = 2**30


def lanes_figure(addresses: Sequence[int], base: int, page: int, origin: str, title: str | None = None) -> TidyFigure:
    """How far from `base` each lane looked; a circle marks lanes on `page`, a line the size of the GPU's memory."""
    far = [(address - base) / _GIB for address in addresses]
    hit = [lane for lane, address in enumerate(addresses) if address // PAGE_BYTES * PAGE_BYTES == page]
    with settings():
        figure, (axes,) = new_figure(origin, height=3.6, title=title)
        axes.plot(range(len(far)), far, linestyle="", marker=".", markersize=6, color=style.BLUE, label="one lane")
        ring = {"marker": "o", "markersize": 13, "mfc": "none", "mew": 2, "color": style.VERMILLION}
        axes.plot(hit, [far[lane] for lane in hit], linestyle="", label="on the faulting page", **ring)
        axes.axhline(MEMORY_BYTES / _GIB, color=style.TEXT, linestyle="--", label="all memory of an MI300X")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.3)
        axes.set(xlabel="lanes of all waves, one after the other", ylabel="distance from the tensor, GiB")
        axes.set_xlim(-1, len(far))
    outside = sum(abs(distance) > MEMORY_BYTES / _GIB for distance in far)
    figure.alternative_text = (
        f"{len(far)} points, one for each lane, by their distance from the tensor: {outside} looked farther away than "
        f"an MI300X has memory, the farthest {max(far):,.0f} GiB. {len(hit)} of them looked at the faulting page."
    )
    return figure
